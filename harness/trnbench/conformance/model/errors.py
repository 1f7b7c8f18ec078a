"""Error measures of a result against the float64 oracle: relative, without unit, one for the whole and one for the
worst row, because a norm over everything lets one large row hide a wrong small one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def relative_error(result: Tensor, oracle: Tensor) -> float:
    """Frobenius norm of the difference over that of the oracle: 1.0 for an all-zero result.

    Raises `ZeroDivisionError` where the oracle is zero throughout: no relative error exists then.
    """
    return float((result - oracle).norm()) / float(oracle.norm())


def worst_row_error(result: Tensor, oracle: Tensor) -> float:
    """Largest error norm of a row (all but the last axis flattened) over the root mean square row norm of the oracle.

    Vectors are one row. Raises `ZeroDivisionError` where the oracle is zero throughout.
    """
    difference = (result - oracle).reshape(-1, oracle.shape[-1])
    rows = oracle.reshape(-1, oracle.shape[-1])
    typical = float(rows.square().sum(-1).mean().sqrt())
    return float(difference.norm(dim=-1).max()) / typical
