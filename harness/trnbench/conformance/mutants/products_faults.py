"""Kernels of matrix products that are wrong on purpose: [..., M, K] by [..., K, N] in the dtype of the operands."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Kernel = Callable[[Tensor, Tensor], Tensor]


def wide(left: Tensor, right: Tensor) -> Tensor:
    """float32 sums of the operands' own products, in the order of the host's library."""
    return left.float() @ right.float()


def with_operands(change: Callable[[Tensor], Tensor]) -> Kernel:
    return lambda left, right: wide(change(left), change(right)).to(left.dtype)


def three_bfloat16_products(left: Tensor, right: Tensor) -> Tensor:
    high, other = left.bfloat16(), right.bfloat16()
    low, rest = (left - high).bfloat16(), (right - other).bfloat16()
    return wide(low, other) + wide(high, rest) + wide(high, other)


def whole_vectors_of_16(left: Tensor, right: Tensor) -> Tensor:
    """Vectors of 16 of K, and nobody for the rest."""
    terms = left.shape[-1] - left.shape[-1] % 16
    return wide(left[..., :terms], right[..., :terms, :]).to(left.dtype)


def cut_off_to_bfloat16(left: Tensor, right: Tensor) -> Tensor:
    """The upper half of the float32 result's bits is the bfloat16 result."""
    bits = wide(left, right).contiguous().view(torch.int32)
    return (bits >> 16 << 16).view(torch.float32).bfloat16()


def through_e4m3(operand: Tensor) -> Tensor:
    return operand.float().clamp(-448.0, 448.0).to(torch.float8_e4m3fn).float()


def clamped(left: Tensor, right: Tensor) -> Tensor:
    limits = torch.finfo(left.dtype)
    return wide(left, right).clamp(limits.min, limits.max).to(left.dtype)


def _daz(operand: Tensor) -> Tensor:
    return operand.masked_fill(operand.abs() < torch.finfo(operand.dtype).smallest_normal, 0.0)


def without_subnormals(left: Tensor, right: Tensor) -> Tensor:
    return _daz(_daz(left) @ _daz(right))


def as_stored(a: Tensor, b: Tensor) -> Tensor:
    columns, rows = a.shape[-1], b.shape[-2]
    return a.reshape(*a.shape[:-2], columns, -1) @ b.reshape(*b.shape[:-2], -1, rows)


def without_strides(a: Tensor, b: Tensor) -> Tensor:
    half = a.shape[-1] // 2
    return wide(a.narrow(-1, 0, half), b.narrow(-2, 0, half)).to(a.dtype)


def through(bits_of: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda operand: operand.to(bits_of).float()
