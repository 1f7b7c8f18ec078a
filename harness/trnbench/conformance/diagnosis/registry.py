"""The hypotheses of every operator, by name, from the module of its family."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from trnbench.conformance.operators.registry import FAMILIES

if TYPE_CHECKING:
    from trnbench.conformance.diagnosis.base import Hypothesis


def hypotheses_of(operator_name: str) -> list[Hypothesis]:
    """Hypotheses of one operator, the simplest first; empty where its family knows none but the generic ones."""
    found: list[Hypothesis] = []
    for family in FAMILIES:
        module = importlib.import_module(f"trnbench.conformance.diagnosis.{family}")
        found += module.HYPOTHESES.get(operator_name, [])
    return found
