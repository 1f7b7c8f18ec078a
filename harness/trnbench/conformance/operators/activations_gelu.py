"""GELU by the error function, y = x Phi(x), and its tanh approximation (Hendrycks and Gimpel, arXiv 1606.08415)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import gelu

from trnbench.conformance.operators.activations_inputs import SATURATED
from trnbench.conformance.operators.activations_unary import gradient_of, unary_exact, unary_samples
from trnbench.conformance.operators.base import Operator

if TYPE_CHECKING:
    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors

CUBE = 0.044715
"""Factor of the cube in the tanh approximation, as PyTorch documents it."""

ROOT = math.sqrt(2.0 / math.pi)


def tanh_gelu(x: Tensor) -> Tensor:
    """GELU's tanh approximation."""
    return gelu(x, approximate="tanh")


def gelu_oracle(x: Tensor) -> Tensor:
    """x erfc(-x / sqrt 2) / 2 in float64, which unlike 1 + erf does not cancel on the left."""
    wide = x.double()
    return 0.5 * wide * torch.erfc(-wide * math.sqrt(0.5))


def _density(wide: Tensor) -> Tensor:
    """x phi(x), zero at infinities too."""
    return wide * torch.exp(-0.5 * wide.clamp(-40.0, 40.0).square()) / math.sqrt(2.0 * math.pi)


def gelu_slope(x: Tensor) -> Tensor:
    """Phi(x) + x phi(x) in float64."""
    wide = x.double()
    return 0.5 * torch.erfc(-wide * math.sqrt(0.5)) + _density(wide)


def gelu_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """u_o |y| + (1 + u_o) (e_erf + 2 u_a) |x| + s (1 + |x|); no middle term where erf must have saturated.

    With z = x / sqrt 2 computed in two roundings, erf moves by 2 u_a |z erf'(z)| <= 2 u_a 0.484, and is itself off by
    e_erf |erf| <= e_erf. Adding 1 rounds once (u_a (1 + erf) <= 2 u_a), multiplying by x / 2 once more (u_a |y|):
    together (e_erf + u_a) / 2 |x| + 2 u_a |y| <= (e_erf + 2 u_a) |x| as e_erf is at least 8 u_a. Since 1 + erf cancels
    for negative x, where y decays like a density, the error does not shrink with y: it is relative to |x|, and no
    bound relative to y holds for the formula by which PyTorch documents GELU.

    From |x| = 16 on the error function has reached 1 in every format up to float32 (1 - erf(16 / sqrt 2) = 6e-58) and
    each remaining step is exact, so y is x or 0. An erf that is relatively accurate could still stay short of 1 there,
    and did: gelu(-3e38) = -3e31. So nothing is allowed unless the passport measured an error of erf. s is what
    underflow may cost, of the result and of Phi before the multiplication by x.
    """
    wide = inputs[0].double()
    unit = arithmetic.accumulator_unit
    function = _saturating(wide, arithmetic, "erf", arithmetic.function("erf") + 2.0 * unit)
    return (_assembled(wide, gelu_oracle(inputs[0]), function * wide.abs(), arithmetic),)


def gelu_slope_error(x: Tensor, arithmetic: Arithmetic) -> Tensor:
    """(e_erf + 2 u_a) / 2 + |x phi| (e_exp + (x^2 + 4) u_a) + 2 u_a |g|; where Phi is saturated, nothing.

    Phi by the argument of `gelu_bound`, without the factor x. The exponent -x^2 / 2 is rounded twice, which moves the
    exponential by x^2 u_a, relatively; two constants and two products add 4 u_a. The sum and the product with the
    incoming gradient round once each. At |x| = 16 the term x phi has fallen to 1e-55.
    """
    wide = x.double()
    unit = arithmetic.accumulator_unit
    density = _density(wide).abs()
    error = 0.5 * (arithmetic.function("erf") + 2.0 * unit) + 2.0 * unit * gelu_slope(x).abs()
    error = error + density * (arithmetic.function("exp") + (wide.square() + 4.0) * unit)
    return _saturating(wide, arithmetic, "erf", error)


def tanh_gelu_oracle(x: Tensor) -> Tensor:
    """x sigmoid(2 t) in float64, t = sqrt(2 / pi) (x + 0.044715 x^3): (1 + tanh t) / 2 without its cancellation."""
    wide = x.double()
    return wide * torch.sigmoid(2.0 * _inner(wide))


def _inner(wide: Tensor) -> Tensor:
    return ROOT * (wide + CUBE * wide**3)


def _inner_slope(wide: Tensor) -> Tensor:
    return ROOT * (1.0 + 3.0 * CUBE * wide.square())


def tanh_gelu_slope(x: Tensor) -> Tensor:
    """s + 2 x s (1 - s) t' in float64, s = sigmoid(2 t); the second term is zero once s is saturated."""
    wide = x.double()
    small = wide.clamp(-40.0, 40.0)
    rise = torch.sigmoid(2.0 * _inner(small)) * torch.sigmoid(-2.0 * _inner(small))
    return torch.sigmoid(2.0 * _inner(wide)) + 2.0 * small * rise * _inner_slope(small)


def tanh_gelu_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """u_o |y| + (1 + u_o) (e_tanh + 4 u_a) |x| + s (1 + |x|); no middle term where tanh must have saturated.

    t takes 7 roundings, and |t| / cosh(t)^2 <= 0.448, so tanh moves by at most 3.2 u_a besides its own e_tanh. Adding
    1 and multiplying by x / 2 as in `gelu_bound`: (e_tanh + 3.2 u_a) / 2 |x| + 2 u_a |y|. At |x| = 16 t is 159, far
    beyond the 9.01 at which tanh rounds to 1 in float32; a cube that overflows leaves tanh at 1.
    """
    wide = inputs[0].double()
    unit = arithmetic.accumulator_unit
    function = _saturating(wide, arithmetic, "tanh", arithmetic.function("tanh") + 4.0 * unit)
    return (_assembled(wide, tanh_gelu_oracle(inputs[0]), function * wide.abs(), arithmetic),)


def tanh_gelu_slope_error(x: Tensor, arithmetic: Arithmetic) -> Tensor:
    """d / 2 + |x| t' (d + 4 u_a) + 4 u_a |g| with d = e_tanh + 3.2 u_a; where tanh is saturated, nothing.

    d is the error of T = tanh t by `tanh_gelu_bound`. g = (1 + T) / 2 + x / 2 (1 - T^2) t': the first summand is off
    by d / 2, and 1 - T^2 by 2 d + 2 u_a absolutely, since it cancels like 1 + erf. t' and the products take 6 more
    roundings relative to the second summand, which x t' (4 u_a) covers as 1 - T^2 <= 1, and two on the sum.
    """
    wide = x.double()
    unit = arithmetic.accumulator_unit
    small = wide.clamp(-SATURATED, SATURATED)
    moved = arithmetic.function("tanh") + 3.2 * unit
    error = 0.5 * moved + small.abs() * _inner_slope(small) * (moved + 4.0 * unit)
    return _saturating(wide, arithmetic, "tanh", error + 4.0 * unit * tanh_gelu_slope(x).abs())


def _saturating(wide: Tensor, arithmetic: Arithmetic, name: str, error: Tensor | float) -> Tensor:
    """`error` up to |x| = 16; beyond, only what the passport measured for the function `name`."""
    beyond = torch.as_tensor(arithmetic.function_error.get(name, 0.0), dtype=torch.float64)
    return torch.where(wide.abs() < SATURATED, torch.as_tensor(error, dtype=torch.float64), beyond)


def _assembled(wide: Tensor, exact: Tensor, computed: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Rounding of the output, error before it, and underflow."""
    unit = arithmetic.output_unit
    underflow = arithmetic.smallest * torch.where(wide.abs() < SATURATED, 1.0 + wide.abs(), 1.0)
    return unit * exact.abs() + (1.0 + unit) * computed + underflow


def _by_erf(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * 0.5 * (1.0 + torch.erf(wide * math.sqrt(0.5)))).to(x.dtype)


def _by_erfc(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * (0.5 * torch.erfc(wide * -math.sqrt(0.5)))).to(x.dtype)


def _by_rational_erf(x: Tensor) -> Tensor:
    """With erf by Abramowitz and Stegun, "Handbook of Mathematical Functions", 7.1.26, off by at most 1.5e-7."""
    wide = x.float()
    size = wide.abs() * math.sqrt(0.5)
    t = 1.0 / (1.0 + 0.3275911 * size)
    polynomial = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    erf = torch.copysign(1.0 - polynomial * torch.exp(-size * size), wide)
    return (wide * 0.5 * (1.0 + erf)).to(x.dtype)


def _by_tanh(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * 0.5 * (1.0 + torch.tanh(ROOT * wide * (1.0 + CUBE * wide * wide)))).to(x.dtype)


def _by_exponentials(x: Tensor) -> Tensor:
    """With tanh t as (1 - e) / (1 + e), e = exp(-2 |t|), absolutely but not relatively accurate near 0."""
    wide = x.float()
    inner = ROOT * (wide + CUBE * wide * wide * wide)
    decay = torch.exp(-2.0 * inner.abs())
    return (0.5 * wide * (1.0 + torch.copysign((1.0 - decay) / (1.0 + decay), wide))).to(x.dtype)


def _by_sigmoid(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.sigmoid(2.0 * ROOT * (wide + CUBE * wide * wide * wide))).to(x.dtype)


OPERATORS: list[Operator] = [
    Operator(
        name="GELU",
        family="activations",
        function=gelu,
        samples=unary_samples,
        oracle=gelu_oracle,
        bound=gelu_bound,
        gradient=gradient_of(gelu_slope, gelu_slope_error),
        exact=unary_exact,
        permitted={
            "error function": _by_erf,
            "complementary error function": _by_erfc,
            "Abramowitz and Stegun's error function": _by_rational_erf,
        },
    ),
    Operator(
        name="GELU tanh",
        family="activations",
        function=tanh_gelu,
        samples=unary_samples,
        oracle=tanh_gelu_oracle,
        bound=tanh_gelu_bound,
        gradient=gradient_of(tanh_gelu_slope, tanh_gelu_slope_error),
        exact=unary_exact,
        permitted={"tanh": _by_tanh, "sigmoid": _by_sigmoid, "exponentials": _by_exponentials},
    ),
]
