"""Verdicts on a ratio to its limit: a number without unit, at most 1 for a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.records.schema import Check

if TYPE_CHECKING:
    from trnbench.records.schema import Level


def ratio_check(
    check: str,
    level: Level,
    metric: str,
    ratio: float,
    *,
    reference: str,
    where: str,
    looks_like: str = "",
    passes: bool | None = None,
) -> Check:
    """Judge `ratio`; `passes` where more than the ratio decides. `looks_like` names the fault of a failure."""
    good = ratio <= 1.0 if passes is None else passes
    return Check(
        check=check,
        level=level,
        metric=metric,
        value=ratio,
        limit=1.0,
        verdict="pass" if good else "fail",
        reference=reference,
        where=where,
        looks_like="" if good else looks_like,
    )
