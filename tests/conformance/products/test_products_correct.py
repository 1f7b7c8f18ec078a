"""Correct products pass on every seed and in every order; bounds and exact answers agree with rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.conformance.arithmetic import STORAGE, Arithmetic
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.diagnosis.registry import hypotheses_of
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.operators.base import Operator, Plan
from trnbench.conformance.operators.judge import judge_operator
from trnbench.conformance.operators.products import OPERATORS
from trnbench.conformance.operators.products_bounds import product_bound
from trnbench.conformance.operators.products_exact import cases
from trnbench.conformance.operators.products_orders import ORDERS
from trnbench.conformance.operators.products_samples import INPUTS

BY_NAME: dict[str, Operator] = {operator.name: operator for operator in OPERATORS}
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((name, precision) for name in ("matmul", "linear") for precision in PRECISIONS),
        ("batched matmul", "fp16"),
        ("transposed matmul", "bf16"),
        ("strided matmul", "fp32"),
    ],
)
def test_products_of_the_host_pass_on_five_seeds(name: str, precision: str) -> None:
    operator = BY_NAME[name]
    plan = Plan(seeds=tuple(range(5)), shapes="one", inputs=("gaussian", "cancelling"))
    host = HostImplementation(operator.function)
    findings = judge_operator(operator, precision, host, Arithmetic(precision=precision), plan).findings
    assert [finding for finding in findings if finding.verdict != "pass"] == []
    assert {finding.tier for finding in findings} == {"T0", "T1", "T2", "T3"}
    assert {finding.direction for finding in findings} == {"forward", "backward"}


def test_products_of_the_host_keep_subnormals_or_are_found_to_flush_them() -> None:
    """The bfloat16 instructions of x86 flush; whether this host uses them, its results say, and nothing else may."""
    operator = BY_NAME["matmul"]
    plan = Plan(shapes="one", inputs=("subnormal",))
    host = HostImplementation(operator.function)
    judged = judge_operator(operator, "bf16", host, Arithmetic(precision="bf16"), plan)
    failed = {finding.input for finding in judged.findings if finding.verdict != "pass"}
    assert failed <= {"subnormal"}
    if failed:
        assert diagnose(judged.failures, hypotheses_of("matmul")).name == "subnormals flushed"
    flushing = Arithmetic(precision="bf16", flushes_subnormals=True)
    findings = judge_operator(operator, "bf16", host, flushing, plan).findings
    assert [finding for finding in findings if finding.verdict != "pass"] == []


@pytest.mark.parametrize("name", ["matmul", "linear"])
def test_products_of_the_host_pass_at_several_shapes_and_all_inputs(name: str) -> None:
    operator = BY_NAME[name]
    host = HostImplementation(operator.function)
    findings = judge_operator(operator, "fp32", host, Arithmetic(precision="fp32"), Plan()).findings
    assert [finding for finding in findings if finding.verdict != "pass"] == []
    assert {finding.input for finding in findings} >= set(INPUTS)
    assert any("65536" in finding.where for finding in findings) == (name == "matmul")


@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.sampled_from(("fp32", "bf16", "fp16")),
    st.sampled_from(sorted(ORDERS)),
    st.integers(-20, 20),
)
def test_products_bound_holds_for_every_order_against_rational_arithmetic(
    seed: int, terms: int, precision: str, order: str, exponent: int
) -> None:
    rng = np.random.default_rng(seed)
    scale = 2.0 ** (exponent if precision != "fp16" else exponent // 4)
    left = torch.from_numpy(rng.standard_normal((2, terms)) * scale).to(STORAGE[precision])
    right = torch.from_numpy(rng.standard_normal((terms, 2))).to(STORAGE[precision])
    output = ORDERS[order](left, right).to(left.dtype)
    bound = product_bound(left, right, Arithmetic(precision=precision))
    for row in range(2):
        for column in range(2):
            pairs = zip(left[row].tolist(), right[:, column].tolist(), strict=True)
            exact = sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))
            error = abs(Fraction(output[row, column].item()) - exact)
            assert error <= Fraction(bound[row, column].item())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_products_exact_answers_are_rational_sums_that_no_order_can_lose(precision: str) -> None:
    """Integers whose magnitudes sum to at most 2^24, or single terms; and the answer fits the output."""
    for case in cases(precision, 8, 2304, 4):
        assert torch.equal(case.expected, case.expected.to(STORAGE[precision]).double()) or case.special
        for name, wrong in case.wrong.items():
            differs = (wrong != case.expected) & ~(wrong.isnan() & case.expected.isnan())
            assert bool(differs.any()), f"{name} of {case.input} is the right answer"
        if case.special:
            continue
        for matrix in (case.left, case.right):
            assert torch.equal(matrix, matrix.to(STORAGE[precision]).double())
        left, right = case.left[3].tolist(), case.right[:, 2].tolist()
        terms = [Fraction(a) * Fraction(b) for a, b in zip(left, right, strict=True) if a and b]
        assert sum(terms, Fraction(0)) == Fraction(case.expected[3, 2].item())
        if case.input != "sums in range" and "operand" not in case.input:
            assert all(term.denominator == 1 for term in terms)
            assert sum(abs(term) for term in terms) <= 2**24
