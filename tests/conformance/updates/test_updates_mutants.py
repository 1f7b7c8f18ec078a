"""Every broken optimizer step, clipping and rounding is caught and named; correct ones in other orders pass."""

from __future__ import annotations

import pytest

from trnbench.conformance.mutants.run import try_mutant
from trnbench.conformance.mutants.updates import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_caught_and_named_or_passed(mutant) -> None:
    result = try_mutant(mutant)
    if mutant.correct:
        assert not result.tiers
    else:
        assert result.tiers
        assert result.named, result.found
