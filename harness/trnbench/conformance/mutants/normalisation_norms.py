"""RMSNorms and LayerNorms that are broken on purpose, and correct ones in other orders and forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.conformance.implementation import HostImplementation, Implementation
from trnbench.conformance.mutants.base import Mutant

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.implementation import Tensors

RMS, LLAMA, LAYER = "RMSNorm", "RMSNorm in Llama's order", "LayerNorm"
RMS_EPS, LAYER_EPS = 1e-6, 1e-5


def _bf16(values: Tensor) -> Tensor:
    return values.bfloat16().float()


def _tiled_mean(values: Tensor) -> Tensor:
    """float32 mean: tiles of 128 columns added to 128 lanes, the lanes pairwise."""
    columns = values.shape[-1]
    padded = torch.nn.functional.pad(values, (0, -columns % 128))
    lanes = padded.reshape(*values.shape[:-1], -1, 128).sum(-2)
    while lanes.shape[-1] > 1:
        lanes = lanes[..., ::2] + lanes[..., 1::2]
    return lanes / columns


def _bf16_mean(values: Tensor) -> Tensor:
    """One bfloat16 register that every value is added to in turn."""
    register = torch.zeros(values.shape[:-1], dtype=torch.bfloat16)
    for column in values.bfloat16().unbind(-1):
        register = register + column
    return register.float().unsqueeze(-1) / values.shape[-1]


def _norm(
    statistics: Callable[[Tensor], tuple[Tensor, Tensor]],
    over_rows: Callable[[Tensor], Tensor] | None = None,
    between: Callable[[Tensor], Tensor] | None = None,
) -> Callable[[], Implementation]:
    """A norm from (centre, scale), both one a row, that `statistics` makes of float32 x; centred if there is a bias.

    `between` takes the normalised value before the weight is applied, `over_rows` sums the gradients of parameters.
    """
    add = over_rows or _column_sums

    def forward(x: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
        wide = x.float()
        centre, scale = statistics(wide)
        normalised = (wide - centre) * scale
        if between is not None:
            normalised = between(normalised)
        result = weight.float() * normalised
        return (result + bias[0].float() if bias else result).to(x.dtype)

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        x, weight, *bias = inputs
        wide, g = x.float(), cotangents[0].float()
        centre, scale = statistics(wide)
        normalised = (wide - centre) * scale
        a = g * weight.float()
        inner = a - normalised * _tiled_mean(normalised * a)
        if bias:
            inner = inner - _tiled_mean(a)
        gradients = [inner * scale, add(g * normalised), *([add(g)] if bias else [])]
        return tuple(gradient.to(x.dtype) for gradient in gradients)

    return lambda: HostImplementation(forward, backward)


def _column_sums(values: Tensor) -> Tensor:
    return values.reshape(-1, values.shape[-1]).flip(0).sum(0)


def _bf16_column_sums(values: Tensor) -> Tensor:
    """Row by row into bfloat16."""
    total = torch.zeros(values.shape[-1], dtype=torch.bfloat16)
    for row in values.reshape(-1, values.shape[-1]):
        total = (total.float() + row).bfloat16()
    return total.float()


def _rms(scale: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    return lambda x: (torch.zeros_like(x[..., :1]), scale(x))


def _rms_scale(x: Tensor) -> Tensor:
    return 1.0 / torch.sqrt(_tiled_mean(x * x) + RMS_EPS)


def _float16_total(x: Tensor) -> Tensor:
    """Squares and their sum, pairwise, in float16: infinite beyond 65504."""
    sums = torch.nn.functional.pad((x * x).half(), (0, 2 ** (x.shape[-1] - 1).bit_length() - x.shape[-1]))
    while sums.shape[-1] > 1:
        sums = sums[..., ::2] + sums[..., 1::2]
    return sums.float()


def _layer(x: Tensor) -> tuple[Tensor, Tensor]:
    centre = _tiled_mean(x)
    return centre, 1.0 / torch.sqrt(_tiled_mean((x - centre) ** 2) + LAYER_EPS)


def _one_pass(x: Tensor) -> tuple[Tensor, Tensor]:
    """128 lanes that run through the columns, then one lane after the other, for the mean and for the mean square."""

    def mean(values: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(values, (0, -values.shape[-1] % 128))
        lanes = torch.zeros((*values.shape[:-1], 128))
        for start in range(0, padded.shape[-1], 128):
            lanes = lanes + padded[..., start : start + 128]
        total = lanes[..., 0]
        for lane in range(1, 128):
            total = total + lanes[..., lane]
        return total.unsqueeze(-1) / values.shape[-1]

    centre = mean(x)
    return centre, torch.rsqrt((mean(x * x) - centre * centre).clamp(min=0.0) + LAYER_EPS)


def _unbiased(x: Tensor) -> tuple[Tensor, Tensor]:
    variance, centre = torch.var_mean(x, dim=-1, keepdim=True, correction=1)
    return centre, torch.rsqrt(variance + LAYER_EPS)


def _rounded_centre(x: Tensor) -> tuple[Tensor, Tensor]:
    centre = _bf16(_tiled_mean(x))
    return centre, 1.0 / torch.sqrt(_tiled_mean((x - centre) ** 2) + LAYER_EPS)


def _smaller_epsilon(x: Tensor) -> tuple[Tensor, Tensor]:
    centre = _tiled_mean(x)
    return centre, 1.0 / torch.sqrt(_tiled_mean((x - centre) ** 2) + 1e-6)


def _welford(x: Tensor) -> tuple[Tensor, Tensor]:
    """Welford, "Note on a method for calculating corrected sums of squares and products" (1962), column by column."""
    centre, squares = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0])
    for count, column in enumerate(x.unbind(-1), start=1):
        delta = column - centre
        centre = centre + delta / count
        squares = squares + delta * (column - centre)
    return centre.unsqueeze(-1), torch.rsqrt(squares / x.shape[-1] + LAYER_EPS).unsqueeze(-1)


def _llama() -> Implementation:
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        return weight * (wide * _rms_scale(wide)).to(x.dtype)

    return HostImplementation(forward)


MUTANTS: list[Mutant] = [
    Mutant(
        name="squares added in one bfloat16 register",
        operator=RMS,
        precision="bf16",
        make=_norm(_rms(lambda x: torch.rsqrt(_bf16_mean(x * x) + RMS_EPS))),
        looks_like=("bf16 accumulator",),
    ),
    Mutant(
        name="bfloat16 reciprocal root",
        operator=RMS,
        precision="bf16",
        make=_norm(_rms(lambda x: _bf16(_rms_scale(x)))),
        looks_like=("rsqrt rounded to bf16",),
    ),
    Mutant(
        name="epsilon ten times as large",
        operator=RMS,
        precision="bf16",
        make=_norm(_rms(lambda x: 1.0 / torch.sqrt(_tiled_mean(x * x) + 1e-5))),
        looks_like=("epsilon 1e-05 instead of 1e-06",),
    ),
    Mutant(
        name="epsilon added to the root",
        operator=RMS,
        precision="fp32",
        make=_norm(_rms(lambda x: 1.0 / (torch.sqrt(_tiled_mean(x * x)) + RMS_EPS))),
        looks_like=("epsilon outside the root",),
    ),
    Mutant(
        name="normalised value in bfloat16",
        operator=RMS,
        precision="bf16",
        make=_norm(_rms(_rms_scale), between=_bf16),
        looks_like=("normalised value rounded to bf16 before the weight",),
    ),
    Mutant(
        name="squares added in float16",
        operator=RMS,
        precision="fp16",
        make=_norm(_rms(lambda x: torch.rsqrt(_float16_total(x) / x.shape[-1] + RMS_EPS))),
        # A square beyond 65504 overflows as its sum does, so that either name is right.
        looks_like=("sum of squares overflowed in fp16", "squares rounded to fp16", "fp16 accumulator"),
    ),
    Mutant(
        name="RMSNorm's weight gradient in bfloat16",
        operator=RMS,
        precision="bf16",
        make=_norm(_rms(_rms_scale), over_rows=_bf16_column_sums),
        looks_like=("weight gradient accumulated in bf16",),
    ),
    Mutant(
        name="bfloat16 reciprocal root in Llama's order",
        operator=LLAMA,
        precision="bf16",
        make=_norm(_rms(lambda x: _bf16(_rms_scale(x))), between=_bf16),
        looks_like=("rsqrt rounded to bf16",),
    ),
    Mutant(
        name="variance as a difference",
        operator=LAYER,
        precision="fp32",
        make=_norm(_one_pass),
        looks_like=("one-pass variance",),
    ),
    Mutant(
        name="unbiased variance",
        operator=LAYER,
        precision="bf16",
        make=_norm(_unbiased),
        looks_like=("variance divided by n - 1",),
    ),
    Mutant(
        name="bfloat16 mean",
        operator=LAYER,
        precision="bf16",
        make=_norm(_rounded_centre),
        looks_like=("mean rounded to bf16",),
    ),
    Mutant(
        name="LayerNorm with RMSNorm's epsilon",
        operator=LAYER,
        precision="fp32",
        make=_norm(_smaller_epsilon),
        looks_like=("epsilon 1e-06 instead of 1e-05",),
    ),
    Mutant(
        name="LayerNorm's parameter gradients in bfloat16",
        operator=LAYER,
        precision="bf16",
        make=_norm(_layer, over_rows=_bf16_column_sums),
        looks_like=("weight gradient accumulated in bf16",),
    ),
    Mutant(name="RMSNorm in tiles of 128", operator=RMS, precision="fp32", make=_norm(_rms(_rms_scale))),
    Mutant(name="two roundings where two are declared", operator=LLAMA, precision="bf16", make=_llama),
    Mutant(name="two passes in tiles of 128", operator=LAYER, precision="bf16", make=_norm(_layer)),
    Mutant(name="Welford's updates", operator=LAYER, precision="fp32", make=_norm(_welford)),
]
