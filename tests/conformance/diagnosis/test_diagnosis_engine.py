"""The engine chooses by evidence: constants, bits, residuals; and says "unexplained" rather than guess."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.diagnosis.base import Diagnosis, Hypothesis
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.implementation import HostImplementation, Tensors
from trnbench.conformance.inputs import make
from trnbench.conformance.operators.base import ExactSample, Gradient, Operator, Plan, Sample
from trnbench.conformance.operators.judge import judge_operator

INPUTS = ("gaussian", "positive", "wide range", "subnormal")


def samples(precision: str, plan: Plan) -> list[Sample]:
    return [
        Sample(input=name, shape="64", inputs=(make(name, (64,), torch.float32, 0),), cotangents=(torch.ones(64),))
        for name in INPUTS
    ]


def operator(exact: list[ExactSample] | None = None, precision: str = "fp32") -> Operator:
    """Three times its input, rounded once; enough to be wrong in many ways."""
    return Operator(
        name="triple",
        family="products",
        function=lambda x: 3.0 * x,
        samples=samples,
        oracle=lambda x: 3.0 * x.double(),
        bound=lambda inputs, arithmetic: (2.0**-24 * 3.0 * inputs[0].double().abs() + arithmetic.smallest,),
        gradient=Gradient(
            wrt=(0,),
            oracle=lambda inputs, cotangents: (3.0 * cotangents[0].double(),),
            bound=lambda inputs, cotangents, arithmetic: (2.0**-24 * 3.0 * cotangents[0].double().abs(),),
        ),
        exact=(lambda precision, plan: exact) if exact else None,
    )


def named(function: object, hypotheses: list[Hypothesis], exact: list[ExactSample] | None = None) -> Diagnosis:
    judged = judge_operator(operator(exact), "fp32", HostImplementation(function), Arithmetic(precision="fp32"), Plan())
    assert judged.failures
    return diagnose(judged.failures, hypotheses)


def scaled(name: str, factor: float) -> Hypothesis:
    return Hypothesis(
        name=name,
        emulate=lambda inputs, precision: (factor * inputs[0].double(),),
        gradient=lambda inputs, cotangents, precision: (factor * cotangents[0].double(),),
    )


def test_engine_takes_the_hypothesis_that_matches_every_bit() -> None:
    found = named(lambda x: 3.5 * x, [scaled("a quarter more", 3.25), scaled("half more", 3.5)])
    assert (found.name, found.evidence, found.strength) == ("half more", "bitwise match", 1.0)
    assert found.explained == found.failing == 2 * len(INPUTS)
    assert found.words == "half more (bitwise match)"


def test_engine_takes_a_residual_of_the_same_direction_and_length() -> None:
    noise = torch.linspace(-1e-3, 1e-3, 64)
    found = named(lambda x: 3.5 * x + noise * x.detach(), [scaled("half more", 3.5)])
    assert found.name == "half more"
    assert found.strength > 0.9


def test_engine_refuses_a_residual_of_another_length() -> None:
    found = named(lambda x: 3.5 * x, [scaled("a little more", 3.01), scaled("much more", 5.0)])
    assert found.name == "unexplained"
    # Half in three, so between two and three bits are right.
    assert found.effective_bits == pytest.approx(2.585, abs=0.01)
    assert found.words == "unexplained, 2.6 effective bits"


def test_engine_lets_the_first_of_two_equal_hypotheses_win() -> None:
    same = [scaled("simple", 3.5), scaled("elaborate", 3.5)]
    assert named(lambda x: 3.5 * x, same).name == "simple"
    assert named(lambda x: 3.5 * x, same[::-1]).name == "elaborate"


def test_engine_believes_an_exact_constant_before_bits() -> None:
    one = torch.ones(64)
    sample = ExactSample(
        input="ones",
        shape="64",
        inputs=(one,),
        expected=(3.0 * one,),
        signatures={"known fault": (4.0 * one,), "other fault": (5.0 * one,)},
    )

    def only_ones(x: Tensor) -> Tensor:
        return torch.where((x == 1.0).all(), 4.0 * x, 3.0 * x)

    found = named(only_ones, [scaled("a third more", 4.0)], [sample])
    assert (found.name, found.evidence) == ("known fault", "exact constant")


def test_engine_says_how_many_samples_a_name_explains() -> None:
    def two_faults(x: Tensor) -> Tensor:
        return torch.where((x > 0).all(), 5.0 * x, 3.5 * x)

    found = named(two_faults, [scaled("half more", 3.5), scaled("two more", 5.0)])
    assert found.name == "half more"
    assert (found.explained, found.failing) == (6, 8)
    assert found.words == "half more (bitwise match; 6 of 8 failing samples)"


def test_engine_is_not_taken_in_by_an_emulation_that_is_right_nearly_everywhere() -> None:
    """Both share the rounding of the other elements; only the wrong ones may count."""

    def one_element(x: Tensor) -> Tensor:
        wrong = 3.0 * x
        return torch.cat([1.5 * wrong[:1], wrong[1:]])

    def other_element(inputs: Tensors, precision: str) -> Tensors:
        wrong = 3.0 * inputs[0].double()
        return (torch.cat([wrong[:-1], 1.001 * wrong[-1:]]),)

    assert named(one_element, [Hypothesis(name="another element", emulate=other_element)]).name == "unexplained"


def test_engine_passes_over_hypotheses_that_do_not_apply() -> None:
    absent = Hypothesis(name="absent", emulate=lambda inputs, precision: None)
    empty = Hypothesis(name="empty")
    other = Hypothesis(name="other shape", emulate=lambda inputs, precision: (inputs[0][:1],))
    assert named(lambda x: 3.5 * x, [absent, empty, other, scaled("half more", 3.5)]).name == "half more"


def test_engine_compares_where_values_are_not_finite() -> None:
    def reciprocal(inputs: Tensors, precision: str) -> Tensors:
        return (torch.where(inputs[0].double() > 0.5, torch.nan, 3.0 * inputs[0].double()),)

    def holes(x: Tensor) -> Tensor:
        return torch.where(x > 0.5, torch.nan, 3.0 * x)

    found = named(holes, [Hypothesis(name="NaN above a half", emulate=reciprocal)])
    assert (found.name, found.evidence) == ("NaN above a half", "bitwise match")


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: 0.0 * x, "output all zero"),
        (lambda x: x * torch.nan, "output all NaN"),
        (lambda x: (3.0 * x).bfloat16().float(), "output rounded to bf16"),
        (lambda x: (3.0 * x)[:1], "outputs of another shape"),
        (lambda x: torch.where(x.abs() < torch.finfo(x.dtype).tiny, 0.0 * x, 3.0 * x), "subnormals flushed"),
        (lambda x: 3.0 * x.bfloat16().float(), "inputs rounded to bf16"),
    ],
)
def test_generic_faults_need_no_hypothesis_of_the_operator(function: object, name: str) -> None:
    judged = judge_operator(
        operator(),
        "fp32",
        HostImplementation(function, lambda inputs, cotangents: (3.0 * cotangents[0],)),
        Arithmetic(precision="fp32"),
        Plan(),
    )
    assert judged.failures
    assert diagnose(judged.failures, []).name == name


@pytest.mark.parametrize(
    ("wrong", "right", "name"),
    [
        (65504.0, torch.inf, "saturated where infinity is right"),
        (0.0, torch.nan, "NaN lost"),
        (0.0, -0.0, "sign of zero lost"),
        (torch.inf, 2.0, "infinity where a finite value is right"),
        (torch.nan, 2.0, "NaN where a number is right"),
    ],
)
def test_generic_outcomes_of_exact_samples(wrong: float, right: float, name: str) -> None:
    start = torch.tensor([1.0, 2.0], dtype=torch.float16)
    sample = ExactSample(
        input="one value", shape="2", inputs=(start,), expected=(torch.tensor([3.0, right], dtype=torch.float16),)
    )
    output = torch.tensor([3.0, wrong], dtype=torch.float16)
    one = Operator(name="triple", family="products", function=None, exact=lambda precision, plan: [sample])
    judged = judge_operator(one, "fp16", HostImplementation(lambda x: output), Arithmetic(precision="fp16"), Plan())
    assert diagnose(judged.failures, []).name == name


def test_engine_needs_a_failure() -> None:
    with pytest.raises(ValueError, match="no failure"):
        diagnose([], [])
