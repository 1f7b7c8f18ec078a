"""Named generators of adversarial inputs. No single one shows every fault, so each operator is tried with several.

Random numbers come from NumPy's PCG64 with explicit seeds, are made in float64 and rounded once to the precision, so
that every machine sees the same bits. Which fault each generator exposes: `gaussian` roundings of operands, `positive`
narrow accumulators, `wide range` norm-wise checks, `cancelling` partial sums rounded on the way, `outlier channels`
scaled formats, `all equal` saturating sums, `offset` one-pass variances, `huge` and `subnormal` the ends of the range.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray
    from torch import Tensor

Shape = tuple[int, ...]


def generator(name: str, seed: int) -> Generator:
    """NumPy generator for one named input: the same name and seed give the same numbers everywhere."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def rounded(values: NDArray[np.float64], dtype: torch.dtype) -> Tensor:
    """float64 values rounded once, to nearest even, to `dtype`.

    PyTorch narrows float64 to 16 bits through float32; rounding to odd on the way keeps the two roundings equal to one
    (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008, theorem 3).
    """
    if dtype in (torch.float64, torch.float32):
        return torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
    with np.errstate(over="ignore"):
        nearest = values.astype(np.float32)
    bits = nearest.view(np.uint32)
    inexact = np.isfinite(values) & np.isfinite(nearest) & (nearest.astype(np.float64) != values)
    # Away from zero where float32 overshot: step back to the truncated value, then set its last bit.
    overshot = inexact & (np.abs(nearest.astype(np.float64)) > np.abs(values))
    bits = np.where(overshot, bits - np.uint32(1), bits)
    bits = np.where(inexact, bits | np.uint32(1), bits)
    return torch.from_numpy(np.ascontiguousarray(bits).view(np.float32).copy()).to(dtype)


def gaussian(rng: Generator, shape: Shape, dtype: torch.dtype) -> NDArray[np.float64]:
    """Independent standard normal values."""
    return rng.standard_normal(shape)


def positive(rng: Generator, shape: Shape, dtype: torch.dtype) -> NDArray[np.float64]:
    """Uniform in [0.1, 1.1): sums only grow, so a narrow accumulator stops moving."""
    return rng.random(shape) + 0.1


def wide_range(rng: Generator, shape: Shape, dtype: torch.dtype) -> NDArray[np.float64]:
    """Normal values times 2^k, k uniform in -8 to 8 by element."""
    return rng.standard_normal(shape) * np.exp2(rng.integers(-8, 9, shape))


def cancelling(rng: Generator, shape: Shape, dtype: torch.dtype) -> NDArray[np.float64]:
    """Pairs x and -x along the last axis in random order, each disturbed by 2^-6: sums are small beside their terms."""
    half = shape[-1] // 2
    values = rng.standard_normal((*shape[:-1], half))
    both = np.concatenate([values, -values, np.zeros((*shape[:-1], shape[-1] - 2 * half))], axis=-1)
    both = both + 2.0**-6 * rng.standard_normal(shape)
    return np.asarray(both[..., rng.permutation(shape[-1])])


def subnormal(rng: Generator, shape: Shape, dtype: torch.dtype) -> NDArray[np.float64]:
    """Below the least normal number of `dtype`, all bits in use."""
    return rng.uniform(-1.0, 1.0, shape) * torch.finfo(dtype).tiny


def huge(rng: Generator, shape: Shape, dtype: torch.dtype) -> NDArray[np.float64]:
    """Logits of a hundred and more: exponentials overflow unless the maximum is subtracted first."""
    return rng.standard_normal(shape) * 100.0


def outlier_channels(rng: Generator, shape: Shape, dtype: torch.dtype) -> NDArray[np.float64]:
    """Normal values, but in the last axis one channel in 512, at least one, a hundred times as large."""
    values = rng.standard_normal(shape)
    count = max(1, shape[-1] // 512)
    values[..., rng.choice(shape[-1], count, replace=False)] *= 100.0
    return values


def all_equal(rng: Generator, shape: Shape, dtype: torch.dtype) -> NDArray[np.float64]:
    """One value everywhere."""
    return np.full(shape, 1.0)


def offset(rng: Generator, shape: Shape, dtype: torch.dtype) -> NDArray[np.float64]:
    """Standard deviation 1 around 30: variances computed as a difference of means lose their digits."""
    return rng.standard_normal(shape) + 30.0


GENERATORS: dict[str, Callable[[Generator, Shape, torch.dtype], NDArray[np.float64]]] = {
    "gaussian": gaussian,
    "positive": positive,
    "wide range": wide_range,
    "cancelling": cancelling,
    "subnormal": subnormal,
    "huge": huge,
    "outlier channels": outlier_channels,
    "all equal": all_equal,
    "offset": offset,
}


COMMON: tuple[str, ...] = (
    "gaussian",
    "positive",
    "wide range",
    "cancelling",
    "subnormal",
    "huge",
    "outlier channels",
    "all equal",
)
"""What nearly every operator is tried with; some add generators of their own."""


def make(name: str, shape: Sequence[int], dtype: torch.dtype, seed: int, part: str = "") -> Tensor:
    """The input `name` of `shape`, rounded to `dtype`; `part` tells apart several tensors of one sample."""
    rng = generator(f"{name} {part}", seed)
    return rounded(GENERATORS[name](rng, tuple(shape), dtype), dtype)
