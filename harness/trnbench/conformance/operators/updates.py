"""Changing weights: AdamW, clipping of the gradient norm, stochastic rounding, small steps that must not be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.operators.updates_adamw import ADAMW
from trnbench.conformance.operators.updates_clipping import CLIPPING
from trnbench.conformance.operators.updates_optimizer import OPTIMIZER
from trnbench.conformance.operators.updates_rounding import ROUNDING
from trnbench.conformance.operators.updates_small_steps import SMALL_STEPS

if TYPE_CHECKING:
    from trnbench.conformance.operators.base import Operator

OPERATORS: list[Operator] = [*ADAMW, *OPTIMIZER, *CLIPPING, *ROUNDING, *SMALL_STEPS]
