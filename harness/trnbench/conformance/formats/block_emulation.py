"""Block-scaled formats computed on the device in fp32 arithmetic, since PyTorch has no dtype for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.formats.definitions import FORMATS
from trnbench.conformance.formats.emulation import encoder
from trnbench.conformance.formats.powers import is_negative

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.formats.block_formats import BlockFormat
    from trnbench.conformance.formats.definitions import Format
    from trnbench.conformance.formats.powers import Powers

_NAN_SCALE = 255


def block_quantiser(one: BlockFormat, powers: Powers) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    """A function from fp32 (rows, n) to int32 element codes (rows, n), scale codes (rows, n / block), tensor scale ().

    The definition is `blocks.quantise`; every step here is exact, or one fp32 operation where two levels divide.
    """
    return _two_level_quantiser(one, powers) if one.rule == "two-level" else _power_quantiser(one, powers)


def _power_quantiser(one: BlockFormat, powers: Powers) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    element = one.element_format
    encode = encoder(element, powers)
    room = element.max_exponent - 1 if one.rule == "trn3" else element.max_exponent
    largest_significand = element.max * 2.0**-element.max_exponent

    def quantise(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        blocks = values.reshape(values.shape[0], -1, one.block)
        magnitude = blocks.abs()
        # Not through amax, which drops NaN on some devices.
        finite = magnitude <= torch.finfo(torch.float32).max
        usable = finite.all(dim=-1)
        amax = torch.where(finite, magnitude, torch.zeros_like(magnitude)).amax(dim=-1)
        exponent, significand = powers.split(amax)
        power = exponent - room
        if one.rule == "rceil":
            power = power + (significand > largest_significand).to(torch.int32)
        power = torch.clamp(power, min=-127, max=126)
        scaled = blocks * powers.power(-power).unsqueeze(-1)
        clamped = torch.clamp(scaled, min=-element.max, max=element.max)
        codes = encode(torch.where(usable.unsqueeze(-1), clamped, torch.zeros_like(clamped)))
        scales = torch.where(usable, power + 127, torch.full_like(power, _NAN_SCALE))
        return codes.reshape(values.shape), scales, torch.ones((), dtype=torch.float32, device=values.device)

    return quantise


def _two_level_quantiser(one: BlockFormat, powers: Powers) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    element, scale = one.element_format, one.scale_format
    encode_element, encode_scale = encoder(element, powers), encoder(scale, powers)

    def quantise(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        blocks = values.reshape(values.shape[0], -1, one.block)
        magnitude = blocks.abs()
        finite = magnitude <= torch.finfo(torch.float32).max
        usable = finite.all()
        amax = torch.where(finite, magnitude, torch.zeros_like(magnitude)).amax(dim=-1)
        largest = amax.reshape(-1).amax(dim=0)
        # Tensors as divisors, so that no compiler multiplies by a rounded reciprocal instead.
        tensor_scale = largest / torch.full_like(largest, scale.max * element.max)
        tensor_scale = torch.where(largest > 0.0, tensor_scale, torch.ones_like(tensor_scale))
        wanted = (amax / torch.full_like(amax, element.max)) / tensor_scale
        scales = encode_scale(torch.clamp(wanted, max=scale.max))
        total = _small_value(scales, scale, powers) * tensor_scale
        total = total.unsqueeze(-1)
        empty = torch.where(is_negative(blocks), torch.full_like(blocks, -0.0), torch.zeros_like(blocks))
        scaled = torch.where(total > 0.0, blocks / torch.where(total > 0.0, total, torch.ones_like(total)), empty)
        clamped = torch.clamp(scaled, min=-element.max, max=element.max)
        codes = encode_element(torch.where(usable, clamped, torch.zeros_like(clamped)))
        scales = torch.where(usable, scales, torch.zeros_like(scales))
        tensor_scale = torch.where(usable, tensor_scale, torch.full_like(tensor_scale, float("nan")))
        return codes.reshape(values.shape), scales, tensor_scale

    return quantise


def _small_value(codes: Tensor, source: Format, powers: Powers) -> Tensor:
    """fp32 value of non-negative finite codes, by arithmetic."""
    whole = codes // (1 << source.fraction_bits)
    fraction = codes - whole * (1 << source.fraction_bits)
    normal = whole > 0
    significand = fraction + torch.where(
        normal, torch.full_like(codes, 1 << source.fraction_bits), torch.zeros_like(codes)
    )
    exponent = torch.clamp(whole - 1, min=0) + (source.least_exponent - source.fraction_bits)
    return significand.to(torch.float32) * powers.power(exponent)


def block_dequantiser(one: BlockFormat, powers: Powers) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """A function from element codes (rows, n), scale codes, tensor scale and the element table to fp32 (rows, n)."""
    scale = FORMATS[one.scale]

    def dequantise(codes: Tensor, scales: Tensor, tensor_scale: Tensor, table: Tensor) -> Tensor:
        elements = torch.index_select(table, 0, codes.reshape(-1)).reshape(codes.shape[0], -1, one.block)
        if one.rule == "two-level":
            total = _small_value(scales, scale, powers) * tensor_scale
            return (elements * total.unsqueeze(-1)).reshape(codes.shape)
        power = torch.where(scales == _NAN_SCALE, torch.full_like(scales, 127), scales) - 127
        # 2^-127 is no normal number: two factors, so that a flushing device keeps it.
        half = power // 2
        values = elements * powers.power(half).unsqueeze(-1) * powers.power(power - half).unsqueeze(-1)
        nan = torch.full_like(values, float("nan"))
        return torch.where((scales == _NAN_SCALE).unsqueeze(-1), nan, values).reshape(codes.shape)

    return dequantise
