"""Activation functions of transformers, and dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.operators import activations_dropout, activations_gelu, activations_silu

if TYPE_CHECKING:
    from trnbench.conformance.operators.base import Operator

OPERATORS: list[Operator] = [
    *activations_gelu.OPERATORS,
    *activations_silu.OPERATORS,
    *activations_dropout.OPERATORS,
]
