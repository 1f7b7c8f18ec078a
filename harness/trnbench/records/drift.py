"""Drift inside a run: the measuring side warns of it, comparisons and pages show it, all by the same rule."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

DRIFT_LIMIT = 0.10
"""Relative change of the median between the halves of the rounds from which drift is named."""

LEAST_ROUNDS_FOR_DRIFT = 4


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """Median round of the first and of the second half of a run, in seconds, and the relative change between them."""

    first_half_seconds: float
    second_half_seconds: float
    change: float


def drift(seconds: Sequence[float]) -> Drift | None:
    """Both halves of a run where their medians differ by more than `DRIFT_LIMIT`; None elsewhere and for few rounds."""
    if len(seconds) < LEAST_ROUNDS_FOR_DRIFT:
        return None
    half = len(seconds) // 2
    first, second = statistics.median(seconds[:half]), statistics.median(seconds[-half:])
    change = second / first - 1
    if abs(change) <= DRIFT_LIMIT:
        return None
    return Drift(first_half_seconds=first, second_half_seconds=second, change=change)
