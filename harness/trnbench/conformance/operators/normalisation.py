"""Softmax, log-softmax, log-sum-exp, cross-entropy, RMSNorm and LayerNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.operators import (
    normalisation_cross_entropy,
    normalisation_norms,
    normalisation_softmax,
)

if TYPE_CHECKING:
    from trnbench.conformance.operators.base import Operator

OPERATORS: list[Operator] = [
    *normalisation_softmax.OPERATORS,
    *normalisation_cross_entropy.OPERATORS,
    *normalisation_norms.OPERATORS,
]
