"""The definition of every scalar format, on the host in float64: decode any code, cast any number, exactly.

float64 holds every number of every format here and every midpoint between two of them, so nothing is rounded twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from trnbench.conformance.formats.definitions import Format, Overflow

Rounding = Literal["nearest even", "nearest away", "toward zero", "up in magnitude"]


def all_codes(one: Format) -> NDArray[np.int64]:
    """Every code of a format of at most 16 bits, in order. Raises `ValueError` for a wider format."""
    if one.bits > 16:
        raise ValueError(f"{one.name} has 2^{one.bits} codes, too many to list")
    return np.arange(1 << one.bits)


def decode(one: Format, codes: ArrayLike) -> NDArray[np.float64]:
    """What `codes` mean in `one`, in float64 (shape as given); bits above the format's width are ignored."""
    whole = np.asarray(codes).astype(np.int64) & ((1 << one.bits) - 1)
    magnitude = whole & ((1 << (one.exponent_bits + one.fraction_bits)) - 1)
    fraction = magnitude & ((1 << one.fraction_bits) - 1)
    exponent = magnitude >> one.fraction_bits
    normal = exponent > 0 if one.signed else np.ones_like(exponent, dtype=bool)
    significand = fraction + np.where(normal, 1 << one.fraction_bits, 0)
    shift = np.where(normal, exponent - one.bias, one.least_exponent) - one.fraction_bits
    values = np.ldexp(significand.astype(np.float64), shift)
    negative = (whole >> (one.bits - 1) == 1) & one.signed
    values = np.where(negative, -values, values)
    if one.has_infinity:
        values = np.where(magnitude == one.max_code + 1, np.where(negative, -np.inf, np.inf), values)
    return np.where(is_nan_code(one, whole), np.nan, values)


def is_nan_code(one: Format, codes: ArrayLike) -> NDArray[np.bool_]:
    """Which codes are NaN, of whatever sign and payload."""
    whole = np.asarray(codes).astype(np.int64) & ((1 << one.bits) - 1)
    magnitude = whole & ((1 << (one.exponent_bits + one.fraction_bits)) - 1)
    if one.specials == "ieee":
        return np.asarray(magnitude > one.max_code + 1)
    if one.specials in ("fn", "e8m0"):
        return np.asarray(magnitude > one.max_code)
    if one.specials == "fnuz":
        return np.asarray(whole == one.nan_code)
    return np.zeros(whole.shape, dtype=bool)


def cast(
    values: ArrayLike,
    one: Format,
    *,
    rounding: Rounding = "nearest even",
    overflow: Overflow | None = None,
    flush: bool = False,
    limit_code: int | None = None,
) -> NDArray[np.int64]:
    """Codes of `values` (any float type, shape kept) in `one`, rounded once.

    `overflow` defaults to the first way that the format permits; `flush` turns subnormal results into zeros;
    `limit_code` saturates below the format's own largest number. NaN becomes the quiet code without payload, and zero
    in a format without NaN; e8m0 takes magnitudes, and gives 2^-127 for anything smaller, zero included.
    """
    with np.errstate(invalid="ignore"):  # signalling NaN
        exact = np.asarray(values).astype(np.float64)
    finite = np.isfinite(exact)
    magnitude = np.abs(np.where(finite, exact, 0.0))
    exponent = np.where(magnitude > 0.0, np.frexp(magnitude)[1] - 1, one.least_exponent)
    exponent = np.maximum(exponent, one.least_exponent)
    steps = _to_integer(np.ldexp(magnitude, one.fraction_bits - exponent), rounding).astype(np.int64)
    # Steps count from the exponent's own start, so a carry into the next exponent needs no care.
    codes = steps + ((exponent - one.least_exponent).astype(np.int64) << one.fraction_bits)
    codes = codes + (one.first_code - (1 << one.fraction_bits))
    codes = np.maximum(codes, 0)
    if flush:
        codes = np.where(codes < one.first_code, 0, codes)
    way = one.overflow[0] if overflow is None else overflow
    largest = one.max_code if limit_code is None else limit_code
    beyond = codes > largest
    infinity = _instead_of_infinity(one)
    codes = np.where(beyond, largest if way.startswith("saturate") else _overflow_code(one, way), codes)
    codes = np.where(np.isinf(exact), largest if way == "saturate" else infinity, codes)
    if one.signed:
        # A format without minus zero has its NaN there.
        signed = np.signbit(exact) & ((codes > 0) | one.has_negative_zero) & (codes != one.nan_code)
        codes = np.where(signed, codes | (1 << (one.bits - 1)), codes)
    nan = one.nan_code if one.nan_code is not None else 0
    return np.where(np.isnan(exact), nan, codes)


def _to_integer(steps: NDArray[np.float64], rounding: Rounding) -> NDArray[np.float64]:
    if rounding == "nearest even":
        return np.rint(steps)
    if rounding == "toward zero":
        return np.trunc(steps)
    return np.ceil(steps) if rounding == "up in magnitude" else np.floor(steps + 0.5)


def _instead_of_infinity(one: Format) -> int:
    """Infinity where the format has it, else NaN, else the largest number."""
    for code in (one.infinity_code, one.nan_code):
        if code is not None:
            return code
    return one.max_code


def _overflow_code(one: Format, way: str) -> int:
    code = one.infinity_code if way == "infinity" else one.nan_code
    return one.max_code if code is None else code


def same_codes(one: Format, found: ArrayLike, expected: ArrayLike) -> NDArray[np.bool_]:
    """Where codes agree: equal, or both NaN of whatever sign and payload."""
    mask = (1 << one.bits) - 1
    left, right = np.asarray(found).astype(np.int64) & mask, np.asarray(expected).astype(np.int64) & mask
    return np.asarray((left == right) | (is_nan_code(one, left) & is_nan_code(one, right)))


def same_values(found: ArrayLike, expected: ArrayLike) -> NDArray[np.bool_]:
    """Where values agree: equal with the same sign of zero, or both NaN."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        left, right = np.asarray(found).astype(np.float64), np.asarray(expected).astype(np.float64)
    equal = (left == right) & (np.signbit(left) == np.signbit(right))
    return np.asarray(equal | (np.isnan(left) & np.isnan(right)))


def pack_nibbles(codes: ArrayLike) -> NDArray[np.int64]:
    """Two 4-bit codes a byte along the last axis, the first in the low half (PyTorch's float4_e2m1fn_x2)."""
    pairs = np.asarray(codes).astype(np.int64)
    return np.asarray(pairs[..., 0::2] | (pairs[..., 1::2] << 4))


def unpack_nibbles(packed: ArrayLike) -> NDArray[np.int64]:
    """The 4-bit codes of bytes, the low half first."""
    whole = np.asarray(packed).astype(np.int64)
    return np.stack([whole & 15, whole >> 4 & 15], axis=-1).reshape(*whole.shape[:-1], 2 * whole.shape[-1])
