"""RMSNorm in both orders that are in use, and LayerNorm, over the last axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.operators.base import ExactSample, Gradient, Operator, Plan, Sample
from trnbench.conformance.operators.normalisation_inputs import (
    ROWS,
    Shapes,
    affine,
    make,
    words,
)
from trnbench.conformance.operators.normalisation_norm_bounds import (
    LAYER_EPS,
    RMS_EPS,
    layer_norm_bound,
    layer_norm_gradient_bound,
    rms_norm_bound,
    rms_norm_gradient_bound,
)
from trnbench.conformance.operators.normalisation_norms_permitted import LAYER_NORM, LLAMA_RMS_NORM, RMS_NORM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from trnbench.conformance.implementation import Tensors

SHAPES = Shapes(
    main=(264, 512),
    further=((4, 4096), (9, 1031)),
    many=((1, 8), (3, 5, 64), (130, 127), (2, 32771)),
)
"""Of the main shape, 264 rows: a weight gradient in bfloat16 stops at 256, and 264 is a number that it has."""


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, RMS_EPS)


def llama_rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Llama's order in Hugging Face transformers: the normalised value is rounded to x's dtype before the weight."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + RMS_EPS)
    return weight * (wide * scale).to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, (x.shape[-1],), weight, bias, LAYER_EPS)


def _samples(biased: bool) -> Callable[[str, Plan], Iterator[Sample]]:
    def samples(precision: str, plan: Plan) -> Iterator[Sample]:
        dtype = STORAGE[precision]
        for shape, seed, name in SHAPES.tried(plan, ROWS):
            inputs: Tensors = (make(name, shape, dtype, seed), affine(shape[-1], dtype, seed, "weight", 1.0))
            if biased:
                inputs += (affine(shape[-1], dtype, seed, "bias", 0.0),)
            cotangent = make("gaussian", shape, dtype, seed, f"{name} cotangent")
            yield Sample(input=name, shape=words(shape), inputs=inputs, cotangents=(cotangent,), seed=seed)

    return samples


def _rms_oracle(x: Tensor, weight: Tensor) -> Tensor:
    values = x.double()
    return values * (values.square().mean(-1, keepdim=True) + RMS_EPS).rsqrt() * weight.double()


def _layer_oracle(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    normalised, _ = _standardised(x)
    return normalised * weight.double() + bias.double()


def _standardised(x: Tensor) -> tuple[Tensor, Tensor]:
    values = x.double()
    centred = values - values.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + LAYER_EPS).rsqrt()
    return centred * scale, scale


def _rms_gradient(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """dx = r (a - h mean(a h)) with h = x r and a = g w; dw = sum over rows of g h."""
    x, weight = (tensor.double() for tensor in inputs)
    g = cotangents[0].double()
    scale = (x.square().mean(-1, keepdim=True) + RMS_EPS).rsqrt()
    normalised, a = x * scale, g * weight
    dx = scale * (a - normalised * (a * normalised).mean(-1, keepdim=True))
    return dx, _over_rows(g * normalised)


def _layer_gradient(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """dx = r (a - mean(a) - h mean(a h)) with h = (x - mu) r; dw = sum over rows of g h, db = sum over rows of g."""
    normalised, scale = _standardised(inputs[0])
    g = cotangents[0].double()
    a = g * inputs[1].double()
    dx = scale * (a - a.mean(-1, keepdim=True) - normalised * (a * normalised).mean(-1, keepdim=True))
    return dx, _over_rows(g * normalised), _over_rows(g)


def _over_rows(values: Tensor) -> Tensor:
    return values.reshape(-1, values.shape[-1]).sum(0)


def _signs(dtype: torch.dtype) -> Tensor:
    """Rows of 1 and -1 in turn: mean 0, mean square 1, whatever the order of summation."""
    x = torch.ones(SHAPES.main, dtype=dtype)
    x[:, ::2] = -1.0
    return x


def _rms_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """Rows of plus or minus one number: the result is its sign, after rounding to 16 bits, which hide epsilon.

    Sums of 512 ones stop at 256 in bfloat16, which makes sqrt(2) of 1. With cotangents of 1 the weight's gradient is
    the number of rows, 264, and 256 if that sum stops. Zeros stay zeros of their sign.
    """
    dtype = STORAGE[precision]
    ones, signs = torch.ones(SHAPES.main, dtype=dtype), _signs(dtype)
    weight = torch.ones(SHAPES.main[-1], dtype=dtype)
    shape = words(SHAPES.main)
    stopped = math.sqrt(SHAPES.main[-1] / 2.0**8)
    if precision != "fp32":
        yield ExactSample(
            input="all one",
            shape=shape,
            inputs=(ones, weight),
            expected=(ones,),
            signatures={"bf16 accumulator": (ones * stopped,)},
        )
        yield ExactSample(
            input="7600 of both signs",
            shape=shape,
            inputs=(signs * 7600.0, weight),
            expected=(signs,),
            signatures={"sum of squares overflowed in fp16": (signs * 0.0,)},
        )
    yield ExactSample(
        input="zeros of both signs", shape=shape, inputs=(signs * 0.0, weight), expected=(signs * 0.0,), special=True
    )
    infinite, undefined = ones.clone(), ones.clone()
    infinite[:, 5], undefined[:, 5] = math.inf, math.nan
    # The mean is inf, its reciprocal root 0: 0 for each finite value, inf * 0 = NaN for the infinite one.
    at_infinity = torch.zeros_like(ones)
    at_infinity[:, 5] = math.nan
    for name, x, expected in (
        ("one value +inf", infinite, at_infinity),
        ("one value NaN", undefined, torch.full_like(ones, math.nan)),
    ):
        yield ExactSample(input=name, shape=shape, inputs=(x, weight), expected=(expected,), special=True)


def _layer_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """Constant rows give the bias; rows of 1 and -1 themselves, after rounding to 16 bits; the bias' gradient counts.

    All sums are of ones or of cotangents of 1 and exact in every order. With constant rows the normalised value is 0,
    so the gradients are 0 for the weight, 264 (the rows) for the bias, and r (1 - mean(1) - 0) = 0 for the input.
    """
    dtype = STORAGE[precision]
    ones, signs = torch.ones(SHAPES.main, dtype=dtype), _signs(dtype)
    weight = torch.ones(SHAPES.main[-1], dtype=dtype)
    bias = torch.full_like(weight, 0.5)
    zero = torch.zeros_like(weight)
    rows = float(SHAPES.main[0])
    shape = words(SHAPES.main)
    yield ExactSample(
        input="all one",
        shape=shape,
        inputs=(ones, weight, bias),
        expected=(ones * 0.5,),
        cotangents=(ones,),
        gradients=(torch.zeros_like(ones), zero, torch.full_like(weight, rows)),
        signatures={
            "weight gradient accumulated in bf16": (torch.zeros_like(ones), zero, torch.full_like(weight, 2.0**8))
        },
    )
    if precision != "fp32":
        stopped = math.sqrt(SHAPES.main[-1] / 2.0**8)
        for name, size in (("1 and -1 in turn", 1.0), ("7600 of both signs", 7600.0)):
            yield ExactSample(
                input=name,
                shape=shape,
                inputs=(signs * size, weight, zero),
                expected=(signs,),
                signatures={
                    "bf16 accumulator": (signs * stopped,),
                    "sum of squares overflowed in fp16": (signs * 0.0,),
                },
            )
    for name, value in (("one value +inf", math.inf), ("one value NaN", math.nan)):
        x = ones.clone()
        x[:, 5] = value
        # The mean is not finite, so inf - inf or NaN reaches the variance and every element.
        expected = torch.full_like(ones, math.nan)
        yield ExactSample(input=name, shape=shape, inputs=(x, weight, bias), expected=(expected,), special=True)


OPERATORS: list[Operator] = [
    Operator(
        name="RMSNorm",
        family="normalisation",
        function=rms_norm,
        samples=_samples(biased=False),
        oracle=_rms_oracle,
        bound=rms_norm_bound(roundings=1),
        gradient=Gradient(wrt=(0, 1), oracle=_rms_gradient, bound=rms_norm_gradient_bound(roundings=1)),
        exact=_rms_exact,
        permitted=RMS_NORM,
    ),
    Operator(
        name="RMSNorm in Llama's order",
        family="normalisation",
        function=llama_rms_norm,
        samples=_samples(biased=False),
        oracle=_rms_oracle,
        bound=rms_norm_bound(roundings=2),
        gradient=Gradient(wrt=(0, 1), oracle=_rms_gradient, bound=rms_norm_gradient_bound(roundings=2)),
        exact=_rms_exact,
        permitted=LLAMA_RMS_NORM,
    ),
    Operator(
        name="LayerNorm",
        family="normalisation",
        function=layer_norm,
        samples=_samples(biased=True),
        oracle=_layer_oracle,
        bound=layer_norm_bound,
        gradient=Gradient(wrt=(0, 1, 2), oracle=_layer_gradient, bound=layer_norm_gradient_bound),
        exact=_layer_exact,
        permitted=LAYER_NORM,
    ),
]
