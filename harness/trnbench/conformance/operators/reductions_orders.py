"""Correct sums in several orders: permitted implementations, from which the statistics of tier T3 take their limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.arithmetic import Arithmetic


def pairwise(values: Tensor) -> Tensor:
    """Sum of the last axis in float32 by halves, in the format of `values`."""
    wide = values.float()
    while wide.shape[-1] > 1:
        half = wide.shape[-1] // 2
        rest = wide[..., 2 * half :]
        wide = torch.cat([wide[..., :half] + wide[..., half : 2 * half], rest], dim=-1)
    return wide[..., 0].to(values.dtype)


def serial(values: Tensor) -> Tensor:
    """Sum of the last axis in float32, first to last."""
    wide = values.float()
    total = torch.zeros_like(wide[..., 0])
    for place in range(wide.shape[-1]):
        total = total + wide[..., place]
    return total.to(values.dtype)


def tiled(values: Tensor) -> Tensor:
    """Sum of the last axis in float32, in tiles of 128 whose sums are then added first to last."""
    wide = values.float()
    total = torch.zeros_like(wide[..., 0])
    for start in range(0, wide.shape[-1], 128):
        total = total + pairwise(wide[..., start : start + 128])
    return total.to(values.dtype)


def truncating(values: Tensor) -> Tensor:
    """Serial sum of the last axis in float32 whose every addition is rounded toward zero."""
    wide = values.float()
    total = torch.zeros_like(wide[..., 0])
    for place in range(wide.shape[-1]):
        total = toward_zero(total.double() + wide[..., place].double())
    return total.to(values.dtype)


def toward_zero(exact: Tensor) -> Tensor:
    """float64 sums of two float32 numbers, truncated to float32."""
    nearest = exact.float()
    beyond = (nearest.double().abs() > exact.abs()) & torch.isfinite(exact)
    return torch.where(beyond, torch.nextafter(nearest, torch.zeros_like(nearest)), nearest)


def sums_under(arithmetic: Arithmetic) -> dict[str, Callable[..., Tensor]]:
    """What else is correct where accumulation truncates."""
    return {"truncating": truncating} if arithmetic.accumulates_toward_zero else {}


def means_under(arithmetic: Arithmetic) -> dict[str, Callable[..., Tensor]]:
    """As `sums_under`."""
    return {name: mean_by(order) for name, order in sums_under(arithmetic).items()}


def mean_by(reduce: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Mean of the last axis by a sum in float32."""
    return lambda values: (reduce(values.float()) / values.shape[-1]).to(values.dtype)


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {"pairwise": pairwise, "serial": serial, "tiles of 128": tiled}
"""Of rows only: the floor is taken from the first output."""
