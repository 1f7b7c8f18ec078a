"""Activations and dropout that are broken on purpose, and correct ones by other formulas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.implementation import HostImplementation, gradients
from trnbench.conformance.mutants.activations_dropout import MUTANTS as DROPOUT
from trnbench.conformance.mutants.base import Mutant
from trnbench.conformance.operators.activations_silu import swiglu

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.implementation import Implementation

FAR = 40.0
"""Arguments of inner functions are clamped here, so that no square or cube overflows and no derivative is NaN."""


def _make(function: Callable[..., Tensor]) -> Callable[[], Implementation]:
    """`function`, with the derivative that autograd finds."""
    return lambda: HostImplementation(function)


def _quick(x: Tensor) -> Tensor:
    return (x.float() / (1.0 + torch.exp(-1.702 * x.float().clamp(-50.0, 50.0)))).to(x.dtype)


def _nan_for_infinity(x: Tensor) -> Tensor:
    """Correct but for infinity, which meets a zero on its way."""
    return _by_erfc(x) + (0.0 * x)


def _doubles_first(x: Tensor) -> Tensor:
    """x Phi(x) as x (2 Phi(x)) / 2."""
    return x * torch.erfc(-x * math.sqrt(0.5)) / 2.0


def _sigmoid_through_bf16(x: Tensor) -> Tensor:
    return x * (1.0 / (1.0 + torch.exp(-x.clamp(-80.0)))).bfloat16().float()


def _silu_in_bf16(x: Tensor) -> Tensor:
    return x.sigmoid().mul(x)


def _silu_half_angle(x: Tensor) -> Tensor:
    half = 0.5 * x.float()
    return (half + half * torch.tanh(half)).to(x.dtype)


def _swapped(gate: Tensor, up: Tensor) -> Tensor:
    wide = up.float()
    return (gate.float() * wide / (1.0 + torch.exp(-wide))).to(gate.dtype)


def _gated_by_sigmoid(gate: Tensor, up: Tensor) -> Tensor:
    return (up.float() / (1.0 + torch.exp(-gate.float().clamp(-80.0)))).to(gate.dtype)


def _gated_by_gelu(gate: Tensor, up: Tensor) -> Tensor:
    return _by_erfc(gate) * up


def _by_erf(x: Tensor) -> Tensor:
    """The documented formula in float32, halved first."""
    half = 0.5 * x.float()
    return (half * (1.0 + torch.erf(x.float().clamp(-FAR, FAR) / math.sqrt(2.0)))).to(x.dtype)


def _by_erfc(x: Tensor) -> Tensor:
    wide = x.double() if x.dtype == torch.float32 else x.float()
    return (0.5 * wide * torch.erfc(wide.clamp(-FAR, FAR) / -math.sqrt(2.0))).to(x.dtype)


def _tanh_by_sigmoid(x: Tensor) -> Tensor:
    small = x.float().clamp(-FAR, FAR)
    inner = math.sqrt(8.0 / math.pi) * (small + 0.044715 * small**3)
    return (x.float() * torch.sigmoid(inner)).to(x.dtype)


def _silu_by_quotient(x: Tensor) -> Tensor:
    """x e^x / (1 + e^x) where x is negative, which keeps all digits of a small sigmoid, and the usual elsewhere."""
    wide = x.float()
    growth = torch.exp(-wide.clamp(-110.0, 110.0).abs())
    return (wide * (torch.where(wide < 0.0, growth, torch.ones_like(growth)) / (1.0 + growth))).to(x.dtype)


def _silu_by_tanh(x: Tensor) -> Tensor:
    """sigmoid(|x|) as (1 + tanh(|x| / 2)) / 2, which does not cancel, times e^x where x is negative."""
    wide = x.float()
    small = wide.clamp(-110.0, 110.0)
    positive = 0.5 + 0.5 * torch.tanh(0.5 * small.abs())
    return (wide * (positive * torch.exp(small.clamp(max=0.0)))).to(x.dtype)


def _swiglu_fused(gate: Tensor, up: Tensor) -> Tensor:
    wide = gate.float()
    return (wide * up.float() / (1.0 + torch.exp(-wide.clamp(-88.0)))).to(gate.dtype)


def _fused_swiglu() -> Implementation:
    """One kernel forward, PyTorch's operators backward."""
    return HostImplementation(_swiglu_fused, lambda inputs, cotangents: gradients(swiglu, inputs, cotangents, (0, 1)))


MUTANTS: list[Mutant] = [
    Mutant(
        name="GELU by tanh where erf is asked for",
        operator="GELU",
        precision="fp32",
        make=_make(_tanh_by_sigmoid),
        looks_like=("tanh approximation instead of erf",),
    ),
    Mutant(
        name="GELU by sigmoid(1.702 x)",
        operator="GELU",
        precision="bf16",
        make=_make(_quick),
        looks_like=("x sigmoid(1.702 x) instead of GELU",),
    ),
    Mutant(
        name="GELU of infinity NaN",
        operator="GELU",
        precision="fp16",
        make=_make(_nan_for_infinity),
        looks_like=("NaN for infinity",),
    ),
    Mutant(
        name="GELU that doubles before it halves",
        operator="GELU",
        precision="fp32",
        make=_make(_doubles_first),
        looks_like=("overflow before halving",),
    ),
    Mutant(
        name="GELU by erf where tanh is asked for",
        operator="GELU tanh",
        precision="fp16",
        make=_make(_by_erf),
        looks_like=("erf instead of tanh",),
    ),
    Mutant(
        name="SiLU with sigmoid rounded to bf16",
        operator="SiLU",
        precision="fp32",
        make=_make(_sigmoid_through_bf16),
        looks_like=("sigmoid rounded to bf16",),
    ),
    Mutant(
        name="SiLU in bf16 throughout",
        operator="SiLU",
        precision="bf16",
        make=_make(_silu_in_bf16),
        looks_like=("sigmoid rounded to bf16", "every step rounded to the output format", "every step rounded to bf16"),
    ),
    Mutant(
        name="SiLU by tanh of half the argument",
        operator="SiLU",
        precision="fp32",
        make=_make(_silu_half_angle),
        looks_like=("sigmoid as (1 + tanh) / 2",),
    ),
    Mutant(
        name="SwiGLU with gate and up exchanged",
        operator="SwiGLU",
        precision="bf16",
        make=_make(_swapped),
        looks_like=("gate and up swapped",),
    ),
    Mutant(
        name="SwiGLU gated by sigmoid alone",
        operator="SwiGLU",
        precision="fp32",
        make=_make(_gated_by_sigmoid),
        looks_like=("sigmoid instead of SiLU",),
    ),
    Mutant(
        name="SwiGLU gated by GELU",
        operator="SwiGLU",
        precision="fp16",
        make=_make(_gated_by_gelu),
        looks_like=("GELU instead of SiLU",),
    ),
    *DROPOUT,
    Mutant(name="GELU by erf", operator="GELU", precision="fp32", make=_make(_by_erf)),
    Mutant(name="GELU by erfc", operator="GELU", precision="bf16", make=_make(_by_erfc)),
    Mutant(name="GELU tanh by sigmoid", operator="GELU tanh", precision="fp32", make=_make(_tanh_by_sigmoid)),
    Mutant(name="SiLU by a quotient of exponentials", operator="SiLU", precision="fp32", make=_make(_silu_by_quotient)),
    Mutant(name="SiLU by tanh of the magnitude", operator="SiLU", precision="fp32", make=_make(_silu_by_tanh)),
    Mutant(name="SwiGLU fused", operator="SwiGLU", precision="bf16", make=_fused_swiglu),
]
