"""The definition of block-scaled quantisation, on the host: scales by their rule, elements to nearest even, saturated.

What MX 1.0 (section 6.3) leaves open is settled so that C2's mistake cannot happen: a block with a NaN or an infinity
gets the scale NaN, whatever its elements, and is NaN when read; saturation never hides that input was not finite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from trnbench.conformance.formats.scalar import cast, decode, is_nan_code, same_codes
from trnbench.conformance.inputs import generator

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from trnbench.conformance.formats.block_formats import BlockFormat, Rule
    from trnbench.conformance.formats.definitions import Format

Codes = np.ndarray[Any, np.dtype[np.int64]]

BLOCKS_PER_KIND = 8
"""Rows of each random kind in `block_inputs`."""

WIDTH = 64
"""Of every row: two MX blocks, four of NVFP4; one shape for all, so that compiling devices compile once."""


class Quantised(msgspec.Struct, frozen=True, kw_only=True):
    """Element codes (rows, n), scale codes (rows, n / block) and, for two levels, the fp32 scale of the tensor."""

    codes: Codes
    scales: Codes
    tensor_scale: float = 1.0


def scale_codes(amax: NDArray[np.float32], element: Format, rule: Rule) -> Codes:
    """e8m0 codes by `rule` of finite magnitudes `amax` (any shape): zero and tiny blocks get code 0, 2^-127."""
    exact = amax.astype(np.float64)
    significand, exponent = np.frexp(exact)
    floor = np.where(exact > 0.0, exponent - 1, -1000)
    power = floor - (element.max_exponent - 1 if rule == "trn3" else element.max_exponent)
    if rule == "rceil":
        # The least power of two s with amax <= max * s, without a rounded quotient.
        power = power + (2.0 * significand > element.max * 2.0**-element.max_exponent)
    return np.asarray(np.clip(power, -127, 127) + 127, dtype=np.int64)


def quantise(values: ArrayLike, one: BlockFormat) -> Quantised:
    """Quantise fp32 `values` of shape (rows, n), n a multiple of the block size.

    Raises `ValueError` where n is no such multiple.
    """
    exact = np.asarray(values, dtype=np.float32)
    blocks = blocked(exact, one.block)
    if one.rule == "two-level":
        return _quantise_two_level(exact, blocks, one)
    amax = np.abs(blocks).max(axis=-1)
    usable = np.isfinite(amax)
    scales = scale_codes(np.where(usable, amax, np.float32(0.0)), one.element_format, one.rule)
    # Exact: float64 holds any fp32 number times a power of two down to 2^-254.
    scaled = np.ldexp(blocks.astype(np.float64), (127 - scales)[..., None])
    codes = _element_codes(np.where(usable[..., None], scaled, 0.0), one.element_format)
    # 255, the NaN of e8m0.
    scales = np.where(usable, scales, (1 << one.scale_format.bits) - 1)
    return Quantised(codes=codes.reshape(exact.shape), scales=scales)


def _quantise_two_level(exact: NDArray[np.float32], blocks: NDArray[np.float32], one: BlockFormat) -> Quantised:
    """NVFP4. Every operation is one fp32 operation of IEEE 754, in the order of the formula; part of the definition.

    A block whose scale is zero, because it is zero or because the scale underflows, has elements of zero. A tensor
    that is not finite has the tensor scale NaN; one of zeros has 1.
    """
    element, scale = one.element_format, one.scale_format
    largest = np.float32(np.abs(exact).max())
    if not np.isfinite(largest):
        nothing = np.zeros(exact.shape, dtype=np.int64)
        return Quantised(codes=nothing, scales=np.zeros(blocks.shape[:-1], dtype=np.int64), tensor_scale=float("nan"))
    tensor_scale = largest / np.float32(scale.max * element.max) if largest > 0 else np.float32(1.0)
    amax = np.abs(blocks).max(axis=-1)
    wanted = (amax / np.float32(element.max)) / tensor_scale
    scales = cast(wanted, scale, overflow="saturate")
    total = decode(scale, scales).astype(np.float32) * tensor_scale
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(total[..., None] > 0, blocks / total[..., None], np.copysign(np.float32(0), blocks))
    codes = _element_codes(scaled.astype(np.float64), element)
    return Quantised(codes=codes.reshape(exact.shape), scales=scales, tensor_scale=float(tensor_scale))


def _element_codes(scaled: NDArray[np.float64], element: Format) -> Codes:
    """Saturated to nearest even, also in formats that have an infinity."""
    return cast(np.clip(scaled, -element.max, element.max), element)


def dequantise(one: BlockFormat, quantised: Quantised) -> NDArray[np.float32]:
    """fp32 values of shape (rows, n): elements times the scale of their block; NaN where either is."""
    elements = blocked(decode(one.element_format, quantised.codes), one.block)
    scales = decode(one.scale_format, quantised.scales)[..., None]
    if one.rule == "two-level":
        total = scales.astype(np.float32) * np.float32(quantised.tensor_scale)
        values = elements.astype(np.float32) * total
    else:
        with np.errstate(over="ignore"):
            values = (elements * scales).astype(np.float32)
    return np.asarray(values.reshape(quantised.codes.shape), dtype=np.float32)


def blocked(values: NDArray[Any], block: int) -> NDArray[Any]:
    """(rows, n) as (rows, n / block, block). Raises `ValueError` where n is no multiple of `block`."""
    if values.shape[-1] % block:
        raise ValueError(f"rows of {values.shape[-1]} elements are no whole number of blocks of {block}")
    return values.reshape(*values.shape[:-1], values.shape[-1] // block, block)


def wrong_elements(one: BlockFormat, found: Quantised, due: Quantised) -> NDArray[np.bool_]:
    """Which elements are wrong, by code or by their block's scale; elements of a NaN scale do not matter.

    Shapes must agree. A wrong tensor scale makes all elements wrong.
    """
    same_tensor = found.tensor_scale == due.tensor_scale or bool(np.isnan([found.tensor_scale, due.tensor_scale]).all())
    if not same_tensor:
        return np.ones(due.codes.shape, dtype=bool)
    scale_right = same_codes(one.scale_format, found.scales, due.scales)
    open_scale = is_nan_code(one.scale_format, due.scales) | np.isnan(due.tensor_scale)
    right = blocked(same_codes(one.element_format, found.codes, due.codes), one.block)
    wrong = ~scale_right[..., None] | (~right & ~open_scale[..., None])
    return np.asarray(wrong.reshape(due.codes.shape))


def block_inputs(one: BlockFormat, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """fp32 arrays of shape (rows, WIDTH) by name; each is quantised for itself.

    "ordinary": gaussian, uniform and wide-range blocks, largest magnitudes on and beside every edge of a scale rule,
    one outlier, ties between elements; "zero": both zeros; "tiny" and "huge": the ends of normal fp32 numbers;
    "subnormal": below 2^-126, where a device that flushes shows it; "NaN" and "infinity": one such element a row.
    """
    rng = generator(f"blocks {one.name}", seed)
    shape = (BLOCKS_PER_KIND, WIDTH)
    powers = np.exp2(rng.integers(-6, 7, (BLOCKS_PER_KIND, 1)))
    outlier = rng.standard_normal(shape)
    outlier[:, 3] *= 1e4
    ordinary = [rng.standard_normal(shape), rng.uniform(-1.0, 1.0, shape), rng.standard_normal(shape) * powers, outlier]
    ordinary += [_edges(one, rng), _ties(one, rng)]
    # Two levels divide by 2688 and more: start where their quotients stay normal numbers too.
    lowest = -100 if one.rule == "two-level" else -126
    near_tiny = np.exp2(rng.integers(lowest, lowest + 16, shape)) * rng.choice([-1.0, 1.0], shape)
    near_huge = rng.uniform(0.5, 1.0, shape) * np.finfo(np.float32).max * rng.choice([-1.0, 1.0], shape)
    with_nan, with_infinity = rng.standard_normal(shape), rng.standard_normal(shape)
    with_nan[:, one.block // 2] = np.nan
    with_infinity[:, one.block // 2] = np.where(np.arange(BLOCKS_PER_KIND) % 2, np.inf, -np.inf)
    half_zero = rng.standard_normal(shape)
    half_zero[:, : one.block] = np.copysign(0.0, half_zero[:, : one.block])
    kinds = {
        "ordinary": np.concatenate(ordinary),
        "zero": np.concatenate([np.zeros((1, WIDTH)), -np.zeros((1, WIDTH)), half_zero]),
        "tiny": near_tiny,
        "huge": near_huge,
        "subnormal": rng.uniform(-1.0, 1.0, shape) * np.finfo(np.float32).tiny,
        "NaN": with_nan,
        "infinity": with_infinity,
    }
    return {name: np.asarray(values, dtype=np.float32) for name, values in kinds.items()}


def _edges(one: BlockFormat, rng: np.random.Generator) -> NDArray[np.float64]:
    """Rows whose largest magnitude lies on, just below and just above the edges of all rules: 2^k and max * 2^k."""
    element = one.element_format
    edges = np.array([1.0, element.max * 2.0**-element.max_exponent], dtype=np.float32)
    nearby = np.concatenate([np.nextafter(edges, np.float32(0)), edges, np.nextafter(edges, np.float32(np.inf))])
    rows = rng.uniform(-0.9, 0.9, (len(nearby), WIDTH))
    rows[:, 0] = nearby
    rows[:, one.block] = -nearby * 8.0
    return np.asarray(rows)


def _ties(one: BlockFormat, rng: np.random.Generator) -> NDArray[np.float64]:
    """Blocks whose elements are midpoints of neighbouring element values, the largest power of two among them."""
    element = one.element_format
    numbers = decode(element, np.arange(element.max_code + 1))
    middles = np.append((numbers[:-1] + numbers[1:]) / 2.0, numbers)
    rows = rng.choice(middles, (BLOCKS_PER_KIND, WIDTH)) * rng.choice([-1.0, 1.0], (BLOCKS_PER_KIND, WIDTH))
    rows[:, 0], rows[:, one.block] = 2.0**element.max_exponent, 2.0**element.max_exponent
    return np.asarray(rows)
