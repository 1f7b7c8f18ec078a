"""The order in which things are listed: numbers as numbers, versions as versions, records by instant (F9, D17)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from trnbench.case import TIERS, Case
from trnbench.compare.keys import work_order
from trnbench.report.format import instant

if TYPE_CHECKING:
    from trnbench.records.schema import Record

_NUMBER = re.compile(r"(\d+)")

SortKey = tuple[object, ...]


def natural_key(text: str) -> SortKey:
    """A key under which b2 precedes b16 and, where a whole word is a version, 0.9 < 0.10rc1 < 0.10."""
    return tuple(_word_key(word) for word in text.split())


def _word_key(word: str) -> SortKey:
    try:
        return (0, Version(word))
    except InvalidVersion:
        parts = _NUMBER.split(word)
        return (1, *(int(part) if place % 2 else part for place, part in enumerate(parts)))


def case_key(case: Case) -> SortKey:
    """Workloads by name, then phase, precision and mode in their documented order, then sizes in number order."""
    return (
        TIERS.index(case.tier),
        natural_key(case.suite),
        natural_key(case.workload),
        *work_order(case),
        case.cache,
        case.tuning,
        tuple(sorted(case.parallel.items())),
        case.version,
    )


def record_key(record: Record) -> SortKey:
    """Records by the instant they started, whatever offset it was written with; unreadable ones first, by text."""
    started = instant(record.started_at)
    return (started is not None, started.timestamp() if started else 0.0, record.started_at, record.record_id)
