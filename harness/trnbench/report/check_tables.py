"""The tables of conformance checks: of one record, and of both sides of a comparison next to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.report.check_counts import check_tag
from trnbench.report.format import trimmed
from trnbench.report.names import deviation_anchor, record_page
from trnbench.report.verdicts import newest
from trnbench.report.views import Cell, Column, Table, TableRow, Tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.compare.model import Comparison
    from trnbench.records.schema import Check, Record


def checks_table(
    record: Record,
    checks: Sequence[Check] | None = None,
    table_id: str = "checks-table",
    caption: str = "Conformance checks",
    *,
    headed: bool = False,
) -> Table:
    """Checks of a record, by default all, with limits and verdicts, and the faults that failures look like."""
    chosen = record.conformance if checks is None else checks
    named = any(check.looks_like for check in chosen)
    return Table(
        id=table_id,
        caption=caption,
        headed=headed,
        columns=[
            Column("Check", "name"),
            Column("Level", "", "and tier"),
            Column("Error", "n", "and its limit"),
            Column("Verdict", "told"),
            *([Column("Looks like", "found")] if named else []),
            Column("Reference", "reason"),
        ],
        rows=[
            TableRow(
                [
                    Cell(check.check, note=check.metric),
                    Cell(check.level, note=check.tier),
                    Cell(trimmed(check.value), note=_limit(check)),
                    _verdict_cell(check, record),
                    *([Cell(check.looks_like)] if named else []),
                    Cell(check.reference),
                ]
            )
            for check in chosen
        ],
    )


def _verdict_cell(check: Check, record: Record) -> Cell:
    """The verdict with its place; a deviation leads to its entry on the page of conformance."""
    if not check.deviation:
        return Cell(tag=check_tag(check.verdict), note=check.where)
    target = f"conformance.html#{deviation_anchor(record.device.backend, check.deviation)}"
    return Cell(check.deviation, target, check.where, check_tag(check.verdict))


def subject(check: Check) -> str:
    """`softmax` of `operators/softmax/forward/gaussian`; the level where a name has no such parts."""
    parts = check.check.split("/")
    return parts[1] if len(parts) > 2 else check.level


def sides_checks_table(comparison: Comparison) -> Table:
    """The checks of the newest record of each side, one row a check, both errors and verdicts side by side."""
    sides = (comparison.a, comparison.b)
    latest = [_by_name(newest(side)) for side in sides]
    names = list(dict.fromkeys([*latest[0], *latest[1]]))
    return Table(
        id="checks-table",
        caption="Conformance checks of the newest record of each side",
        columns=[
            Column("Check", "name"),
            Column("Level"),
            *(
                column
                for side in sides
                for column in (Column("Error", "n", "and its limit"), Column("Verdict", "told", f"of {side.label}"))
            ),
        ],
        rows=[
            TableRow(
                [
                    Cell(name, note=(latest[0].get(name) or latest[1][name]).metric),
                    Cell((latest[0].get(name) or latest[1][name]).level),
                    *(
                        cell
                        for side, checks in zip(sides, latest, strict=True)
                        for cell in _check_cells(checks.get(name), newest(side))
                    ),
                ]
            )
            for name in names
        ],
    )


def _by_name(record: Record | None) -> dict[str, Check]:
    return {check.check: check for check in record.conformance} if record else {}


def _check_cells(check: Check | None, record: Record | None) -> list[Cell]:
    if check is None or record is None:
        return [Cell("n/a"), Cell(tag=Tag("", "?", "not checked"))]
    return [
        Cell(trimmed(check.value), record_page(record) + "#checks", _limit(check)),
        _verdict_cell(check, record),
    ]


def _limit(check: Check) -> str:
    return f"limit {trimmed(check.limit)}"
