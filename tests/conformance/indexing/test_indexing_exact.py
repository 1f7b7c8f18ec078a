"""The exact answers of integer checks and the bounds of sums, against calculations of other kinds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.indexing_integers import INTEGERS, TO_FLOAT32, TO_INT32
from trnbench.conformance.operators.indexing_sums import row_sum_bound, summed_rows

NUMPY = {
    "integer arithmetic": lambda x, y: (x + y, x - y, x * y),
    "integer division": lambda x, y: (x // y, x % y, None),
    "integer sum": lambda x, y: (x.sum(dtype=np.int64), y.cumsum(dtype=np.int64), np.count_nonzero(y)),
    "integer shift by a tensor": lambda x, y: (x >> y, x << y),
    "integer comparison": lambda x, y: (x == y, x < y, x <= y, np.isin(x, y)),
    "integer order": lambda x, y: (x.argsort(kind="stable"), np.sort(x), np.searchsorted(np.sort(x), y)),
}


@pytest.mark.parametrize("name", NUMPY)
def test_exact_answers_agree_with_numpy(name: str) -> None:
    operator = next(one for one in INTEGERS if one.name == name)
    assert operator.exact is not None
    with np.errstate(over="ignore"):
        for sample in operator.exact("fp32", Plan(seeds=(0, 1))):
            answers = NUMPY[name](*(tensor.numpy() for tensor in sample.inputs))
            for expected, answer in zip(sample.expected, answers, strict=True):
                assert answer is None or np.array_equal(expected.numpy(), answer)


def test_signatures_differ_from_the_right_answer_and_name_both_widths() -> None:
    names = set()
    for operator in INTEGERS:
        assert operator.exact is not None
        for sample in operator.exact("fp32", Plan()):
            names |= set(sample.signatures)
            for name in {TO_INT32, TO_FLOAT32} & set(sample.signatures):
                pairs = zip(sample.signatures[name], sample.expected, strict=True)
                assert not all(torch.equal(wrong, right) for wrong, right in pairs)
    assert {TO_INT32, TO_FLOAT32, "shift as division", "floor division truncates"} <= names


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-1e3, 1e3, width=32)), min_size=1, max_size=40))
def test_float32_sums_of_rows_stay_within_the_bound_of_exact_ones(pairs: list[tuple[int, float]]) -> None:
    index = torch.tensor([row for row, _ in pairs])
    values = torch.tensor([[value] for _, value in pairs])
    bound = row_sum_bound(index, values, 3, Arithmetic(precision="fp32"))
    found = torch.zeros(3, 1).index_add(0, index, values)
    for row in range(3):
        exact = sum((Fraction(value) for place, value in pairs if place == row), Fraction(0))
        assert abs(Fraction(float(found[row, 0])) - exact) <= Fraction(float(bound[row, 0]))
    assert summed_rows(index, values, 3).dtype == torch.float64
