"""The hypotheses of every operator, by name, from the module of its family."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from trnbench.conformance.operators.registry import FAMILIES

if TYPE_CHECKING:
    from trnbench.conformance.diagnosis.base import Hypothesis


def hypotheses_of(operator_name: str) -> list[Hypothesis]:
    """Hypotheses of one operator, the simplest first; empty where its family knows none but the generic ones."""
    found: list[Hypothesis] = []
    for family in FAMILIES:
        name = f"trnbench.conformance.diagnosis.{family}"
        if importlib.util.find_spec(name) is None:
            continue
        found += importlib.import_module(name).HYPOTHESES.get(operator_name, [])
    return found
