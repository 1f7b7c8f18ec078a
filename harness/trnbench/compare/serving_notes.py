"""What differs between two served sides beyond their speed: how long their answers are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.case import SERVING_PHASES
from trnbench.compare.serving_metrics import mean_answer
from trnbench.records.schema import LENGTH_BAND

if TYPE_CHECKING:
    from trnbench.records.schema import Record


def answer_notes(a: Record, b: Record) -> list[str]:
    """A note where the answers of two served records differ in mean length by more than the band."""
    if a.case.phase not in SERVING_PHASES or a.measurement is None or b.measurement is None:
        return []
    first, second = mean_answer(a.measurement), mean_answer(b.measurement)
    if first is None or second is None or not unlike_lengths(first, second):
        return []
    told = f"{first:.3g} tokens a request (mean) on a, {second:.3g} on b"
    return [f"unlike answers: {told}, so equal tokens per second serve unequal numbers of requests"]


def unlike_lengths(first: float, second: float) -> bool:
    """Whether two mean lengths differ by more than the band, relative to the longer one."""
    return abs(first - second) > LENGTH_BAND * max(first, second)
