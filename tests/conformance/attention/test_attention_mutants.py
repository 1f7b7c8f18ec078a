"""Every broken attention is caught and named, and no correct one raises an alarm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.diagnosis.attention import HYPOTHESES
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.mutants.attention import MUTANTS
from trnbench.conformance.operators.attention import OPERATORS
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.judge import judge_operator

if TYPE_CHECKING:
    from trnbench.conformance.mutants.base import Mutant

BY_NAME = {operator.name: operator for operator in OPERATORS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught_and_named_and_a_correct_variant_passes(mutant: Mutant) -> None:
    operator = BY_NAME[mutant.operator]
    plan = Plan(seeds=(0,), shapes="several")
    judged = judge_operator(operator, mutant.precision, mutant.make(), Arithmetic(precision=mutant.precision), plan)
    wrong = [finding for finding in judged.findings if finding.verdict != "pass"]
    if mutant.correct:
        assert wrong == []
    else:
        assert wrong
        assert diagnose(judged.failures, HYPOTHESES[mutant.operator]).name in mutant.looks_like
