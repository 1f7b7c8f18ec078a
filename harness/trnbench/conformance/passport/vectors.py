"""Inner products with chosen terms: how probes ask a matrix unit one question per output column.

A row vector, repeated over the rows, meets a matrix whose columns are the questions: all share one shape per number of
rows, so that a compiling backend makes one graph for thousands of questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.passport.subject import ProbeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from trnbench.conformance.passport.subject import Subject

    Floats = NDArray[np.float64]

TERMS = 64
"""Length of the inner products, K."""

COLUMNS = 128
"""Columns per product, N: what one call asks."""

ROW_COUNTS = (1, 16, 256)
"""Numbers of rows, M, at which libraries are known to change their algorithm: vector, small and large."""


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """The plain product of two matrices."""
    return left @ right


def exact_tensor(values: Floats, dtype: torch.dtype) -> Tensor:
    """Values as `dtype`. Raises `ValueError` where one is not representable: the question would be another."""
    tensor = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64)).to(dtype)
    back = tensor.double().numpy()
    if not np.array_equal(back, values, equal_nan=True):
        raise ValueError(f"not representable in {dtype}: {values[(back != values) & ~np.isnan(values)][:4]}")
    return tensor


def inner_products(subject: Subject, row: Floats, columns: Floats, precision: str, rows: int) -> Floats:
    """`row` [K] times each column of `columns` [K, Q], computed with `rows` equal rows: [rows, Q] in float64."""
    dtype = STORAGE[precision]
    left = exact_tensor(np.repeat(row[None, :], rows, axis=0), dtype)
    count = columns.shape[1]
    padded = np.zeros((columns.shape[0], -(-count // COLUMNS) * COLUMNS))
    padded[:, :count] = columns
    parts = [
        subject.run(matmul, left, exact_tensor(padded[:, start : start + COLUMNS], dtype))[0]
        for start in range(0, padded.shape[1], COLUMNS)
    ]
    if parts[0].shape != (rows, COLUMNS):
        raise ProbeError(f"the product has shape {tuple(parts[0].shape)} instead of {(rows, COLUMNS)}")
    return torch.cat(parts, dim=1).double().numpy()[:, :count]


def placed(terms: int, positions: Sequence[int], values: Sequence[float], elsewhere: float = 0.0) -> Floats:
    """A vector of length `terms` with the given values at the given positions."""
    vector = np.full(terms, elsewhere)
    vector[list(positions)] = values
    return vector
