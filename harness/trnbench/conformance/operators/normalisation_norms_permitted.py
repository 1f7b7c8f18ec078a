"""Correct RMSNorm and LayerNorm in other orders and forms: the floor of tier T3.

Each takes tensors of one dtype, computes in float32 and rounds to that dtype as often as its operator declares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.conformance.operators.normalisation_norm_bounds import LAYER_EPS, RMS_EPS
from trnbench.conformance.operators.normalisation_softmax_permitted import block_sum, plain_sum, strided_sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "PyTorch's order": plain_sum,
    "blocks of 128": block_sum,
    "sixteen lanes": strided_sum,
}


def _rsqrt(values: Tensor) -> Tensor:
    """Off by as much as `arithmetic.function("rsqrt")` allows: two units in the last place, up and down in turn."""
    exact = values.rsqrt()
    upward = torch.arange(exact.shape[-2] if exact.dim() > 1 else 1, device=exact.device) % 2 == 0
    return exact * torch.where(upward, 1.0 + 2.0**-22, 1.0 - 2.0**-22).unsqueeze(-1)


def _rms_norm(add: Callable[[Tensor], Tensor], roundings: int) -> Callable[[Tensor, Tensor], Tensor]:
    def compute(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        normalised = wide * _rsqrt(add(wide.square()) / x.shape[-1] + RMS_EPS)
        if roundings == 2:
            return normalised.to(x.dtype) * weight
        return (normalised * weight.float()).to(x.dtype)

    return compute


def _two_pass(add: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def compute(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        wide = x.float()
        centred = wide - add(wide) / x.shape[-1]
        scale = _rsqrt(add(centred.square()) / x.shape[-1] + LAYER_EPS)
        return (centred * scale * weight.float() + bias.float()).to(x.dtype)

    return compute


def welford(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Welford's updates in 16 lanes of each row, joined as Chan, Golub and LeVeque (1983) do, then x r - mu r.

    A number of columns that 16 does not divide leaves a last, shorter step.
    """
    wide = x.float()
    columns = x.shape[-1]
    lanes = min(16, columns)
    count = torch.zeros(lanes)
    mean = torch.zeros((*x.shape[:-1], lanes))
    squares = torch.zeros_like(mean)
    for start in range(0, columns, lanes):
        step = wide[..., start : start + lanes]
        width = step.shape[-1]
        count[:width] += 1.0
        delta = step - mean[..., :width]
        mean[..., :width] += delta / count[:width]
        squares[..., :width] += delta * (step - mean[..., :width])
    total, centre, spread = count[0].clone(), mean[..., 0].clone(), squares[..., 0].clone()
    for lane in range(1, lanes):
        joined = total + count[lane]
        delta = mean[..., lane] - centre
        centre += delta * (count[lane] / joined)
        spread += squares[..., lane] + delta.square() * (total * count[lane] / joined)
        total = joined
    scale = torch.rsqrt(spread / columns + LAYER_EPS).unsqueeze(-1)
    return ((wide * scale - centre.unsqueeze(-1) * scale) * weight.float() + bias.float()).to(x.dtype)


RMS_NORM: dict[str, Callable[..., Tensor]] = {name: _rms_norm(add, 1) for name, add in SUMS.items()}
LLAMA_RMS_NORM: dict[str, Callable[..., Tensor]] = {name: _rms_norm(add, 2) for name, add in SUMS.items()}
LAYER_NORM: dict[str, Callable[..., Tensor]] = {
    **{f"two passes, {name}": _two_pass(add) for name, add in SUMS.items()},
    "Welford in sixteen lanes": welford,
}
