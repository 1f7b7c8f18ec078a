"""SiLU, y = x sigmoid(x), and SwiGLU, silu(gate) * up (Shazeer, arXiv 2002.05202)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import silu

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import make
from trnbench.conformance.operators import activations_inputs as inputs_of
from trnbench.conformance.operators.activations_unary import LARGEST_FACTOR, gradient_of, unary_exact, unary_samples
from trnbench.conformance.operators.base import ExactSample, Gradient, Operator, Plan, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors

SATURATED = 32.0
"""Beyond it sigmoid is 1 in float32, as exp(-32) = 1.3e-14 is lost beside 1."""

OVERFLOW = 88.0
"""Below minus this, exp(-x) nears float32's largest number, e^88.72."""


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """The product as models write it, in two operators."""
    return silu(gate) * up


def silu_oracle(x: Tensor) -> Tensor:
    """x sigmoid(x) in float64."""
    return x.double() * torch.sigmoid(x.double())


def silu_slope(x: Tensor) -> Tensor:
    """sigmoid(x) (1 + x sigmoid(-x)) in float64."""
    wide = x.double()
    return torch.sigmoid(wide) * (1.0 + wide * torch.sigmoid(-wide))


def _sigmoid_error(wide: Tensor, arithmetic: Arithmetic) -> Tensor:
    """e_sigmoid + 2 u_a |x| sigmoid(-x), relative; beyond 32 only what the passport measured.

    1 / (1 + exp(-x)): an exponential evaluated as a power of two rounds its argument, which moves it by |x| u_a, and
    sigmoid(-x) is the condition of sigmoid with regard to exp(-x).
    """
    error = arithmetic.function("sigmoid") + 2.0 * arithmetic.accumulator_unit * wide.abs() * torch.sigmoid(-wide)
    beyond = torch.as_tensor(arithmetic.function_error.get("sigmoid", 0.0), dtype=torch.float64)
    return torch.where(wide < SATURATED, error, beyond)


def _underflow(wide: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Absolute error of sigmoid left of -88, where exp(-x) overflows float32 though 1 / (1 + exp(-x)) would not.

    Zero is then returned for at most e^-88 = 2^-127, which counts as underflow of the documented formula.
    """
    least = torch.as_tensor(torch.finfo(torch.float32).tiny, dtype=torch.float64)
    return torch.where(wide < -OVERFLOW, least, 0.0) + arithmetic.smallest


def silu_error(x: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Error of SiLU in float32 before it is rounded to the output: |y| (e_s + 2 u_a) + |x| (underflow of sigmoid)."""
    wide = x.double()
    # Beyond saturation sigmoid is 1 and its product with x exact.
    unit = torch.where(wide < SATURATED, 2.0 * arithmetic.accumulator_unit, 0.0)
    lost = torch.where(wide < SATURATED, wide.abs() * _underflow(wide, arithmetic), 0.0)
    return silu_oracle(x).abs() * (_sigmoid_error(wide, arithmetic) + unit) + lost


def silu_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """u_o |y| + (1 + u_o) |y| (e_s + 2 u_a) + s, with the relative error e_s of sigmoid by `_sigmoid_error`.

    Unlike GELU's, SiLU's formula does not cancel: 1 + exp(-x) is a sum of positive numbers, so the error is relative
    to y on both sides. Computed as (1 + tanh(x / 2)) / 2 it would be lost on the left, and is not allowed.
    """
    exact = silu_oracle(inputs[0]).abs()
    unit = arithmetic.output_unit
    return (unit * exact + (1.0 + unit) * silu_error(inputs[0], arithmetic) + arithmetic.smallest,)


def silu_slope_error(x: Tensor, arithmetic: Arithmetic) -> Tensor:
    """s (1 + |x| (1 - s)) (e_s + 3 u_a) + s |x| (s e_s + 2 u_a (1 - s)) + 2 u_a |g| + (1 + |x|) (underflow).

    s = sigmoid(x), h = 1 + x (1 - s), g = s h. An error e_s of s passes to the factor s, and through 1 - s, where it is
    s e_s absolutely, to h; 1 - s, its product with x and the sum round once each. Written as s + y (1 - s) the error of
    s meets both summands, hence the magnitude of h rather than h, which is zero at x = -1.28. Beyond 32, s = 1 and
    g = 1 without error.
    """
    wide = x.double()
    unit = arithmetic.accumulator_unit
    small = wide.clamp(max=SATURATED)
    error, sigmoid = _sigmoid_error(wide, arithmetic), torch.sigmoid(wide)
    rest = torch.sigmoid(-small)
    size = small.abs()
    summed = sigmoid * (1.0 + size * rest) * (error + 3.0 * unit) + 2.0 * unit * silu_slope(x).abs()
    summed = summed + sigmoid * size * (sigmoid * error + 2.0 * unit * rest)
    summed = summed + (1.0 + size) * _underflow(wide, arithmetic)
    return torch.where(wide < SATURATED, summed, error)


def swiglu_samples(precision: str, plan: Plan) -> Iterator[Sample]:
    """Gates as SiLU's, against normal values; of the large ones only such as keep all products in range.

    Overflow of the product is right where it is exact, but in PyTorch's backward pass the incoming gradient times `up`
    is rounded on its own, and may overflow where the gradient does not.
    """
    largest = torch.finfo(STORAGE[precision]).max / 64.0
    for name, seed, values in inputs_of.named(precision, plan):
        gate = values.clamp(-largest, largest)
        up = make("gaussian", gate.shape, gate.dtype, seed, "up")
        yield Sample(
            input=name,
            shape=inputs_of.words(gate),
            inputs=(gate, up),
            cotangents=(inputs_of.cotangents(gate, seed),),
            seed=seed,
        )


def swiglu_oracle(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up in float64."""
    return silu_oracle(gate) * up.double()


def swiglu_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """2 u_o |y| + (1 + 3 u_o) |up| (d + s) + s, with d the error of SiLU in float32.

    Two operators, so two roundings to the output format: silu(gate) first (u_o), then the product (u_o). A fused
    kernel has one of them. The second-order term u_o^2 |y| lies within 3 u_o times the rest or is added.
    """
    gate, up = inputs
    unit = arithmetic.output_unit
    exact = swiglu_oracle(gate, up).abs()
    computed = up.double().abs() * (silu_error(gate, arithmetic) + arithmetic.smallest)
    return ((2.0 * unit + unit * unit) * exact + (1.0 + 3.0 * unit) * computed + arithmetic.smallest,)


def swiglu_gradients(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """c up silu'(gate) and c silu(gate) in float64."""
    gate, up = inputs
    incoming = cotangents[0].double()
    return incoming * up.double() * silu_slope(gate), incoming * silu_oracle(gate)


def swiglu_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """Each gradient is a product with one factor that was rounded to the output format before: 2 u_o, as forward.

    For the gate, c up is rounded (u_o, and s by underflow, which the slope multiplies), and the slope is off by
    `silu_slope_error`; for `up`, c times the rounded silu(gate).
    """
    gate, up = inputs
    unit, least = arithmetic.output_unit, arithmetic.smallest
    incoming = cotangents[0].double().abs()
    twice = 2.0 * unit + unit * unit
    to_gate, to_up = swiglu_gradients(inputs, cotangents)
    slope = silu_slope(gate).abs()
    slope_error = silu_slope_error(gate, arithmetic) + least
    product = incoming * up.double().abs()
    underflow = least * (1.0 + gate.double().abs().clamp(max=LARGEST_FACTOR))
    first = twice * to_gate.abs() + (1.0 + 3.0 * unit) * ((product + least) * slope_error + least * slope) + underflow
    second = twice * to_up.abs() + (1.0 + 3.0 * unit) * incoming * (silu_error(gate, arithmetic) + least) + least
    return first, second


def swiglu_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """Gates so large that silu(gate) is the gate: the product is exact. And special values."""
    for gates, ups, name in ((64.0, 0.5, "saturated gates"), (torch.inf, 2.0, "infinity"), (torch.nan, 1.0, "NaN")):
        for gate in inputs_of.filled(gates, precision, plan):
            up = torch.full_like(gate, ups)
            expected = torch.full_like(gate, gates * ups)
            # sigmoid(1/2) * 64 / 2 is what exchanging the two arguments gives; its rounding is the format's own.
            swapped = (64.0 * silu_oracle(up)).to(gate.dtype)
            yield ExactSample(
                input=name,
                shape=inputs_of.words(gate),
                inputs=(gate, up),
                expected=(expected,),
                signatures={"gate and up swapped": (swapped,)} if name == "saturated gates" else {},
                special=name != "saturated gates",
            )


def _by_exponential(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide / (1.0 + torch.exp(-wide))).to(x.dtype)


def _by_sigmoid(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.sigmoid(wide)).to(x.dtype)


def _fused(gate: Tensor, up: Tensor) -> Tensor:
    wide = gate.float()
    return (wide * torch.sigmoid(wide) * up.float()).to(gate.dtype)


def _unfused(gate: Tensor, up: Tensor) -> Tensor:
    return _by_exponential(gate) * up


OPERATORS: list[Operator] = [
    Operator(
        name="SiLU",
        family="activations",
        function=silu,
        samples=unary_samples,
        oracle=silu_oracle,
        bound=silu_bound,
        gradient=gradient_of(silu_slope, silu_slope_error),
        exact=unary_exact,
        permitted={"quotient": _by_exponential, "product with sigmoid": _by_sigmoid},
    ),
    Operator(
        name="SwiGLU",
        family="activations",
        function=swiglu,
        samples=swiglu_samples,
        oracle=swiglu_oracle,
        bound=swiglu_bound,
        gradient=Gradient(wrt=(0, 1), oracle=swiglu_gradients, bound=swiglu_gradient_bound),
        exact=swiglu_exact,
        permitted={"fused": _fused, "two operators": _unfused},
    ),
]
