"""Formats that a device lacks, computed on the device in fp32 arithmetic, exactly.

Products with powers of two are exact as long as they stay normal numbers, so that nothing is rounded but by the one
rounding to an integer, which is to nearest even (torch.round).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.formats.powers import is_negative
from trnbench.conformance.formats.scalar import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from trnbench.conformance.formats.definitions import Format
    from trnbench.conformance.formats.powers import Powers


def encoder(target: Format, powers: Powers) -> Callable[[Tensor], Tensor]:
    """A function from fp32 values to int32 codes of `target` (any shape), to nearest even, to run on the device.

    Overflow goes the first way that the format permits, infinities too; NaN becomes the format's NaN. Not for e8m0 and
    for formats whose subnormal numbers are fp32's own (bf16, tf32), which flushing devices could not represent.
    """
    largest, nan = target.max_code, target.nan_code or 0
    infinity = target.infinity_code
    beyond = largest if target.overflow[0].startswith("saturate") else nan if infinity is None else infinity
    sign_bit = 1 << (target.bits - 1)
    least = target.least_exponent

    def encode(values: Tensor) -> Tensor:
        magnitude = values.abs()
        usable = magnitude <= torch.finfo(torch.float32).max
        finite = torch.where(usable, magnitude, torch.zeros_like(magnitude))
        exponent, significand = powers.split(finite)
        # Below the least normal exponent the significand is shifted right instead: the subnormal numbers of the target.
        shift = torch.clamp(least - exponent, min=0, max=target.fraction_bits + 2)
        scaled = significand * powers.power(-shift) * float(1 << target.fraction_bits)
        steps = torch.round(scaled).to(torch.int32)
        codes = steps + torch.clamp(exponent - least, min=0) * (1 << target.fraction_bits)
        codes = torch.where(codes > largest, torch.full_like(codes, beyond), codes)
        codes = torch.where(magnitude == float("inf"), torch.full_like(codes, beyond), codes)
        negative = is_negative(values)
        if not target.has_negative_zero:
            negative = negative & (codes > 0) & (codes != nan)
        codes = torch.where(negative, codes + sign_bit, codes)
        return torch.where(torch.isnan(values), torch.full_like(codes, nan), codes)

    return encode


def rounder(significant_bits: int, powers: Powers) -> Callable[[Tensor], Tensor]:
    """A function that rounds fp32 to `significant_bits` at fp32's own range (tf32: 11), to nearest even, in fp32.

    Exact for normal numbers; subnormal numbers and infinities keep their value, NaN loses its payload.
    """

    def round_to(values: Tensor) -> Tensor:
        magnitude = values.abs()
        usable = (magnitude <= torch.finfo(torch.float32).max) & (magnitude >= torch.finfo(torch.float32).tiny)
        normal = torch.where(usable, magnitude, torch.ones_like(magnitude))
        exponent, significand = powers.split(normal)
        steps = torch.round(significand * 2.0 ** (significant_bits - 1)) * 2.0 ** (1 - significant_bits)
        rounded = steps * powers.power(exponent)
        signed = torch.where(is_negative(values), -rounded, rounded)
        kept = torch.where(torch.isnan(values), torch.full_like(values, float("nan")), values)
        return torch.where(usable, signed, kept)

    return round_to


def decode_table(source: Format) -> NDArray[np.float32]:
    """The fp32 value of every code of `source`, for a lookup on the device."""
    import numpy as np

    return decode(source, np.arange(1 << source.bits)).astype(np.float32)


def decoder() -> Callable[[Tensor, Tensor], Tensor]:
    """A function from int32 codes and the table to fp32 values: one gather."""

    def look_up(codes: Tensor, table: Tensor) -> Tensor:
        return torch.index_select(table, 0, codes.reshape(-1)).reshape(codes.shape)

    return look_up


def halves_decoder() -> Callable[[Tensor, Tensor], Tensor]:
    """A function from bytes (int32) and the table of a 4-bit format to fp32 values, the low half of a byte first."""

    def look_up(packed: Tensor, table: Tensor) -> Tensor:
        high = packed // 16
        halves = torch.stack([packed - 16 * high, high], dim=-1).reshape(-1)
        return torch.index_select(table, 0, halves)

    return look_up
