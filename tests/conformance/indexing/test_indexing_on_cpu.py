"""Look-ups, scatters and integers on the CPU: five seeds pass, and the known deviations of PyTorch are found."""

from __future__ import annotations

import pytest
import torch

from trnbench.conformance.arithmetic import STORAGE, Arithmetic
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.diagnosis.registry import hypotheses_of
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.indexing import OPERATORS
from trnbench.conformance.operators.indexing_sums import saturated
from trnbench.conformance.operators.judge import judge_operator

CASES = [(operator, precision) for operator in OPERATORS for precision in operator.precisions]
NARROW_ON_CPU = ("embedding", "embedding with padding row", "advanced indexing")


def _narrow_gradients(precision: str) -> bool:
    """Whether this PyTorch still accumulates the gradient of an embedding in 16 bits on the CPU."""
    weight = torch.zeros(2, 1, dtype=STORAGE[precision], requires_grad=True)
    torch.nn.functional.embedding(torch.zeros(4096, dtype=torch.int64), weight).sum().backward()
    assert weight.grad is not None
    found = float(weight.grad[0, 0])
    assert found in (4096.0, saturated(precision))
    return found != 4096.0


@pytest.mark.parametrize(("operator", "precision"), CASES, ids=[f"{o.name} {p}" for o, p in CASES])
def test_only_known_deviations_fail(operator, precision) -> None:
    judged = judge_operator(
        operator,
        precision,
        HostImplementation(operator.function),
        Arithmetic(precision=precision),
        Plan(seeds=(0, 1, 2, 3, 4), shapes="one"),
    )
    failed = {(finding.direction, finding.input) for finding in judged.findings if finding.verdict != "pass"}
    if operator.name in NARROW_ON_CPU and _narrow_gradients(precision):
        assert ("backward", "one row every time") in failed
        assert {direction for direction, _ in failed} == {"backward"}
        few = judged.failures[:3]
        assert diagnose(few, hypotheses_of(operator.name)).name == "gradient accumulated in 16 bits"
    else:
        assert not failed
    assert judged.findings


def test_every_operator_has_one_shape_when_one_is_asked_for() -> None:
    for operator in OPERATORS:
        if operator.samples is None:
            continue
        plan = Plan(shapes="one")
        for precision in operator.precisions:
            samples = [*operator.samples(precision, plan), *(operator.exact(precision, plan) if operator.exact else ())]
            shapes = {tuple((tuple(tensor.shape), tensor.dtype) for tensor in sample.inputs) for sample in samples}
            assert len(shapes) == 1, operator.name


def test_out_of_range_conversions_are_told_and_never_failed() -> None:
    operator = next(one for one in OPERATORS if one.name == "conversion to integer")
    assert operator.statistics is not None
    for value in (0, 2**31 - 1, -(2**31)):
        implementation = HostImplementation(lambda x, value=value: (torch.full(x.shape, value), torch.full(x.shape, 0)))
        findings = list(operator.statistics(implementation, "fp32", Plan(), Arithmetic(precision="fp32")))
        assert [finding.verdict for finding in findings] == ["pass"]
        assert f"3e+09 -> {value}" in findings[0].where
