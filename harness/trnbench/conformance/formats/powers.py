"""Exponents and powers of two of fp32 tensors on a device, exactly, in two ways.

By bits where the device can reinterpret fp32 as int32; else by a binary search that only compares and multiplies by
powers of two, for torch-xla runs the reinterpretation on the host, and exp2 and log2 are approximate on accelerators.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import torch
from torch import Tensor

_STEPS = (64, 32, 16, 8, 4, 2, 1)
"""Of the binary search for exponents 0 to 127."""


class Powers(msgspec.Struct, frozen=True, kw_only=True):
    """`split(m)`: floor(log2 m) as int32 and m * 2^-floor(log2 m) in [1, 2) for finite normal fp32 m >= 0, any shape.

    Zero and subnormal numbers have exponent -127, and any significand below 2. `power(e)`: 2^e in fp32 for int32 e from
    -126 to 127.
    """

    name: str
    split: Callable[[Tensor], tuple[Tensor, Tensor]]
    power: Callable[[Tensor], Tensor]


def _split_by_bits(magnitude: Tensor) -> tuple[Tensor, Tensor]:
    bits = magnitude.view(torch.int32)
    exponent = (bits >> 23) - 127
    return exponent, ((bits & 0x7FFFFF) | 0x3F800000).view(torch.float32)


def _power_by_bits(exponent: Tensor) -> Tensor:
    return ((exponent + 127) << 23).view(torch.float32)


def _split_by_search(magnitude: Tensor) -> tuple[Tensor, Tensor]:
    small = magnitude < 1.0
    rest = magnitude
    exponent = torch.zeros_like(magnitude, dtype=torch.int32)
    for step in _STEPS:
        above = ~small & (rest >= 2.0**step)
        rest = torch.where(above, rest * 2.0**-step, rest)
        exponent = torch.where(above, exponent + step, exponent)
    for step in _STEPS:
        # After a step of s, 2^(1 - s) <= rest < 2 holds, and 1 <= rest after the last.
        below = small & (rest < 2.0 ** (1 - step))
        rest = torch.where(below, rest * 2.0**step, rest)
        exponent = torch.where(below, exponent - step, exponent)
    return exponent, rest


def _power_by_search(exponent: Tensor) -> Tensor:
    result = torch.ones_like(exponent, dtype=torch.float32)
    rest = exponent.abs()
    up = exponent >= 0
    for step in _STEPS:
        take = rest >= step
        factor = torch.where(up, torch.full_like(result, 2.0**step), torch.full_like(result, 2.0**-step))
        result = torch.where(take, result * factor, result)
        rest = torch.where(take, rest - step, rest)
    return result


BY_BITS = Powers(name="by bits", split=_split_by_bits, power=_power_by_bits)
BY_SEARCH = Powers(name="by search", split=_split_by_search, power=_power_by_search)


def is_negative(values: Tensor) -> Tensor:
    """Sign of fp32 numbers, of zeros too; without signbit, which torch-xla runs on the host. NaN is not negative."""
    return (values < 0.0) | ((values == 0.0) & (1.0 / values < 0.0))
