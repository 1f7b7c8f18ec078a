"""Sums of values that share an index, in float64, and how far a device may be off: the heart of every scatter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from trnbench.conformance.inputs import generator, make

if TYPE_CHECKING:
    from trnbench.conformance.arithmetic import Arithmetic


def summed_rows(index: Tensor, values: Tensor, rows: int) -> Tensor:
    """float64 [rows, D]: row r is the sum of those rows of `values` [N, D] whose `index` [N] is r."""
    return torch.zeros(rows, values.shape[1], dtype=torch.float64).index_add(0, index, values.double())


def copy_bound(values: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Bound of an operator that only copies: nothing, or the least normal number where subnormals are flushed.

    A copy rounds nothing. A device may still look rows up by a product with a one-hot matrix, which flushes.
    """
    allowed = arithmetic.smallest if arithmetic.flushes_subnormals else 0.0
    return torch.full(values.shape, allowed, dtype=torch.float64)


def row_sum_bound(
    index: Tensor, values: Tensor, rows: int, arithmetic: Arithmetic, start: Tensor | None = None
) -> Tensor:
    """Bound on each element of `summed_rows` (plus `start` [rows, D], if given), accumulated in float32, rounded once.

    With y the exact sum of n terms x_k in one row, S = sum |x_k|, c the growth of n terms, u_o the output's unit:
    the accumulated sum is y + e with |e| <= c S in any order (Higham 2002, section 4.2), and rounding it to the output
    adds u_o |y + e|, so

        |error| <= u_o |y| + (1 + u_o) c(n) S + tau

    with tau the underflow of the last rounding; where subnormals are flushed each of the n terms and the result may
    also become zero, each an error below the least normal number.
    """
    counts = torch.bincount(index, minlength=rows)
    exact = summed_rows(index, values, rows)
    magnitudes = summed_rows(index, values.abs(), rows)
    if start is not None:
        counts, exact, magnitudes = counts + 1, exact + start.double(), magnitudes + start.double().abs()
    different, place = torch.unique(counts, return_inverse=True)
    growth = torch.tensor([arithmetic.growth(int(count)) for count in different], dtype=torch.float64)[place]
    underflows = counts + 1 if arithmetic.flushes_subnormals else torch.ones_like(counts)
    unit = arithmetic.output_unit
    return unit * exact.abs() + (1.0 + unit) * growth[:, None] * magnitudes + arithmetic.smallest * underflows[:, None]


def many_rows(name: str, length: int, width: int, dtype: torch.dtype, *, seed: int, part: str) -> Tensor:
    """[length, width] values of generator `name`; "cancelling" pairs them along the length, over which sums run."""
    if name == "cancelling":
        return make(name, (width, length), dtype, seed, part).T.contiguous()
    return make(name, (length, width), dtype, seed, part)


def token_indices(rows: int, length: int, seed: int) -> Tensor:
    """int64 [length]: frequency falls with rank as 1/rank (Zipf), as tokens of text do, over all `rows`.

    The most frequent row appears in about a fifth of all places, and each row's rank is drawn from the seed.
    """
    rng = generator("token indices", seed)
    weights = 1.0 / np.arange(1.0, rows + 1.0)
    return torch.from_numpy(rng.permutation(rows)[rng.choice(rows, length, p=weights / weights.sum())].copy())


def even_indices(rows: int, length: int, seed: int) -> Tensor:
    """int64 [length] in random order, each row as often as every other, or once more."""
    return torch.from_numpy(generator("even indices", seed).permutation(np.arange(length) % rows).copy())


def saturated(precision: str) -> float:
    """Where a sum of ones in the precision's own significand stops: 2^p, for p significant bits."""
    return {"fp32": 2.0**24, "bf16": 2.0**8, "fp16": 2.0**11}[precision]
