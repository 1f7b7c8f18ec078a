"""Kernels of matrix products in many orders and widths: [..., M, K] by [..., K, N] in the dtype of the operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def as_tf32(operand: Tensor) -> Tensor:
    """To 10 stored bits, ties to even, by Dekker's splitting with the constant 2^13 + 1 (Dekker, 1971)."""
    wide = operand.double()
    scaled = wide * (2.0**42 + 1.0)
    return torch.where(wide.isinf(), wide, scaled - (scaled - wide)).float()


def one_by_one(left: Tensor, right: Tensor) -> Tensor:
    """From the first term to the last, product and sum fused."""
    a, b = left.float(), right.float()
    total = torch.zeros((*a.shape[:-1], b.shape[-1]))
    for k in range(a.shape[-1]):
        total = torch.addcmul(total, a[..., k, None], b[..., k, None, :])
    return total.to(left.dtype)


def neighbours_first(left: Tensor, right: Tensor) -> Tensor:
    """A tree over K, odd terms carried up."""
    terms = list((left.float().unsqueeze(-1) * right.float().unsqueeze(-3)).unbind(-2))
    while len(terms) > 1:
        carried = terms[len(terms) // 2 * 2 :]
        terms = [one + other for one, other in zip(terms[0::2], terms[1::2], strict=False)] + carried
    return terms[0].to(left.dtype)


def in_blocks_of(size: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A systolic array of `size` rows, one float32 sum a pass, passes added in float32 as in Trainium's PSUM."""

    def kernel(left: Tensor, right: Tensor) -> Tensor:
        total = torch.zeros((*left.shape[:-1], right.shape[-1]))
        for a, b in zip(torch.split(left.float(), size, -1), torch.split(right.float(), size, -2), strict=True):
            total += a @ b
        return total.to(left.dtype)

    return kernel


def even_and_odd_chains(left: Tensor, right: Tensor) -> Tensor:
    """Within 32 terms one chain for even and one for odd ones, their sum added to the accumulator, as AMX does."""
    total = torch.zeros((*left.shape[:-1], right.shape[-1]))
    for a, b in zip(torch.split(left.float(), 32, -1), torch.split(right.float(), 32, -2), strict=True):
        chains = [torch.zeros_like(total), torch.zeros_like(total)]
        for k in range(a.shape[-1]):
            chains[k % 2] = torch.addcmul(chains[k % 2], a[..., k, None], b[..., k, None, :])
        total += chains[0] + chains[1]
    return total.to(left.dtype)


def fused_toward_zero(left: Tensor, right: Tensor) -> Tensor:
    """As NVIDIA's tensor cores: 16 products and the accumulator, aligned to the largest of them, cut off to 24 bits.

    Sums beyond the range are infinite.
    """
    a, b = left.double().numpy(), right.double().numpy()
    total = np.zeros((*a.shape[:-1], b.shape[-1]))
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, a.shape[-1], 16):
            step = slice(start, start + 16)
            terms = a[..., step, None] * b[..., None, step, :]
            terms = np.concatenate([terms, total[..., None, :]], axis=-2)
            largest = np.abs(np.where(np.isfinite(terms), terms, 0.0)).max(axis=-2, keepdims=True)
            total = _cut(_aligned(terms, largest, 24).sum(axis=-2), 24)
    return torch.from_numpy(total).float().to(left.dtype)


def fourteen_bits(left: Tensor, right: Tensor) -> Tensor:
    """As Hopper's FP8 products: 32 terms at once, aligned to the largest and cut off to 14 bits."""
    a, b = left.double().numpy(), right.double().numpy()
    total = np.zeros((*a.shape[:-1], b.shape[-1]))
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, a.shape[-1], 32):
            step = slice(start, start + 32)
            terms = a[..., step, None] * b[..., None, step, :]
            total = _cut(total + terms.sum(axis=-2), 14)
    return torch.from_numpy(total).float().to(left.dtype)


def accumulated_in(dtype: torch.dtype) -> Callable[[Tensor, Tensor], Tensor]:
    """Every sum rounded to `dtype`, from the last term to the first."""

    def kernel(left: Tensor, right: Tensor) -> Tensor:
        a, b = left.float(), right.float()
        total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=dtype)
        for k in reversed(range(a.shape[-1])):
            total = torch.addcmul(total.float(), a[..., k, None], b[..., k, None, :]).to(dtype)
        return total.to(left.dtype)

    return kernel


def rounded_partials(size: int | None, dtype: torch.dtype) -> Callable[[Tensor, Tensor], Tensor]:
    """Sums over `size` terms, or over a quarter of K, rounded to bfloat16 and added in `dtype`."""

    def kernel(left: Tensor, right: Tensor) -> Tensor:
        part = size or max(1, -(-left.shape[-1] // 4))
        total = torch.zeros((*left.shape[:-1], right.shape[-1]), dtype=dtype)
        for a, b in zip(torch.split(left.float(), part, -1), torch.split(right.float(), part, -2), strict=True):
            total = total + (a @ b).bfloat16().to(dtype) if size is None else (total + a @ b).to(dtype)
        return total.to(left.dtype)

    return kernel


def with_rounded_products(left: Tensor, right: Tensor) -> Tensor:
    """Every product rounded to bfloat16 before it is added in float32."""
    total = torch.zeros((*left.shape[:-1], right.shape[-1]))
    for a, b in zip(torch.split(left.float(), 64, -1), torch.split(right.float(), 64, -2), strict=True):
        total += (a.unsqueeze(-1) * b.unsqueeze(-3)).bfloat16().float().sum(-2)
    return total.to(left.dtype)


def _cut(values: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    unit = np.exp2(np.frexp(values)[1].astype(np.float64) - bits)
    return np.where(np.isfinite(values), np.trunc(values / unit) * unit, values)


def _aligned(terms: NDArray[np.float64], largest: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    """Cut off at the last of `bits` bits of the largest term."""
    unit = np.exp2(np.frexp(largest)[1].astype(np.float64) - bits)
    return np.where(np.isfinite(terms), np.trunc(terms / unit) * unit, terms)
