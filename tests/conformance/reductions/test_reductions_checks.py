"""Checks of reductions: all pass on the CPU, every mutant is told, and exact samples are what integers say."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.mutants.reductions import MUTANTS
from trnbench.conformance.mutants.run import try_mutant
from trnbench.conformance.operators import reductions_inputs
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.judge import judge_operator
from trnbench.conformance.operators.reductions import OPERATORS
from trnbench.conformance.operators.reductions_exact import sums_exact
from trnbench.conformance.operators.reductions_sums import sums_bound

if TYPE_CHECKING:
    from trnbench.conformance.mutants.base import Mutant


QUICK = [mutant for mutant in MUTANTS if mutant.operator in ("argmax", "top-k", "amax of all", "sum of integers")]
"""The whole list is judged by the mutation test of all operators; these take a fraction of a second each."""


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_cpu_passes(precision: str) -> None:
    for operator in OPERATORS:
        if precision in operator.precisions:
            judged = judge_operator(
                operator,
                precision,
                HostImplementation(operator.function),
                Arithmetic(precision=precision),
                Plan(seeds=(1, 2), shapes="one"),
            )
            assert judged.findings
            assert [one for one in judged.findings if one.verdict != "pass"] == []


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: f"{mutant.name}, {mutant.precision}")
def test_quick_mutants_are_told(mutant: Mutant) -> None:
    result = try_mutant(mutant)
    if mutant.correct:
        assert result.tiers == []
    else:
        assert result.tiers
        assert result.named, result.found


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_exact_sums_are_those_of_fractions(precision: str) -> None:
    """The first row, the first column and all, added up as fractions."""
    for sample in sums_exact(precision, Plan()):
        x = sample.inputs[0]
        for terms, expected in ((x[0], sample.expected[0][0]), (x[:, 0], sample.expected[1][0])):
            assert sum(map(Fraction, terms.tolist())) == Fraction(expected.item())
        assert sum(map(Fraction, x.flatten().tolist())) == Fraction(sample.expected[2].item())


@given(st.lists(st.floats(min_value=-1e6, max_value=1e6, width=32), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_serial_float32_sums_stay_within_the_hard_bound(values: list[float]) -> None:
    x = torch.tensor([values], dtype=torch.float32)
    total = torch.zeros(())
    for term in x[0]:
        total = total + term
    bound = sums_bound((x,), Arithmetic(precision="fp32"))[0]
    assert abs(Fraction(total.item()) - sum(map(Fraction, x[0].tolist()))) <= Fraction(bound.item())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("close", [False, True])
def test_distinct_numbers_have_one_maximum_everywhere(precision: str, close: bool) -> None:
    x = reductions_inputs.distinct(precision, 3, close=close).double()
    for axis in (-1, 0):
        assert bool(((x == x.amax(axis, keepdim=True)).sum(axis) == 1).all())
    assert int((x == x.amax()).sum()) == 1
    assert torch.unique(x[0]).numel() == x.shape[1]
