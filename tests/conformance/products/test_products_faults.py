"""Faulty products are caught and named: mutants, real settings of PyTorch, and cases from the field."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.diagnosis.registry import hypotheses_of
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.inputs import make
from trnbench.conformance.mutants.products import MUTANTS
from trnbench.conformance.operators.base import Plan, Sample
from trnbench.conformance.operators.judge import Judged, judge_operator
from trnbench.conformance.operators.products import OPERATORS
from trnbench.conformance.operators.products_views import PLAIN

if TYPE_CHECKING:
    from trnbench.conformance.mutants.base import Mutant

BY_NAME = {operator.name: operator for operator in OPERATORS}
QUICK = (
    "TF32 by truncation",
    "storage taken for its transpose",
    "bias after rounding",
    "bf16, product rounded before the bias, as found",
)
"""The mutation score of all is another test's; these are of every kind."""


def judged(function: object, precision: str = "fp32", name: str = "matmul", plan: Plan | None = None) -> Judged:
    return judge_operator(
        BY_NAME[name],
        precision,
        HostImplementation(function),
        Arithmetic(precision=precision),
        plan or Plan(shapes="one", inputs=("gaussian", "positive")),
    )


def name_of(found: Judged, operator: str = "matmul") -> str:
    return diagnose(found.failures, hypotheses_of(operator)).name


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.name in QUICK], ids=lambda mutant: mutant.name)
def test_products_mutant_is_caught_and_named(mutant: Mutant) -> None:
    arithmetic = mutant.arithmetic or (lambda precision: Arithmetic(precision=precision))
    found = judge_operator(
        BY_NAME[mutant.operator], mutant.precision, mutant.make(), arithmetic(mutant.precision), Plan()
    )
    failed = [finding for finding in found.findings if finding.verdict != "pass"]
    if mutant.correct:
        assert failed == []
    else:
        assert failed
        assert name_of(found, mutant.operator) in mutant.looks_like


def test_products_have_mutants_of_every_operator() -> None:
    assert {mutant.operator for mutant in MUTANTS} == set(BY_NAME)
    assert sum(not mutant.correct for mutant in MUTANTS) >= 12
    assert sum(mutant.correct for mutant in MUTANTS) >= 5
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_fp32_product_that_rounds_to_bf16_is_named_at_the_size_from_the_field() -> None:
    """Field case C5: 64x1024x1024 labelled float32 that behaves like bfloat16."""
    left = make("gaussian", (64, 1024), torch.float32, 0, "left")
    right = make("gaussian", (1024, 1024), torch.float32, 0, "right")
    operator = BY_NAME["matmul"]
    sample = Sample(input="gaussian", shape="64x1024 by 1024x1024", inputs=(left, right))
    one = type(operator)(
        name="matmul",
        family="products",
        function=operator.function,
        samples=lambda precision, plan: [sample],
        oracle=operator.oracle,
        bound=operator.bound,
    )
    implementation = HostImplementation(lambda a, b: a.bfloat16().float() @ b.bfloat16().float())
    found = judge_operator(one, "fp32", implementation, Arithmetic(precision="fp32"), Plan())
    assert {finding.verdict for finding in found.findings} == {"fail"}
    diagnosis = diagnose(found.failures, hypotheses_of("matmul"))
    assert diagnosis.name == "bf16 operands"


def test_fp32_product_under_autocast_is_named() -> None:
    """PyTorch's own way of computing a float32 product in bfloat16."""

    def cast(a: Tensor, b: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (a @ b).float()

    assert name_of(judged(cast)) == "bf16 operands and output"


def test_fp32_product_at_medium_precision_is_named() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = judged(PLAIN.function, plan=Plan(inputs=("gaussian",)))
    finally:
        torch.set_float32_matmul_precision(before)
    if not found.failures:
        pytest.skip("medium precision changes nothing on this CPU: oneDNN needs AMX for it")
    assert name_of(found) == "bf16 operands"


def test_product_that_differs_from_run_to_run_is_flagged() -> None:
    """Field case C8: the same shape twice must have the same bits."""
    calls = itertools.count()
    found = judged(lambda a, b: (a @ b) * (1.0 + 2.0**-23 * (next(calls) % 2)))
    twice = [finding for finding in found.findings if "run twice" in finding.input]
    assert [(finding.verdict, finding.looks_like) for finding in twice] == [("fail", "not deterministic")]


def test_product_that_depends_on_the_batch_beyond_rounding_is_flagged() -> None:
    """Field case C8: row by row may change the order of a sum, not its precision."""

    def by_rows(a: Tensor, b: Tensor) -> Tensor:
        return a @ b if a.shape[0] > 1 else a.bfloat16().float() @ b.bfloat16().float()

    plan = Plan(inputs=("gaussian",))
    rows = [finding for finding in judged(by_rows, plan=plan).findings if "row by row" in finding.input]
    assert [(finding.verdict, finding.looks_like) for finding in rows] == [("fail", "depends on the batch size")]
    usual = [finding for finding in judged(PLAIN.function, plan=plan).findings if "row by row" in finding.input]
    assert [finding.verdict for finding in usual] == ["pass"]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_product_of_zeros_fails_where_the_oracle_is_small(precision: str) -> None:
    """Field case C10: zeros against results of 1e-6 pass every absolute tolerance; a bound scales with the result."""
    found = judged(lambda a, b: 0.0 * (a @ b), precision)
    assert {finding.verdict for finding in found.findings if finding.tier == "T1"} >= {"fail"}
    assert name_of(found) == "output all zero"
    size = [finding for finding in found.findings if "size of the error" in finding.input]
    # A relative error of exactly 1 in units of the limit: 1 / limit, far above it.
    assert size[0].verdict == "fail"
    assert size[0].where.startswith("1 against ")


def test_product_of_nan_is_never_a_match() -> None:
    """Field case C9: not even one NaN, and not where the reference would be NaN in another dtype."""
    found = judged(lambda a, b: (a @ b) * torch.nan)
    assert {finding.verdict for finding in found.findings if finding.tier == "T1"} == {"non-finite"}
    assert all(finding.value is None for finding in found.findings if finding.verdict == "non-finite")
    assert name_of(found) == "output all NaN"

    def one_nan(a: Tensor, b: Tensor) -> Tensor:
        output = a @ b
        return torch.where(torch.arange(output.numel()).reshape(output.shape) == 5, torch.nan, output)

    first = next(finding for finding in judged(one_nan).findings if finding.tier == "T1")
    assert (first.verdict, first.value) == ("non-finite", None)
    assert "[0, 5]" in first.where
