"""All mutants of operators, family by family."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from trnbench.conformance.operators.registry import FAMILIES

if TYPE_CHECKING:
    from trnbench.conformance.mutants.base import Mutant


def mutants_of(family: str) -> list[Mutant]:
    """The mutants of one operator family, correct variants included."""
    module = importlib.import_module(f"trnbench.conformance.mutants.{family}")
    found: list[Mutant] = module.MUTANTS
    return found


def operator_mutants() -> list[Mutant]:
    """Those of every family, in the families' order."""
    return [mutant for family in FAMILIES for mutant in mutants_of(family)]
