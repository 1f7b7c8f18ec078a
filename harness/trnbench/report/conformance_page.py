"""Does it compute the same thing? Failures first, then the whole matrix, known deviations, and reported values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.report.check_counts import count_words, failures, judged, tally
from trnbench.report.checked_records import Stack, checked_stacks
from trnbench.report.conformance_tables import (
    checks_of,
    failures_table,
    faults_table,
    matrix,
    reported_table,
    unexpected_table,
)
from trnbench.report.deviation_entries import DeviationEntry, deviation_entries
from trnbench.report.format import count
from trnbench.report.views import Cell, GroupedTable, Table

if TYPE_CHECKING:
    from trnbench.report.material import Material


class StackView(msgspec.Struct, frozen=True, kw_only=True):
    """One machine and software stack: what its checks say, in a sentence and as a matrix."""

    id: str
    heading: str
    words: str
    matrix: GroupedTable
    older: bool


class ConformancePage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page shows."""

    headline: str
    words: str
    faults: Table
    failures: Table
    fold_failures: bool
    stacks: list[StackView]
    unexpected: Table
    deviations: list[DeviationEntry]
    reported: Table
    exports: list[Cell]


_MANY = 20
"""More failed checks than this are folded below the table of what they look like."""
EXPORTS = (
    Cell("Every check of these records (CSV)", "conformance.csv"),
    Cell("Verdicts by case, and all that did not pass (JSON)", "conformance.json"),
)


def build_conformance(material: Material) -> ConformancePage | None:
    """The page, or None where no record carries a check or should."""
    stacks = checked_stacks(material)
    if not stacks:
        return None
    current = [stack for stack in stacks if not stack.older]
    counted = tally(check for _, _, check in checks_of(current))
    failed = failures(counted)
    cases = sum(len(stack.entries) for stack in current)
    return ConformancePage(
        headline=f"{failed:,} of {count(judged(counted), 'check')} failed" if failed else _clean(current),
        words=f"{count(cases, 'case')} on {count(len(current), 'device')}: {count_words(counted) or 'no check made'}.",
        faults=faults_table(current),
        failures=failures_table(current),
        fold_failures=failed > _MANY,
        stacks=[_view(stack, place) for place, stack in enumerate(stacks)],
        unexpected=unexpected_table(current),
        deviations=deviation_entries(stacks, material),
        reported=reported_table(current),
        exports=list(EXPORTS),
    )


def conformance_sentence(page: ConformancePage) -> str:
    """What the front page says of this one."""
    return f"{page.headline}. {page.words}"


def _clean(stacks: list[Stack]) -> str:
    counted = tally(check for _, _, check in checks_of(stacks))
    if not counted["pass"]:
        return "No check was made"
    if counted["known deviation"]:
        return f"No check failed, save {count(counted['known deviation'], 'known deviation')}"
    return "No check failed"


def _view(stack: Stack, place: int) -> StackView:
    counted = tally(check for _, _, check in checks_of([stack]))
    return StackView(
        id=f"stack-{place}",
        heading=stack.label,
        words=f"{count(len(stack.entries), 'case')}: {count_words(counted) or 'no check made'}.",
        matrix=matrix(stack, f"matrix-{place}"),
        older=stack.older,
    )
