"""The tables of conformance checks: of one record, and of both sides of a comparison next to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.report.format import trimmed
from trnbench.report.names import record_page
from trnbench.report.verdicts import newest
from trnbench.report.views import Cell, Column, Table, TableRow, Tag

if TYPE_CHECKING:
    from trnbench.compare.model import Comparison
    from trnbench.records.schema import Check, Record


def checks_table(record: Record) -> Table:
    """Every conformance check of a record with its limit and verdict."""
    return Table(
        id="checks-table",
        caption="Conformance checks",
        columns=[
            Column("Check", "name"),
            Column("Level"),
            Column("Error", "n", "and its limit"),
            Column("Verdict", "told"),
            Column("Reference", "reason"),
        ],
        rows=[
            TableRow(
                [
                    Cell(check.check, note=check.metric),
                    Cell(check.level),
                    Cell(trimmed(check.value), note=_limit(check)),
                    Cell(tag=check_tag(check.verdict), note=check.where),
                    Cell(check.reference),
                ]
            )
            for check in record.conformance
        ],
    )


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


def check_tag(verdict: str) -> Tag:
    """A check's verdict as a tag."""
    if verdict == "pass":
        return Tag("good", "\u2713", verdict)
    return Tag("", "?", verdict) if verdict == "not checked" else Tag("bad", "\u2715", verdict)


def _by_name(record: Record | None) -> dict[str, Check]:
    return {check.check: check for check in record.conformance} if record else {}


def _check_cells(check: Check | None, record: Record | None) -> list[Cell]:
    if check is None or record is None:
        return [Cell("n/a"), Cell(tag=Tag("", "?", "not checked"))]
    return [
        Cell(trimmed(check.value), record_page(record) + "#checks", _limit(check)),
        Cell(tag=check_tag(check.verdict), note=check.where),
    ]


def _limit(check: Check) -> str:
    return f"limit {trimmed(check.limit)}"
