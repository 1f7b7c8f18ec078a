"""Reductions: sums, means, running sums, maxima, their indices, the k largest, and sums of integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.operators import reductions_extremes, reductions_integers, reductions_sums

if TYPE_CHECKING:
    from trnbench.conformance.operators.base import Operator

OPERATORS: list[Operator] = [
    *reductions_sums.OPERATORS,
    *reductions_extremes.OPERATORS,
    *reductions_integers.OPERATORS,
]
