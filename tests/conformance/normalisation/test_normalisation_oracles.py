"""Oracles and exact answers against independent calculations: decimals of 60 digits, and autograd in float64."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.implementation import as_tuple, gradients
from trnbench.conformance.operators.base import Operator, Plan
from trnbench.conformance.operators.normalisation import OPERATORS
from trnbench.conformance.operators.normalisation_inputs import LOGITS, ROWS, make
from trnbench.conformance.operators.normalisation_norm_bounds import root_mean_square, standardised
from trnbench.conformance.operators.normalisation_softmax_bounds import row
from trnbench.conformance.operators.registry import operator

logits = st.lists(st.floats(-200, 200, width=16), min_size=1, max_size=9)


def digits(values: list[float]) -> tuple[Decimal, list[Decimal]]:
    """Logarithm of the sum of exponentials, and log-probabilities, to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        exact = [Decimal(value) for value in values]
        lse = sum((value.exp() for value in exact), Decimal(0)).ln()
        return lse, [value - lse for value in exact]


@given(logits)
@settings(deadline=None, max_examples=40)
def test_logarithms_agree_with_60_digits(values: list[float]) -> None:
    lse, log_probabilities = digits(values)
    one, summed = operator("log-softmax"), operator("logsumexp")
    assert one.oracle is not None
    assert one.bound is not None
    assert summed.oracle is not None
    x = torch.tensor([values], dtype=torch.float32)
    arithmetic = Arithmetic(precision="fp32")
    found = one.oracle(x)[0]
    bound = one.bound((x,), arithmetic)[0][0]
    for place, exact in enumerate(log_probabilities):
        # The oracle must be far more accurate than what it judges.
        assert abs(Decimal(float(found[place])) - exact) <= Decimal("1e-4") * Decimal(float(bound[place]))
    assert float(summed.oracle(x)) == pytest.approx(float(lse), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("one", OPERATORS, ids=lambda one: one.name)
def test_gradient_oracles_agree_with_autograd_in_float64(one: Operator) -> None:
    assert one.samples is not None
    assert one.gradient is not None
    for sample in one.samples("fp32", Plan(shapes="several", inputs=("gaussian", "offset 1000", "one-hot", "tiny"))):
        assert sample.cotangents is not None
        wide = tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in sample.inputs)
        assert one.oracle is not None
        cotangents = tuple(tensor.double() for tensor in sample.cotangents)
        expected = gradients(one.oracle, wide, cotangents, one.gradient.wrt)
        found = one.gradient.oracle(sample.inputs, sample.cotangents)
        for right, tensor in zip(expected, found, strict=True):
            # Both subtract from terms as large as the cotangents, whatever is left of them.
            scale = max(float(right.abs().max()), float(cotangents[0].abs().max()))
            assert float((tensor - right).abs().max()) <= 1e-9 * scale, (sample.input, sample.shape)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("one", OPERATORS, ids=lambda one: one.name)
def test_exact_samples_agree_with_float64(one: Operator, precision: str) -> None:
    """Of finite samples the oracle must round to the very answer, and no signature may be that answer."""
    assert one.exact is not None
    assert one.oracle is not None
    assert one.gradient is not None
    for sample in one.exact(precision, Plan()):
        answers = as_tuple(one.oracle(*sample.inputs))
        for answer, expected in zip(answers, sample.expected, strict=True):
            same = (answer.to(expected.dtype) == expected) | (answer.isnan() & expected.isnan())
            assert bool(same.all()), sample.input
        if sample.gradients is not None and sample.cotangents is not None:
            found = one.gradient.oracle(sample.inputs, sample.cotangents)
            for gradient, expected in zip(found, sample.gradients, strict=True):
                assert float((gradient - expected.double()).abs().max()) <= 1e-12, sample.input
        for name, signature in sample.signatures.items():
            right = (sample.expected, sample.gradients)
            assert not any(other is not None and all(map(torch.equal, signature, other)) for other in right), (
                f"{sample.input}: {name}"
            )


@pytest.mark.parametrize("name", [*LOGITS, *ROWS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_inputs_are_finite_and_the_same_for_a_seed(name: str, dtype: torch.dtype) -> None:
    some, same, other = (make(name, (3, 40), dtype, seed) for seed in (1, 1, 2))
    assert bool(torch.isfinite(some).all())
    assert torch.equal(some, same)
    assert name == "all equal" or not torch.equal(some, other)


def test_confident_rows_have_a_log_probability_near_a_thousandth() -> None:
    largest = make("confident", (4, 4096), torch.float32, 0).double().log_softmax(-1).amax(-1)
    assert largest.tolist() == pytest.approx([-math.log1p(1e-3)] * 4, rel=1e-4)


@given(st.integers(0, 1000), st.sampled_from(["gaussian", "offset 1000", "tiny", "wide range", "huge"]))
@settings(deadline=None, max_examples=30)
def test_float32_intermediates_lie_within_their_own_bounds(seed: int, name: str) -> None:
    """The parts that bounds are made of hold for sums in the worst order there is, one term after the other."""
    x = make(name, (2, 300), torch.float32, seed)
    arithmetic = Arithmetic(precision="fp32")
    known = row(x, arithmetic)
    terms = torch.exp(x - x.amax(-1, keepdim=True))
    total = terms.cumsum(-1)[..., -1:].double()
    exact = known.log_sum.exp()
    assert bool(((total - exact).abs() <= exact * known.sum_error).all())
    scaled = root_mean_square(x, arithmetic)
    mean_square = (x * x).cumsum(-1)[..., -1:] / 300
    found = (x * torch.rsqrt(mean_square + 1e-6)).double()
    assert bool(((found - scaled.normalised).abs() <= scaled.error).all())
    layer = standardised(x, arithmetic)
    centred = x - x.cumsum(-1)[..., -1:] / 300
    variance = (centred * centred).cumsum(-1)[..., -1:] / 300
    found = (centred * torch.rsqrt(variance + 1e-5)).double()
    assert bool(((found - layer.normalised).abs() <= layer.error).all())
