"""Rounding to a 16-bit format on the way, and sums that run in one: what faulty softmaxes and norms have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

FORMATS: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""By the name that a diagnosis gives them."""

_NUMPY: dict[torch.dtype, np.dtype] = {
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float16: np.dtype(np.float16),
    torch.float32: np.dtype(np.float32),
}


def rounder(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """float32 values rounded to `dtype` and widened again."""
    return lambda values: values.to(dtype).float()


def running_sum(terms: Tensor, dtype: torch.dtype, lanes: int = 1) -> Tensor:
    """float32 `terms` added up along the last axis, kept, in `dtype` with a rounding after each addition.

    `lanes` sums run side by side, each through every `lanes`-th column, and are added to each other in turn.
    """
    columns = terms.shape[-1]
    padded = torch.nn.functional.pad(terms, (0, -columns % lanes)).numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        table = padded.astype(_NUMPY[dtype]).reshape(*terms.shape[:-1], -1, lanes)
        partial = np.add.accumulate(table, axis=-2)[..., -1, :]
        total = np.add.accumulate(partial, axis=-1)[..., -1:]
    return torch.from_numpy(total.astype(np.float32))


def sum_over_rows(values: Tensor, dtype: torch.dtype, parts: int = 1) -> Tensor:
    """float32 values [..., n] added up over all rows to [n], each addition rounded to `dtype`.

    The rows are cut into `parts`, as threads share them, each with a sum of its own; these are added in float32.
    """
    rows = values.reshape(-1, values.shape[-1])
    total = torch.zeros(values.shape[-1])
    size = -(-len(rows) // parts)
    for start in range(0, len(rows), size):
        register = torch.zeros(values.shape[-1])
        for row in rows[start : start + size]:
            register = (register + row).to(dtype).float()
        total += register
    return total
