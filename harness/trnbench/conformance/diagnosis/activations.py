"""Ways in which activations go wrong. Dropout names its own faults, since its checks are statistics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import silu

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.diagnosis.base import Hypothesis
from trnbench.conformance.implementation import gradients
from trnbench.conformance.operators.activations_gelu import gelu_oracle, gelu_slope, tanh_gelu_oracle, tanh_gelu_slope
from trnbench.conformance.operators.activations_silu import silu_oracle, silu_slope

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.implementation import Tensors

ROOT = math.sqrt(2.0 / math.pi)
CUBE = 0.044715


def _unary(name: str, function: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor] | None) -> Hypothesis:
    """A fault of a function of one argument, and of its derivative."""

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors | None:
        return None if slope is None else (slope(inputs[0]) * cotangents[0].double(),)

    return Hypothesis(name=name, emulate=lambda inputs, precision: (function(inputs[0]),), gradient=gradient)


def _autograd(
    name: str, function: Callable[..., Tensor], wrt: tuple[int, ...] = (0,), dtype: torch.dtype | None = None
) -> Hypothesis:
    """A fault written as a differentiable formula, run in `dtype`, or in the format of the inputs."""

    def cast(tensors: Tensors, precision: str) -> Tensors:
        return tuple(tensor.to(dtype or STORAGE[precision]) for tensor in tensors)

    return Hypothesis(
        name=name,
        emulate=lambda inputs, precision: (function(*cast(inputs, precision)),),
        gradient=lambda inputs, cotangents, precision: gradients(
            function, cast(inputs, precision), cast(cotangents, precision), wrt
        ),
    )


def _quick_gelu(x: Tensor) -> Tensor:
    return x.double() * torch.sigmoid(1.702 * x.double())


def _quick_gelu_slope(x: Tensor) -> Tensor:
    wide = x.double()
    sigmoid = torch.sigmoid(1.702 * wide)
    return sigmoid * (1.0 + 1.702 * wide * torch.sigmoid(-1.702 * wide))


def _gelu_steps(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x * math.sqrt(0.5)))


def _tanh_gelu_steps(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(ROOT * (x + CUBE * x * x * x)))


def _doubled(x: Tensor) -> Tensor:
    """x (1 + erf) before the factor 1 / 2, in float32: infinite for finite x beyond half the range."""
    wide = x.float()
    return 0.5 * (wide * (1.0 + torch.erf(wide * math.sqrt(0.5))))


def _short_erf(x: Tensor) -> Tensor:
    """erf clamped at 4 and approximated there by a number 3 units of 2^-25 below 1, as a rational function may end."""
    short = 1.5 * 2.0**-24
    return torch.where(x.double() < -4.0, x.double() * short, gelu_oracle(x))


def _short_erf_slope(x: Tensor) -> Tensor:
    short = 1.5 * 2.0**-24
    return torch.where(x.double() < -6.0, torch.as_tensor(short, dtype=torch.float64), gelu_slope(x))


def _tanh_gradient(dtype: torch.dtype | None) -> Callable[[Tensors, Tensors, str], Tensors | None]:
    """The derivative as PyTorch writes it; (1 - tanh^2) t' is 0 times infinity where x^2 overflows `dtype`."""

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors | None:
        computed = dtype or STORAGE[precision]
        x, incoming = inputs[0].to(computed), cotangents[0].to(computed)
        square = x * x
        tanh = torch.tanh(ROOT * (x + CUBE * (square * x)))
        left, right = 0.5 * x, 1.0 + tanh
        slope = ROOT * (1.0 + 3.0 * CUBE * square)
        return (incoming * (0.5 * right + left * (1.0 - tanh * tanh) * slope),)

    return gradient


def _rounded_sigmoid(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda x: x.double() * torch.sigmoid(x.double()).to(dtype).double()


def _flushed_sigmoid(x: Tensor) -> Tensor:
    """sigmoid rounded to float16, whose subnormal numbers, from 6.1e-5 down, become zero."""
    sigmoid = torch.sigmoid(x.double()).to(torch.float16).double()
    return torch.where(sigmoid < torch.finfo(torch.float16).tiny, 0.0, sigmoid)


def _rounded_sigmoid_slope(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    def slope(x: Tensor) -> Tensor:
        sigmoid = torch.sigmoid(x.double()).to(dtype).double()
        return sigmoid * (1.0 + x.double() * (1.0 - sigmoid))

    return slope


def _flushed_slope(x: Tensor) -> Tensor:
    sigmoid = _flushed_sigmoid(x)
    return sigmoid * (1.0 + x.double() * (1.0 - sigmoid))


def _silu_steps(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def _silu_by_tanh(x: Tensor) -> Tensor:
    wide = x.float()
    return wide * (0.5 + 0.5 * torch.tanh(0.5 * wide))


def _swapped_gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
    gate, up = inputs
    incoming = cotangents[0].double()
    return incoming * silu_oracle(up), incoming * gate.double() * silu_slope(up)


def _product(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensors, str], Tensors]:
    return lambda inputs, precision: (activation(inputs[0]).double() * inputs[1].double(),)


IN_FORMAT = "every step rounded to the output format"

HYPOTHESES: dict[str, list[Hypothesis]] = {
    "GELU": [
        _unary("tanh approximation instead of erf", tanh_gelu_oracle, tanh_gelu_slope),
        _unary("x sigmoid(1.702 x) instead of GELU", _quick_gelu, _quick_gelu_slope),
        _unary("SiLU instead of GELU", silu_oracle, silu_slope),
        _unary("overflow before halving", _doubled, None),
        _unary("erf short of 1 in its tail", _short_erf, _short_erf_slope),
        _autograd(IN_FORMAT, _gelu_steps),
        _autograd("every step rounded to bf16", _gelu_steps, dtype=torch.bfloat16),
    ],
    "GELU tanh": [
        _unary("erf instead of tanh", gelu_oracle, gelu_slope),
        _unary("x sigmoid(1.702 x) instead of GELU", _quick_gelu, _quick_gelu_slope),
        _unary("SiLU instead of GELU", silu_oracle, silu_slope),
        Hypothesis(name="square overflows in the derivative", gradient=_tanh_gradient(torch.float32)),
        Hypothesis(name=IN_FORMAT, gradient=_tanh_gradient(None)),
        _autograd(IN_FORMAT, _tanh_gelu_steps),
        _autograd("every step rounded to bf16", _tanh_gelu_steps, dtype=torch.bfloat16),
    ],
    "SiLU": [
        _unary("sigmoid rounded to bf16", _rounded_sigmoid(torch.bfloat16), _rounded_sigmoid_slope(torch.bfloat16)),
        _unary("sigmoid rounded to fp16", _rounded_sigmoid(torch.float16), _rounded_sigmoid_slope(torch.float16)),
        _unary("sigmoid rounded to fp16 and flushed", lambda x: x.double() * _flushed_sigmoid(x), _flushed_slope),
        _unary("GELU instead of SiLU", gelu_oracle, gelu_slope),
        _unary("sigmoid as (1 + tanh) / 2", _silu_by_tanh, None),
        _autograd(IN_FORMAT, _silu_steps),
        _autograd("every step rounded to bf16", _silu_steps, dtype=torch.bfloat16),
    ],
    "SwiGLU": [
        Hypothesis(
            name="gate and up swapped",
            emulate=lambda inputs, precision: (silu_oracle(inputs[1]) * inputs[0].double(),),
            gradient=_swapped_gradient,
        ),
        Hypothesis(name="GELU instead of SiLU", emulate=_product(gelu_oracle)),
        Hypothesis(name="sigmoid instead of SiLU", emulate=_product(lambda x: torch.sigmoid(x.double()))),
        Hypothesis(name="sigmoid rounded to bf16", emulate=_product(_rounded_sigmoid(torch.bfloat16))),
        Hypothesis(
            name="sigmoid rounded to fp16 and flushed", emulate=_product(lambda x: x.double() * _flushed_sigmoid(x))
        ),
        _autograd(IN_FORMAT, lambda gate, up: _silu_steps(gate) * up, (0, 1)),
        _autograd("every step rounded to bf16", lambda gate, up: silu(gate) * up, (0, 1), torch.bfloat16),
    ],
}
