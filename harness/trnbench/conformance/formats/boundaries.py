"""Inputs that tell every cast from every other: all numbers of a format, what lies between them, and all edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trnbench.conformance.formats.scalar import all_codes, decode
from trnbench.conformance.inputs import generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trnbench.conformance.formats.definitions import Format

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]

RANDOM = 4096
"""Random bit patterns beside the systematic inputs."""

NAN_PATTERNS = (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FBFFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F80FFFF)
"""fp32 NaN of both signs, quiet and signalling; a payload in the low bits alone becomes infinity when truncated."""


def boundary_inputs(target: Format, source: str = "fp32", seed: int = 0) -> Floats:
    """Inputs of a cast to `target`, float32 for source "fp32" and float64 for "fp64", one axis.

    Each number of the target, each midpoint of two neighbours and the source's numbers next to the midpoint on either
    side; numbers at, just below and far beyond the overflow threshold; both zeros, infinities, NaN with several
    payloads; subnormal numbers of the source; random bit patterns. Where target has more than 2^16 codes, a random
    choice of them. Unsigned targets get positive normal numbers and NaN only, for the formats leave the rest open.
    """
    dtype: type[np.floating[Any]] = np.float32 if source == "fp32" else np.float64
    rng = generator(f"boundaries {target.name} {source}", seed)
    numbers = _numbers(target, rng)
    magnitudes = np.unique(np.abs(numbers[np.isfinite(numbers)]))
    # The step after the largest number counts too: half of it is where overflow starts.
    after = magnitudes[-1] + (magnitudes[-1] - magnitudes[-2])
    ladder = np.append(magnitudes, after) if target.bits <= 16 else magnitudes
    middles = ((ladder[:-1] + ladder[1:]) / 2.0).astype(dtype) if target.bits <= 16 else _next_middles(target, ladder)
    with np.errstate(over="ignore", under="ignore"):
        near = [magnitudes, middles, np.nextafter(middles, dtype(0)), np.nextafter(middles, dtype(np.inf))]
        near += [np.array([after, 2.0 * after, 1e3 * after, np.finfo(dtype).max, np.inf])]
        near += [_small(dtype)]
        positive = np.concatenate([part.astype(dtype) for part in near])
    patterns = rng.integers(0, 2**32, RANDOM, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        nan = np.array(NAN_PATTERNS, dtype=np.uint32).view(np.float32)
        rest = [_spread(target, rng), patterns.astype(dtype), nan.astype(dtype)]
        everything = np.concatenate([positive, -positive, *rest])
    if not target.signed:
        with np.errstate(invalid="ignore"):
            usable = np.isnan(everything) | (np.isfinite(everything) & (everything >= np.finfo(np.float32).tiny))
        everything = everything[usable]
    return everything if target.has_nan else everything[~np.isnan(everything)]


def _numbers(target: Format, rng: np.random.Generator) -> NDArray[np.float64]:
    codes = all_codes(target) if target.bits <= 16 else rng.integers(0, target.max_code, RANDOM)
    return decode(target, codes)


def _next_middles(target: Format, magnitudes: NDArray[np.float64]) -> Floats:
    """For a target of many codes: halfway to the next number, whose distance follows from the exponent."""
    exponent = np.maximum(np.frexp(magnitudes)[1] - 1, target.least_exponent)
    step = np.ldexp(np.ones_like(magnitudes), exponent - target.fraction_bits)
    return np.asarray(magnitudes + step / 2.0)


def _small(dtype: type[np.floating[Any]]) -> Floats:
    """Zero and numbers around the least normal and the least subnormal of the source."""
    tiny, least = np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal
    return np.array([0.0, least, 3 * least, tiny / 2, tiny - least, tiny, tiny + least], dtype=dtype)


def _spread(target: Format, rng: np.random.Generator) -> Floats:
    """Normal numbers over the target's range of exponents, four binades more on either side."""
    low = max(target.least_exponent - target.fraction_bits - 4, -140)
    high = min(target.max_exponent + 4, 127)
    values = rng.uniform(1.0, 2.0, RANDOM) * np.exp2(rng.integers(low, high, RANDOM))
    return np.asarray(values.astype(np.float32))
