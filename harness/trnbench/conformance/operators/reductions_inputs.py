"""Inputs of reductions: lengths on both sides of tiles, and values whose sums are exact or saturate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import COMMON, generator, make, rounded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from trnbench.conformance.operators.base import Plan

FIRST_SHAPE: dict[str, tuple[int, int]] = {"fp32": (36, 2304), "bf16": (288, 288), "fp16": (36, 2304)}
"""Rows longer than 2^8 for bf16 and 2^11 for fp16 and fp32, where running sums of equal terms stop in a 16-bit format.

Lengths are 9 times a power of two: the sums of equal terms over rows, over columns and over all, 81 times a power of
two, then fit into the 8 bits of bf16."""

SEVERAL: tuple[tuple[int, int], ...] = ((1, 1), (127, 128), (129, 3), (2, 4096))
"""A single element, lengths of a tile of 128 and one more or less, a long row."""

ALL: tuple[tuple[int, int], ...] = ((1000, 1000), (64, 4097), (100_000, 4), (3, 65_536), (2, 1_000_003))

LONG = (1, 100_000)
"""A row that no tile holds; left out where cumulative sums cost the square of the length."""

SHAPES: dict[str, tuple[tuple[int, int], ...]] = {"one": (), "several": SEVERAL, "all": SEVERAL + ALL}
"""Besides the first."""

RANDOM = (*COMMON, "offset")


def named(precision: str, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Name and numbers of every random input of `FIRST_SHAPE`."""
    for name in RANDOM:
        yield name, make(name, FIRST_SHAPE[precision], STORAGE[precision], seed)


def shaped(precision: str, plan: Plan, seed: int, *more: tuple[int, int]) -> Iterator[tuple[str, Tensor]]:
    """Normal values in the further shapes of the plan and in `more` of them, unless the plan has one shape."""
    for shape in SHAPES[plan.shapes] + (more if plan.shapes != "one" else ()):
        yield "gaussian", make("gaussian", shape, STORAGE[precision], seed)


def equal_terms(precision: str) -> Tensor:
    """2^-6 everywhere: a running sum stops at 4 in bf16 and at 32 in fp16, and no sum overflows fp16."""
    return torch.full(FIRST_SHAPE[precision], 2.0**-6, dtype=STORAGE[precision])


def small_integers(precision: str, seed: int) -> Tensor:
    """Integers from -3 to 3 (bf16: -1 to 1) with sums over rows, columns and all that fit into the format's bits.

    The lower half of the rows holds the upper half negated, each row in another order, so that all sum to zero; one
    element is raised by 1, and all then sum to 1. A row's sum has standard deviation 96 (bf16: 14) and must not reach
    2048 (256); a column's has a tenth of it.
    """
    rows, columns = FIRST_SHAPE[precision]
    rng = generator("small integers", seed)
    largest = 1 if precision == "bf16" else 3
    upper = rng.integers(-largest, largest + 1, (rows // 2, columns)).astype(float)
    values = np.concatenate([upper, -rng.permuted(upper, axis=1)])
    values[0, 0] += 1.0
    return rounded(values, STORAGE[precision])


def integers_up_to_2_to_24(seed: int) -> Tensor:
    """float32 integers from 0 to 201, whose sum over all 82944 stays below 2^24: exact in any order."""
    rng = generator("integers up to 2^24", seed)
    return rounded(rng.integers(0, 202, FIRST_SHAPE["fp32"]).astype(float), torch.float32)


def cancelling_overflow() -> Tensor:
    """fp16: 60000 in two opposite quarters and -60000 in the others; every sum is 0, every partial sum overflows."""
    rows, columns = FIRST_SHAPE["fp16"]
    signs = torch.ones(rows, columns)
    signs[: rows // 2, : columns // 2] = -1.0
    signs[rows // 2 :, columns // 2 :] = -1.0
    return (60000.0 * signs).to(torch.float16)


def distinct(precision: str, seed: int, close: bool = False) -> Tensor:
    """Numbers of `FIRST_SHAPE` none of which occurs twice in a row, in a column, or at the maximum of all.

    `close` takes as many neighbouring numbers of the format as are needed, from 1 on: rounding to a shorter format
    makes equals of them. Otherwise they are drawn from all positive and negative normal numbers, and so sparse that
    none are neighbours.
    """
    dtype = STORAGE[precision]
    rows, columns = FIRST_SHAPE[precision]
    rng = generator(f"distinct {close}", seed)
    codes = _codes(dtype, close, columns)
    # A Latin rectangle: row i is the same sequence shifted by i, so that no column has one number twice either.
    order = torch.from_numpy(rng.permutation(columns))
    shifts = torch.from_numpy(rng.permutation(columns)[:rows].copy())
    places = (order[None, :] + shifts[:, None]) % columns
    values = codes[places]
    largest = int(rng.integers(rows)), int(rng.integers(columns))
    return _unique_largest(values, largest)


def _codes(dtype: torch.dtype, close: bool, count: int) -> Tensor:
    """`count` different numbers of `dtype`, ascending."""
    if close:
        whole = torch.int32 if dtype == torch.float32 else torch.int16
        first = int(torch.ones((), dtype=dtype).view(whole))
        return (torch.arange(count, dtype=torch.int32) + first).to(whole).view(dtype)
    facts = torch.finfo(dtype)
    # Equally many on either side of zero, in geometric progression, wide enough apart for 8 significant bits.
    half = (count + 1) // 2
    exponents = torch.linspace(-6.0, 10.0, half, dtype=torch.float64)
    positive = torch.unique(torch.exp2(exponents).to(dtype)).double()
    if positive.numel() < half:
        raise ValueError(f"{count} distinct numbers do not fit between 2^-6 and 2^10 in {facts.dtype}")
    return torch.cat([-positive.flip(0), positive])[:count].to(dtype)


def _unique_largest(values: Tensor, place: tuple[int, int]) -> Tensor:
    """`values` with one element replaced by twice the largest, so that the maximum over all is unique too."""
    changed = values.clone()
    changed[place] = 2.0 * values.abs().max()
    return changed


def tied(precision: str, seed: int) -> Tensor:
    """Integers from 0 to 7: every row and column has its maximum many times."""
    rng = generator("tied", seed)
    return rounded(rng.integers(0, 8, FIRST_SHAPE[precision]).astype(float), STORAGE[precision])


def with_nan(precision: str, seed: int) -> Tensor:
    """Distinct numbers and a single NaN."""
    values = distinct(precision, seed)
    rng = generator("NaN", seed)
    values[int(rng.integers(values.shape[0])), int(rng.integers(values.shape[1]))] = torch.nan
    return values


def words(values: Tensor) -> str:
    """A shape as checks name it: 36x2304."""
    return "x".join(str(size) for size in values.shape)
