"""PyTorch on the CPU passes every check but for the deviations that are known, and those are found and named."""

from __future__ import annotations

import pytest

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.diagnosis.normalisation import HYPOTHESES
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.judge import judge_operator
from trnbench.conformance.operators.normalisation import OPERATORS
from trnbench.conformance.operators.registry import operator

RIGHT = ("softmax", "RMSNorm", "RMSNorm in Llama's order")
"""Operators without a known deviation on the CPU in any precision."""

KNOWN = {
    "log-softmax": "log-sum rounded to {}",
    "logsumexp": "every step rounded to {}",
    "cross-entropy": "log-sum rounded to {}",
    "LayerNorm": "saved mean and rsqrt rounded to {0}, weight gradient accumulated in {0}",
}
"""What each of the others does in 16 bits."""

LOGARITHMS = ("log-softmax", "logsumexp", "cross-entropy")
FORWARD_IS_RIGHT = ("LayerNorm",)


FIVE_SEEDS = Plan(seeds=(1, 2, 3, 4, 5), shapes="one", inputs=("gaussian", "huge", "offset 1000"))


def failures(name: str, precision: str, plan: Plan) -> list[str]:
    one = operator(name)
    judged = judge_operator(one, precision, HostImplementation(one.function), Arithmetic(precision=precision), plan)
    return [f"{x.direction} {x.tier} {x.input}: {x.where}" for x in judged.findings if x.verdict != "pass"]


def test_every_operator_is_either_right_or_has_its_known_deviation() -> None:
    assert {one.name for one in OPERATORS} == {*RIGHT, *KNOWN}


@pytest.mark.parametrize("name", [one.name for one in OPERATORS])
def test_float32_passes_for_five_seeds(name: str) -> None:
    assert failures(name, "fp32", FIVE_SEEDS) == []


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", RIGHT)
def test_16_bits_pass_for_five_seeds(name: str, precision: str) -> None:
    assert failures(name, precision, FIVE_SEEDS) == []


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", KNOWN)
def test_the_known_deviations_of_16_bits_are_found_and_named(name: str, precision: str) -> None:
    one = operator(name)
    plan = Plan(shapes="one", inputs=("gaussian", "confident" if name in LOGARITHMS else "offset 1000"))
    judged = judge_operator(one, precision, HostImplementation(one.function), Arithmetic(precision=precision), plan)
    assert diagnose(judged.failures, HYPOTHESES[name]).name == KNOWN[name].format(precision)
    if name in FORWARD_IS_RIGHT:
        assert {failure.direction for failure in judged.failures} == {"backward"}
