"""How far RMSNorm and LayerNorm, forward and backward, may lie from their exact values, element by element.

Rows of n features lie along the last axis; u is the unit roundoff of float32 (of the accumulator, if coarser), c =
`growth(n)` the relative error of a sum of n terms, u_o the rounding to the output dtype, E the error allowed to rsqrt.

RMSNorm: r = (mean(x^2) + eps)^(-1/2), y = x r w. The sum of squares is relatively off by c, the division and the
addition of eps by 3 u, so r by rho = (1 - c - 3 u)^(-1/2) - 1 + E.

LayerNorm: d = x - mu, v = mean(d^2), r = (v + eps)^(-1/2), y = d r w + b. mu is off by D = c mean|x| + 2 u |mu|; then
v, about a mean that is off, by c sqrt(v (v + mu^2)) + 3 u v + D^2. The root stands for Welford's and other updating
forms, whose error grows with the condition number k = sqrt(1 + mu^2 / v) (Chan, Golub and LeVeque, "Algorithms for
computing the sample variance", The American Statistician 37(3), 1983, table 1: n k u, against n u + n^2 k^2 u^2 for two
passes); the difference mean(x^2) - mu^2 has n k^2 u, which is not permitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.operators.normalisation_softmax_bounds import float32_underflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors

RMS_EPS = 1e-6
"""Llama's and PyTorch's usual value; inputs of deviation 1e-3 tell it from 1e-5."""

LAYER_EPS = 1e-5
"""PyTorch's default of layer_norm."""


class Scaled(msgspec.Struct, frozen=True, kw_only=True):
    """What both norms share, in float64: `normalised` = (x - centre) r, shaped as x, and its absolute error."""

    normalised: Tensor
    error: Tensor
    scale: Tensor
    """r, one a row."""

    scale_error: Tensor
    """Relative, one a row; infinite where the variance may be lost entirely."""


class Approximate(msgspec.Struct, frozen=True):
    """A quantity and its absolute error, element by element."""

    value: Tensor
    error: Tensor


def _flushed(x: Tensor, arithmetic: Arithmetic) -> Tensor:
    """|x| where a device may take it as zero, else 0."""
    magnitude = x.double().abs()
    if not arithmetic.flushes_subnormals:
        return torch.zeros_like(magnitude)
    return torch.where(magnitude < torch.finfo(arithmetic.dtype).tiny, magnitude, torch.zeros_like(magnitude))


def _root_error(relative: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Relative error of t^(-1/2) where t is relatively off by `relative`."""
    inside = (1.0 - relative).clamp(min=0.0)
    return inside.rsqrt() - 1.0 + arithmetic.function("rsqrt") * inside.rsqrt()


def root_mean_square(x: Tensor, arithmetic: Arithmetic) -> Scaled:
    """x r and its error |x| r (rho + u); inputs that may be flushed are wholly in error, and missing in the mean."""
    values = x.double()
    unit = arithmetic.accumulator_unit
    lost = _flushed(x, arithmetic)
    mean_square = values.square().mean(-1, keepdim=True) + RMS_EPS
    relative = arithmetic.growth(x.shape[-1]) + 3.0 * unit + lost.square().mean(-1, keepdim=True) / mean_square
    scale = mean_square.rsqrt()
    scale_error = _root_error(relative, arithmetic)
    normalised = values * scale
    error = normalised.abs() * (scale_error + unit) + lost * scale * (1.0 + scale_error)
    return Scaled(normalised=normalised, error=error, scale=scale, scale_error=scale_error)


def standardised(x: Tensor, arithmetic: Arithmetic) -> Scaled:
    """(x - mu) r and its error: r (D + u |d| + 2 u (|x| + |mu|)) + |d| r (rho + u).

    2 u (|x| + |mu|) permits x r - mu r, which rounds both products.
    """
    values = x.double()
    unit, growth = arithmetic.accumulator_unit, arithmetic.growth(x.shape[-1])
    lost = _flushed(x, arithmetic)
    mean = values.mean(-1, keepdim=True)
    d = values - mean
    variance = d.square().mean(-1, keepdim=True)
    mean_error = growth * values.abs().mean(-1, keepdim=True) + 2.0 * unit * mean.abs()
    mean_error += lost.mean(-1, keepdim=True) + 2.0 * float32_underflow(arithmetic)
    absolute = growth * (variance * (variance + mean.square())).sqrt() + 3.0 * unit * variance + mean_error.square()
    absolute += (2.0 * d.abs() * lost + lost.square()).mean(-1, keepdim=True)
    scale = (variance + LAYER_EPS).rsqrt()
    scale_error = _root_error(absolute / (variance + LAYER_EPS) + 2.0 * unit, arithmetic)
    offset = mean_error + unit * d.abs() + 2.0 * unit * (values.abs() + mean.abs()) + lost
    offset += float32_underflow(arithmetic)
    normalised = d * scale
    error = scale * offset * (1.0 + scale_error) + normalised.abs() * (scale_error + unit)
    return Scaled(normalised=normalised, error=error, scale=scale, scale_error=scale_error)


def _result(exact: Tensor, error: Tensor, arithmetic: Arithmetic, roundings: int = 1) -> Tensor:
    """`error` in float32, enlarged by `roundings` to the output dtype: ((1 + u_o)^R - 1) (|y| + error) + smallest."""
    growth = (1.0 + arithmetic.output_unit) ** roundings - 1.0
    # Where two roundings are declared, the first result may underflow as well, and weights double it at most.
    return error + growth * (exact.abs() + error) + (2 * roundings - 1) * arithmetic.smallest


def rms_norm_bound(roundings: int) -> Callable[[Tensors, Arithmetic], Tensors]:
    """|y| (R u_o + rho + 3 u), R being how often the operator's definition rounds to the output dtype.

    1 where the weight is applied in float32, 2 in Llama's order, which rounds the normalised value before.
    """

    def bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
        x, weight = inputs
        known = root_mean_square(x, arithmetic)
        w = weight.double()
        exact = known.normalised * w
        error = known.error * w.abs() + 2.0 * arithmetic.accumulator_unit * exact.abs()
        return (_result(exact, error, arithmetic, roundings),)

    return bound


def layer_norm_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """|w| (error of d r) + 2 u |d r w| for the product, u (|b| + |y|) for the sum, one rounding of the result."""
    x, weight, bias = inputs
    known = standardised(x, arithmetic)
    w, b = weight.double(), bias.double()
    product = known.normalised * w
    exact = product + b
    unit = arithmetic.accumulator_unit
    error = known.error * w.abs() + 2.0 * unit * product.abs() + unit * (b.abs() + exact.abs())
    return (_result(exact, error + _flushed(bias, arithmetic), arithmetic),)


def rms_norm_gradient_bound(roundings: int) -> Callable[[Tensors, Tensors, Arithmetic], Tensors]:
    """dx = r (a - h q), dw = sum over rows of g h, with h = x r, a = g w, q = mean(a h).

    a is off by 2 u |a|, and by one more rounding to the dtype where the definition has two (its middle value has a
    gradient in that dtype); q by mean(|a| error(h)) + c mean|a h|; the difference by the errors of both sides and 3 u
    of them; r by rho. dw sums products that are off by |g| error(h) + u |g h|, again with two more roundings of each
    where the definition rounds twice, and growth(rows) for their sum.
    """

    def bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
        x, weight = inputs
        known = root_mean_square(x, arithmetic)
        g = cotangents[0].double()
        a = g * weight.double()
        a_error = (
            _first_rounding(a, arithmetic, roundings) + _flushed(cotangents[0], arithmetic) * weight.double().abs()
        )
        mean_error = _mean_error(a, a_error, known, arithmetic)
        mean = (a * known.normalised).mean(-1, keepdim=True)
        exact = known.scale * (a - known.normalised * mean)
        error = _input_gradient_error(exact, Approximate(a, a_error), Approximate(mean, mean_error), known, arithmetic)
        weight_gradient = (g * known.normalised).reshape(-1, x.shape[-1]).sum(0)
        again = 2.0 * (roundings - 1) * arithmetic.output_unit
        return (
            _result(exact, error, arithmetic),
            _result(weight_gradient, _weight_gradient_error(cotangents[0], known, arithmetic, again), arithmetic),
        )

    return bound


def layer_norm_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """dx = r (a - mean(a) - h q), dw = sum over rows of g h, db = sum over rows of g; h = (x - mu) r, q = mean(a h).

    As for RMSNorm, with two additions. mean(a) is off by c mean|a| + 2 u |mean a|. And q may be computed as
    r (mean(a x) - mu mean(a)), as PyTorch's CPU kernel does, whose sums are off by c r mean(|a| (|x| + |mu|)): like
    Welford's variance it grows with the condition number, once.
    """
    x, weight, _ = inputs
    known = standardised(x, arithmetic)
    g, values = cotangents[0].double(), x.double()
    unit, growth = arithmetic.accumulator_unit, arithmetic.growth(x.shape[-1])
    a = g * weight.double()
    a_error = _first_rounding(a, arithmetic, 1) + _flushed(cotangents[0], arithmetic) * weight.double().abs()
    first = a.mean(-1, keepdim=True)
    first_error = growth * a.abs().mean(-1, keepdim=True) + 2.0 * unit * first.abs() + a_error.mean(-1, keepdim=True)
    second = (a * known.normalised).mean(-1, keepdim=True)
    size = values.abs() + values.mean(-1, keepdim=True).abs()
    second_error = _mean_error(a, a_error, known, arithmetic)
    second_error += (growth + 2.0 * unit) * known.scale * (a.abs() * size).mean(-1, keepdim=True)
    exact = known.scale * (a - first - known.normalised * second)
    # Shifted by a common constant, the products (x r) q and (mu r) q of that kernel are rounded one by one.
    shift = 3.0 * unit * known.scale * size * second.abs()
    error = _input_gradient_error(exact, Approximate(a, a_error), Approximate(second, second_error), known, arithmetic)
    error += known.scale * (1.0 + known.scale_error) * (first_error + 3.0 * unit * first.abs() + shift)
    rows = g.reshape(-1, x.shape[-1])
    weight_gradient = (g * known.normalised).reshape(-1, x.shape[-1]).sum(0)
    bias_error = arithmetic.growth(len(rows)) * rows.abs().sum(0)
    bias_error += _flushed(cotangents[0], arithmetic).reshape(-1, x.shape[-1]).sum(0)
    return (
        _result(exact, error, arithmetic),
        _result(weight_gradient, _weight_gradient_error(cotangents[0], known, arithmetic, 0.0), arithmetic),
        _result(rows.sum(0), bias_error, arithmetic),
    )


def _first_rounding(a: Tensor, arithmetic: Arithmetic, roundings: int) -> Tensor:
    """Error of a = g w: 2 u, and a rounding to the output dtype for each that the definition has beyond one."""
    if roundings == 1:
        return 2.0 * arithmetic.accumulator_unit * a.abs()
    return (2.0 * arithmetic.accumulator_unit + arithmetic.output_unit) * a.abs() + arithmetic.smallest


def _mean_error(a: Tensor, a_error: Tensor, known: Scaled, arithmetic: Arithmetic) -> Tensor:
    """Error of mean(a h): that of its factors, 2 u for product and division, growth(n) for the sum."""
    unit = arithmetic.accumulator_unit
    factors = (a.abs() + a_error) * known.error + a_error * known.normalised.abs()
    sizes = (a * known.normalised).abs().mean(-1, keepdim=True)
    return factors.mean(-1, keepdim=True) + (arithmetic.growth(a.shape[-1]) + 2.0 * unit) * sizes


def _input_gradient_error(
    exact: Tensor, a: Approximate, mean: Approximate, known: Scaled, arithmetic: Arithmetic
) -> Tensor:
    """Error of r (a - h q), q being `mean`: the difference's, times r, and r's own."""
    unit = arithmetic.accumulator_unit
    h = known.normalised.abs()
    size = mean.value.abs()
    difference = a.error + (h + known.error) * mean.error + known.error * size
    difference += 3.0 * unit * (a.value.abs() + h * size)
    grown = 1.0 + known.scale_error
    return known.scale * difference * grown + exact.abs() * (known.scale_error + 2.0 * unit)


def _weight_gradient_error(cotangent: Tensor, known: Scaled, arithmetic: Arithmetic, again: float) -> Tensor:
    """Error of the sum over rows of g h, `again` being further relative roundings of each product."""
    features = cotangent.shape[-1]
    g = cotangent.double().reshape(-1, features)
    h, error = known.normalised.reshape(-1, features), known.error.reshape(-1, features)
    products = (g * h).abs()
    lost = _flushed(cotangent, arithmetic).reshape(-1, features) * h.abs()
    terms = (1.0 + again) * (g.abs() * error + lost) + (2.0 * arithmetic.accumulator_unit + again) * products
    if again:
        terms = terms + 3.0 * arithmetic.smallest
    return terms.sum(0) + arithmetic.growth(len(g)) * products.sum(0)
