"""Probes of reductions, elementwise functions, casts and random numbers read what was planted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
import torch
from emulated import EmulatedSubject, running_sum
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from trnbench.conformance.passport import (
    casts,
    elementwise,
    functions,
    integers,
    normalisation,
    randomness,
    reductions,
    special_values,
)
from trnbench.conformance.passport.instrument import Reading
from trnbench.conformance.passport.subject import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable


def by_name(name: str) -> reductions.Reduction:
    return next(each for each in reductions.ROWWISE if each.name == name)


def verdict(reading: object) -> str:
    assert isinstance(reading, Reading)
    return reading.verdict


def test_narrow_reductions_are_named_by_their_constant() -> None:
    def softmax(ones: torch.Tensor, zeros: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        powers = zeros[:, :1024].exp()
        return powers / running_sum(powers)[..., None]

    planted = {
        by_name("sum").function: lambda ones, zeros, signs: running_sum(ones[:, :600]),
        by_name("softmax").function: softmax,
        reductions.index_add: lambda table, indices, source: running_sum(source[:600].t()),
    }
    found = reductions.accumulators(EmulatedSubject(planted), "bf16")
    narrow = {name for name, reading in found.items() if verdict(reading) == "8-bit accumulator"}
    assert {"sum", "softmax", "index_add"} <= narrow
    assert verdict(found["logsumexp"]) == "wide"
    assert verdict(found["linear weight gradient"]) == "wide"


def test_a_wrong_sum_that_no_width_explains() -> None:
    planted = {by_name("sum").function: lambda ones, zeros, signs: ones.sum(-1) * 0.9}
    found = reductions.accumulators(EmulatedSubject(planted), "fp16")
    assert verdict(found["sum"]) == "neither right nor a narrow sum's constant"


def test_one_reduction_that_fails_leaves_the_others() -> None:
    def absent(*inputs: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("no kernel for cumsum\nand a stack of lines")

    found = reductions.accumulators(EmulatedSubject({by_name("cumsum").function: absent}), "bf16")
    assert found["cumsum"] == Unknown("NotImplementedError: no kernel for cumsum")
    assert verdict(found["mean"]) == "wide"


def test_one_pass_variance() -> None:
    def one_pass(values: torch.Tensor) -> torch.Tensor:
        return (values.square().mean(-1) - values.mean(-1).square()).clamp(min=0.0)

    found = normalisation.algorithms(EmulatedSubject({normalisation.variance: one_pass}), "fp32")
    assert verdict(found["var"]) == "one-pass: cancels"
    assert verdict(found["layer_norm"]) == "from deviations"


def test_flushed_subnormals_are_named() -> None:
    planted = {elementwise.SUBNORMAL["abs"]: lambda tiny, least, one, logarithm: tiny * 0.0}
    found = elementwise.subnormals(EmulatedSubject(planted), "fp32")
    assert found.verdict == "flushes subnormals: abs"
    assert found.details["copy"] is True


def test_contraction_and_excess_precision() -> None:
    fused = {elementwise.multiply_add: lambda a, b, c: (a.double() * b.double() + c.double()).float()}
    assert elementwise.contraction(EmulatedSubject(fused), "fp32").verdict == "fused multiply-add"
    assert elementwise.contraction(EmulatedSubject(), "fp32").verdict == "multiplies, rounds, adds"
    planted = {
        elementwise.chain: lambda wide, one, start: start.float() + 2.0,
        elementwise.through_bf16: lambda wide, one, start: wide,
    }
    found = elementwise.excess_precision(EmulatedSubject(planted), "bf16")
    left_out = [name for name, reading in found.items() if verdict(reading) == "rounding left out"]
    assert left_out == ["bf16 chain", "float32 to bf16 and back"]


def test_share_of_correctly_rounded_divisions() -> None:
    def approximate(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left * (1.0 / right)

    planted = {elementwise.DIVISIONS["division"]: approximate}
    found = elementwise.correct_rounding(EmulatedSubject(planted), "fp32")
    reading = found["division"]
    assert isinstance(reading, Reading)
    wrong = int(reading.details["wrong"])
    assert 10_000 < wrong < 30_000
    assert reading.verdict == f"{100 * (1 - wrong / 65536):.1f} % correctly rounded"
    assert verdict(found["reciprocal"]) == "correctly rounded"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ulps_are_distances_of_neighbours(dtype: torch.dtype) -> None:
    facts = torch.finfo(dtype)
    values = torch.tensor([1.0, 1.5, 0.75, facts.tiny, facts.max, facts.tiny / 2], dtype=torch.float64)
    expected = [facts.eps, facts.eps, facts.eps / 2, facts.tiny * facts.eps]
    found = functions.ulp(values.numpy(), dtype)
    assert found[:4].tolist() == expected
    assert found[5] == facts.tiny * facts.eps
    nearest = torch.tensor(facts.max, dtype=dtype)
    assert (
        found[4] == float(nearest) - float(torch.nextafter(nearest.float(), torch.tensor(0.0))) or dtype.itemsize == 2
    )


def test_errors_of_functions_are_measured_in_ulps() -> None:
    exponential = functions.BY_NAME["exp"]
    inputs = functions.arguments("fp32")
    correct = torch.exp(inputs.double()).float()
    assert functions.errors(exponential, inputs, correct).largest == pytest.approx(0.5, abs=0.01)
    off = torch.nextafter(correct, torch.full_like(correct, math.inf))
    found = functions.errors(exponential, inputs, torch.where(inputs > 0, off, correct))
    assert 1.0 < (found.largest or 0.0) <= 1.5
    assert (found.worst_at or 0.0) > 0
    wrong = functions.errors(exponential, inputs, torch.where(inputs == inputs[7], torch.nan, correct))
    assert wrong.wrong_special == int((inputs == inputs[7]).sum())
    flushed = functions.errors(exponential, inputs, torch.where(correct < 2.0**-126, 0.0, correct))
    assert flushed.flushes
    assert flushed.largest == pytest.approx(0.5, abs=0.01)


def test_every_16_bit_value_is_tried() -> None:
    assert len(functions.arguments("bf16").view(torch.int16).unique()) == 65536
    binades = torch.frexp(functions.arguments("fp32").abs()).exponent.unique()
    assert set(range(-125, 129)) <= set(binades.tolist())


def test_special_values_that_deviate_are_named() -> None:
    maximum = next(case for case in special_values.CASES if case.name == "maximum(1, nan)")
    absent = next(case for case in special_values.CASES if case.name == "sort with nan")

    def refuses(values: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no sort")

    planted = {maximum.function: torch.fmax, absent.function: refuses, functional.gelu: lambda x: x}
    found = special_values.special_values(EmulatedSubject(planted), "fp32")
    assert found.verdict == "deviates: maximum(1, nan)"
    assert found.details["maximum(1, nan)"] == "1.0, 1.0"
    assert found.details["sort with nan"] == "RuntimeError: no sort"


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"])
@given(value=st.floats(-3e4, 3e4, width=32))
def test_the_rounding_model_agrees_with_ml_dtypes(name: str, value: float) -> None:
    target = casts.TARGETS[name]
    expected = float(np.float32(value).astype(casts.EIGHT_BIT[name]))
    if math.isfinite(expected) and abs(value) <= target.largest:
        assert casts.rounded_to(np.array([value]), target, "to nearest even")[0] == expected


E5M2 = casts.TARGETS["e5m2"]


def nearest(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).astype(ml_dtypes.float8_e5m2).astype(np.float64)


def flushing(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(nearest(values)) < 2.0**-14, 0.0, nearest(values))


def cut_off(values: np.ndarray) -> np.ndarray:
    """The upper of the 16 bits of fp16 is e5m2 with the rest cut off; exact where fp16 holds the value."""
    return (values.astype(np.float16).view(np.uint16) & np.uint16(0xFF00)).view(np.float16).astype(np.float64)


@pytest.mark.parametrize(
    ("planted", "model"),
    [
        (nearest, "to nearest even"),
        (flushing, "to nearest even, flushing subnormals"),
        (lambda values: nearest(values.astype(np.float16)), "to nearest even by way of fp16"),
        (
            lambda values: nearest(values.astype(ml_dtypes.bfloat16).astype(np.float32)),
            "to nearest even by way of bf16",
        ),
    ],
)
def test_cast_models_are_told_apart(planted: Callable[[np.ndarray], np.ndarray], model: str) -> None:
    values = casts.inputs_for(E5M2)
    inside = values[np.abs(values) <= E5M2.largest]
    assert casts.best_model(E5M2, inside, planted(inside)) == (model, 0)


def test_truncating_and_broken_casts() -> None:
    values = casts.all_codes(torch.float16)
    inside = values[np.abs(values) <= E5M2.largest]
    assert casts.best_model(E5M2, inside, cut_off(inside)) == ("toward zero", 0)
    broken = np.where(inside == 3.0, 4.0, nearest(inside))
    assert casts.best_model(E5M2, inside, broken) == ("to nearest even", 1)


def stochastic(generator: torch.Generator | None, bias: float = 0.0) -> object:
    def cast(values: torch.Tensor) -> torch.Tensor:
        step = 2.0**-7
        below = torch.floor(values / step) * step
        chance = (values - below) / step + bias
        return (below + step * (torch.rand(values.shape, generator=generator) < chance)).to(torch.bfloat16)

    return cast


def test_stochastic_rounding_is_recognised() -> None:
    fair = randomness.stochastic_rounding(EmulatedSubject({randomness.to_bf16: stochastic(None)}), "bf16")
    assert fair.verdict == "stochastic, unbiased, repeats after one seed"
    own = torch.Generator().manual_seed(3)
    free = randomness.stochastic_rounding(EmulatedSubject({randomness.to_bf16: stochastic(own)}), "bf16")
    assert free.verdict == "stochastic, unbiased, a seed does not repeat it"
    biased = randomness.stochastic_rounding(EmulatedSubject({randomness.to_bf16: stochastic(None, 0.05)}), "bf16")
    assert biased.verdict == "stochastic, biased, repeats after one seed"
    assert randomness.stochastic_rounding(EmulatedSubject(), "bf16").verdict == "deterministic"


@pytest.mark.parametrize(
    ("through", "words"),
    [
        (torch.float32, "float32: 24 bits"),
        (torch.int32, "int32: 32 bits"),
        (torch.float64, "float64: 53 bits"),
        (torch.int64, "64 bits"),
    ],
)
def test_width_of_int64(through: torch.dtype, words: str) -> None:
    narrow = EmulatedSubject({integers.plus_zero: lambda values, zero: values.to(through).to(torch.int64)})
    assert integers.int64_width(narrow, "fp32").verdict == words


def test_wrong_integer_operators_are_named() -> None:
    case = next(each for each in integers.cases() if each.name == "right shift")
    shift = case.function
    assert shift(torch.tensor([-5])).tolist() == [-3]
    # Every listing makes its functions anew, so the plant goes by the operator's own list.
    listing = integers.cases()
    wrong = [
        each
        if each.name != "right shift"
        else integers.IntegerCase(
            name=each.name, function=lambda x: -(-x >> 1), inputs=each.inputs, expected=each.expected
        )
        for each in listing
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integers, "cases", lambda: wrong)
        found = integers.integer_operators(EmulatedSubject(), "fp32")
    assert found.verdict == "wrong: right shift"
    assert found.details["right shift"] == "-2 instead of -3"
