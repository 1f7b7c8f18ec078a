"""Kernels that reduce or scan the last axis, wrong ones and correct ones, for the mutants of reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

COUNT = 8

NUMPY: dict[torch.dtype, type] = {
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float16: np.float16,
    torch.float32: np.float32,
}


def backwards_in(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Serial sum from the last element to the first, in `dtype`."""

    def kernel(x: Tensor) -> Tensor:
        terms: NDArray[Any] = x.flip(-1).float().numpy().astype(NUMPY[dtype])
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.add.accumulate(terms, axis=-1)[..., -1]
        return torch.from_numpy(np.asarray(total, dtype=np.float32)).to(x.dtype)

    return kernel


def in_two_levels(kernel: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """`kernel` on rows of 288 where there are more than 4096 terms, and once more on their sums."""

    def both(x: Tensor) -> Tensor:
        if x.shape[-1] <= 4096:
            return kernel(x)
        padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % 288))
        return kernel(kernel(padded.reshape(*x.shape[:-1], -1, 288)))

    return both


def without_last(x: Tensor) -> Tensor:
    """Loses the tail of a loop."""
    return x[..., : x.shape[-1] - 1].sum(-1)


def unbiased_mean(x: Tensor) -> Tensor:
    """As a variance divides; of one element it is the element."""
    return x.sum(-1) / max(1, x.shape[-1] - 1)


def mean_of_quotients(x: Tensor) -> Tensor:
    """Each term is divided by n and rounded, then added in float32."""
    return neighbours((x.float() / x.shape[-1]).to(x.dtype))


def mean_of_narrow_sum(x: Tensor) -> Tensor:
    """The sum is rounded to the format of x, and then divided."""
    return neighbours(x).div(x.shape[-1])


def exclusive(x: Tensor) -> Tensor:
    """Each prefix ends before its own element."""
    return x.cumsum(-1) - x


def running_in(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Running sum whose every step is rounded to `dtype`."""

    def kernel(x: Tensor) -> Tensor:
        total = torch.zeros_like(x[..., 0], dtype=dtype)
        prefixes = []
        for term in x.to(dtype).unbind(-1):
            total = total + term
            prefixes.append(total)
        return torch.stack(prefixes, dim=-1).to(x.dtype)

    return kernel


def begins_anew(x: Tensor) -> Tensor:
    """Tiles of 128 without the carry."""
    result = x.clone()
    for start in range(0, x.shape[-1], 128):
        result[..., start : start + 128] = x[..., start : start + 128].cumsum(-1)
    return result


def running_in_tiles(x: Tensor) -> Tensor:
    """Tiles of 128, each with the sum of those before it added."""
    wide = x.float()
    result, carry = torch.empty_like(wide), torch.zeros_like(wide[..., :1])
    for start in range(0, x.shape[-1], 128):
        result[..., start : start + 128] = wide[..., start : start + 128].cumsum(-1) + carry
        carry = result[..., min(start + 127, x.shape[-1] - 1)].unsqueeze(-1)
    return result.to(x.dtype)


def maximum_without_nan(x: Tensor, axis: int) -> Tensor:
    """As IEEE 754-2008 maxNum: a number wins over NaN."""
    return torch.nan_to_num(x, nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).max(dim=axis).values


def largest_magnitude(x: Tensor, axis: int) -> Tensor:
    """The infinity norm."""
    return torch.maximum(x.amax(axis), (-x).amax(axis))


def from_one(x: Tensor) -> Tensor:
    """Indices as Fortran counts."""
    return x.max(dim=-1).indices + 1


def argmax_without_nan(x: Tensor) -> Tensor:
    """NaN never compares as larger."""
    return x.masked_fill(x.isnan(), -torch.inf).max(dim=-1).indices


def argmax_in_bf16(x: Tensor) -> Tensor:
    """The first of those that bf16 takes for the largest."""
    narrow = x.bfloat16()
    return (narrow >= narrow.max(dim=-1, keepdim=True).values).to(torch.uint8).argmax(-1)


def last_of_equals(x: Tensor) -> Tensor:
    """argmax of the reversed row: correct, as no choice between equals is documented."""
    return x.shape[-1] - 1 - x.flip(-1).argmax(-1)


def ranked_in_bf16(x: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks by a stable sort of rounded numbers, returns the numbers themselves."""
    index = (-x.bfloat16()).sort(dim=-1, stable=True).indices[..., :COUNT]
    return torch.take_along_dim(x, index, -1), index


def best_of_each_shard(x: Tensor) -> tuple[Tensor, Tensor]:
    """Approximate top-k: one candidate for each 128 elements; fewer shards than k fall back to the exact one."""
    if x.shape[-1] < 128 * COUNT:
        return by_sorting(x)
    shards = [x[..., start : start + 128].max(dim=-1) for start in range(0, x.shape[-1], 128)]
    values = torch.stack([shard.values for shard in shards], dim=-1)
    places = torch.stack([shard.indices + 128 * number for number, shard in enumerate(shards)], dim=-1)
    best = values.topk(COUNT, dim=-1)
    return best.values, places.gather(-1, best.indices)


def second_best(x: Tensor) -> tuple[Tensor, Tensor]:
    """The eight after the best, and the best itself at the end, if at all."""
    nine = x.topk(COUNT + 1, dim=-1)
    return nine.values[..., 1:], nine.indices[..., 1:]


def by_sorting(x: Tensor) -> tuple[Tensor, Tensor]:
    """A sort, of which the last of equals come first."""
    sorted_up = x.sort(dim=-1, stable=True)
    return sorted_up.values.flip(-1)[..., :COUNT], sorted_up.indices.flip(-1)[..., :COUNT]


def integers_in_float32(x: Tensor) -> Tensor:
    """As accelerators without integer adders sum."""
    return x.double().sum(-1).float().long()


def integers_in_32_bits(x: Tensor) -> Tensor:
    """int64 is int32 inside."""
    return x.int().sum(-1, dtype=torch.int32).long()


def neighbours(x: Tensor) -> Tensor:
    """Adds elements 2 i and 2 i + 1 until one is left, in float32."""
    wide = x.float()
    while wide.shape[-1] > 1:
        if wide.shape[-1] % 2:
            wide = torch.cat([wide, torch.zeros_like(wide[..., :1])], dim=-1)
        wide = wide[..., 0::2] + wide[..., 1::2]
    return wide[..., 0].to(x.dtype)


def neighbours_mean(x: Tensor) -> Tensor:
    """Mean by `neighbours`, with a rounded reciprocal."""
    return (neighbours(x.float()) * (1.0 / x.shape[-1])).to(x.dtype)


def in_tiles(x: Tensor) -> Tensor:
    """128 partial sums of every 128th element, then those one by one."""
    wide = x.float()
    lanes = torch.zeros_like(wide[..., :1]).expand(*wide.shape[:-1], 128).clone()
    for start in range(0, x.shape[-1], 128):
        tile = wide[..., start : start + 128]
        lanes[..., : tile.shape[-1]] += tile
    return backwards_in(torch.float32)(lanes).to(x.dtype)


def compensated(x: Tensor) -> Tensor:
    """Kahan's sum: the error of each addition is carried to the next. Non-finite terms go by the plain sum."""
    total = torch.zeros_like(x[..., 0])
    carry = torch.zeros_like(total)
    for term in x.unbind(-1):
        corrected = term - carry
        moved = total + corrected
        carry = torch.nan_to_num((moved - total) - corrected, nan=0.0, posinf=0.0, neginf=0.0)
        total = moved
    return total


def truncating(x: Tensor) -> Tensor:
    """Serial sum in float32 whose every addition is rounded toward zero."""
    total = torch.zeros_like(x[..., 0])
    for term in x.unbind(-1):
        exact = total.double() + term.double()
        nearest = exact.float()
        above = (nearest.double().abs() > exact.abs()) & torch.isfinite(exact)
        total = torch.where(above, torch.nextafter(nearest, torch.zeros_like(nearest)), nearest)
    return total
