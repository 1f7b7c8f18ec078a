"""What all activations of one argument share: samples, special values, and the shape of a derivative's bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.conformance.operators import activations_inputs as inputs_of
from trnbench.conformance.operators.base import ExactSample, Gradient, Plan, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors

LARGEST_FACTOR = 128.0
"""Beyond this |x| every derivative here is 0 or 1 in float32 (sigmoid(-104) is below the least subnormal number)."""


def unary_samples(precision: str, plan: Plan) -> Iterator[Sample]:
    """Every input of `activations_inputs.named`, forward and backward."""
    for name, seed, values in inputs_of.named(precision, plan):
        yield Sample(
            input=name,
            shape=inputs_of.words(values),
            inputs=(values,),
            cotangents=(inputs_of.cotangents(values, seed),),
            seed=seed,
        )


def unary_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """What the three activations share at special values: f(+inf) = +inf, NaN stays NaN, zeros keep sign, slope 1/2.

    Not asked: f(-inf), which is -inf * 0 by the definition and 0 by its limit, and derivatives at infinities. IEEE 754
    and PyTorch's documentation leave both open.
    """
    for name, value in (("infinity", torch.inf), ("NaN", torch.nan), ("positive zero", 0.0), ("negative zero", -0.0)):
        for values in inputs_of.filled(value, precision, plan):
            cotangents = torch.full_like(values, 2.0)
            yield ExactSample(
                input=name,
                shape=inputs_of.words(values),
                inputs=(values,),
                cotangents=None if name == "infinity" else (cotangents,),
                expected=(values,),
                gradients=None if name == "infinity" else (0.5 * cotangents + values,),
                signatures={"NaN for infinity": (torch.full_like(values, torch.nan),)} if name == "infinity" else {},
                special=True,
            )


def gradient_of(slope: Callable[[Tensor], Tensor], slope_error: Callable[[Tensor, Arithmetic], Tensor]) -> Gradient:
    """Gradient c g of an activation with derivative g: |error| <= u_o |c g| + (1 + u_o) |c| (dg + s) + s (1 + |x|).

    `slope_error` gives dg, with the rounding of the product with c. s is what an underflow costs: of g, of the result,
    and of c times one factor of g before the other, at most 1 + |x|, comes in.
    """

    def oracle(inputs: Tensors, cotangents: Tensors) -> Tensors:
        return (cotangents[0].double() * slope(inputs[0]),)

    def bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
        incoming = cotangents[0].double().abs()
        unit = arithmetic.output_unit
        computed = incoming * (slope_error(inputs[0], arithmetic) + arithmetic.smallest)
        underflow = arithmetic.smallest * (1.0 + inputs[0].double().abs().clamp(max=LARGEST_FACTOR))
        return (unit * incoming * slope(inputs[0]).abs() + (1.0 + unit) * computed + underflow,)

    return Gradient(wrt=(0,), oracle=oracle, bound=bound)
