"""Each mutant is caught and named, each correct variant passes; a hypothesis is never the correct result itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.diagnosis.normalisation import HYPOTHESES
from trnbench.conformance.mutants.normalisation import MUTANTS
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.judge import judge_operator
from trnbench.conformance.operators.normalisation import OPERATORS
from trnbench.conformance.operators.registry import operator

if TYPE_CHECKING:
    from trnbench.conformance.mutants.base import Mutant
    from trnbench.conformance.operators.judge import Judged

FEW = {
    "RMSNorm": ("gaussian", "tiny"),
    "RMSNorm in Llama's order": ("gaussian", "tiny"),
    "LayerNorm": ("gaussian", "tiny", "offset 1000"),
    "cross-entropy": ("gaussian", "confident", "offset 1000"),
}
"""Inputs that show every fault here; the whole plan is for the mutation score."""


def judged(mutant: Mutant) -> Judged:
    plan = Plan(shapes="one", inputs=FEW.get(mutant.operator, ("gaussian", "huge", "offset 1000")))
    arithmetic = Arithmetic(precision=mutant.precision)
    return judge_operator(operator(mutant.operator), mutant.precision, mutant.make(), arithmetic, plan)


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if not one.correct], ids=lambda one: one.name)
def test_a_wrong_one_is_caught_and_named(mutant: Mutant) -> None:
    failures = judged(mutant).failures
    assert failures
    assert diagnose(failures, HYPOTHESES[mutant.operator]).name in mutant.looks_like


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.correct], ids=lambda one: one.name)
def test_a_correct_one_raises_no_alarm(mutant: Mutant) -> None:
    assert [finding for finding in judged(mutant).findings if finding.verdict != "pass"] == []


def test_every_operator_has_hypotheses_and_names_are_known_to_it() -> None:
    assert set(HYPOTHESES) == {one.name for one in OPERATORS}
    for mutant in MUTANTS:
        known = {hypothesis.name for hypothesis in HYPOTHESES[mutant.operator]}
        assert set(mutant.looks_like) <= known, mutant.name
