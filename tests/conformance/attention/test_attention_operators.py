"""Attention on the CPU: what PyTorch does right passes, and its two known faults are found and named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.diagnosis.attention import HYPOTHESES, UNNORMALISED
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.operators import rope
from trnbench.conformance.operators.attention import OPERATORS
from trnbench.conformance.operators.attention_exact import NARROW_GRADIENT
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.compare import largest_ratio
from trnbench.conformance.operators.judge import judge_operator

if TYPE_CHECKING:
    from torch import Tensor

    from trnbench.conformance.operators.base import Operator

BY_NAME = {operator.name: operator for operator in OPERATORS}
CASES = [(operator.name, precision) for operator in OPERATORS for precision in operator.precisions]
ADDITIVE = "attention, masked rows, additive"


def arithmetic_here(precision: str) -> Arithmetic:
    """IEEE but for subnormal operands of 16-bit products, which some CPUs flush."""
    arithmetic = Arithmetic(precision=precision)
    small = torch.full((64, 64), float(torch.finfo(arithmetic.dtype).tiny) / 4).to(arithmetic.dtype)
    kept = bool((small @ torch.eye(64, dtype=arithmetic.dtype) == small).all())
    return Arithmetic(precision=precision, flushes_subnormals=not kept)


@pytest.mark.parametrize(("name", "precision"), CASES)
def test_cpu_is_right_forward_for_five_seeds_and_backward_but_for_known_faults(name: str, precision: str) -> None:
    operator = BY_NAME[name]
    plan = Plan(seeds=(0, 1, 2, 3, 4), shapes="one", inputs=("gaussian", "huge logits"))
    judged = judge_operator(
        operator, precision, HostImplementation(operator.function), arithmetic_here(precision), plan
    )
    assert len(judged.findings) > 5
    failing = {finding.direction for finding in judged.findings if finding.verdict != "pass"}
    narrow = precision in ("bf16", "fp16") and operator.gradient is not None and not name.startswith("RoPE")
    unnormalised = name == ADDITIVE and precision != "fp16"
    assert failing == ({"backward"} if narrow or unnormalised else set())


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_gradients_that_the_cpu_adds_up_in_16_bits_are_named(precision: str) -> None:
    operator = BY_NAME["attention"]
    plan = Plan(shapes="one", inputs=("gaussian",))
    judged = judge_operator(
        operator, precision, HostImplementation(operator.function), arithmetic_here(precision), plan
    )
    assert diagnose(judged.failures, HYPOTHESES["attention"]).name == NARROW_GRADIENT


def test_gradients_of_rows_masked_by_the_least_number_are_named() -> None:
    operator = BY_NAME[ADDITIVE]
    plan = Plan(shapes="one", inputs=("gaussian", "positive"))
    judged = judge_operator(operator, "fp32", HostImplementation(operator.function), Arithmetic(precision="fp32"), plan)
    assert judged.failures
    assert diagnose(judged.failures, HYPOTHESES[ADDITIVE]).name == UNNORMALISED


@pytest.mark.parametrize("name", ["attention, masked rows", ADDITIVE])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_fully_masked_rows_have_a_finite_answer(name: str, precision: str) -> None:
    operator = BY_NAME[name]
    assert operator.samples is not None
    assert operator.oracle is not None
    sample = next(iter(operator.samples(precision, Plan(shapes="one"))))
    mask = sample.inputs[3]
    seen = mask if mask.dtype == torch.bool else mask == 0
    empty = ~seen.any(-1)[:, 0]
    assert bool(empty.any())
    assert bool(torch.isfinite(operator.oracle(*sample.inputs)).all())
    # Field case C3: float32's minimum in bfloat16 is -inf, and such rows become NaN.
    assert bool(torch.isfinite(mask.float()).all())


def c6(positions: int, precision: str) -> tuple[Operator, float | None, bool]:
    operator = BY_NAME["RoPE"]
    sample = rope.position_sample("gaussian", positions, "gaussian", precision, 0)
    assert operator.oracle is not None
    assert operator.bound is not None
    x, places, frequencies = sample.inputs
    narrow: Tensor = rope.rotated(x, places.bfloat16().to(torch.int64), frequencies)
    worst = largest_ratio(
        (narrow,), (operator.oracle(*sample.inputs),), operator.bound(sample.inputs, Arithmetic(precision=precision))
    )
    return operator, worst.ratio, worst.passes


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bf16_positions_pass_at_128_and_fail_at_1024(precision: str) -> None:
    """Field case C6."""
    assert c6(128, precision)[2]
    assert not c6(1024, precision)[2]


def test_some_default_input_goes_beyond_the_positions_that_bf16_can_tell_apart() -> None:
    assert rope.POSITIONS["gaussian"][0] > 256
    assert max(context for context, _ in rope.POSITIONS.values()) == 131_072


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_rows_in_another_batch_stay_within_the_bound_and_repeat_exactly(precision: str) -> None:
    """Field case C8: other bits in another batch size are right, other bits for the same call are not."""
    operator = BY_NAME["attention"]
    assert operator.samples is not None
    assert operator.bound is not None
    sample = next(iter(operator.samples(precision, Plan(shapes="one"))))
    alone = operator.function(*sample.inputs)
    assert torch.equal(alone, operator.function(*sample.inputs))
    together = operator.function(*(torch.cat([tensor, tensor.flip(2)]) for tensor in sample.inputs))[:1]
    bound = operator.bound(sample.inputs, Arithmetic(precision=precision))[0]
    assert bool(((together.double() - alone.double()).abs() <= 2.0 * bound).all())
