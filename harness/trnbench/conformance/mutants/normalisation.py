"""Mutants of softmax, log-softmax, log-sum-exp, cross-entropy and norms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.mutants import normalisation_norms, normalisation_softmax

if TYPE_CHECKING:
    from trnbench.conformance.mutants.base import Mutant

MUTANTS: list[Mutant] = [*normalisation_softmax.MUTANTS, *normalisation_norms.MUTANTS]
