"""The tables of the page of conformance: the matrix of a stack, failures, unexpected passes and reported values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trnbench.case import CHECK_PHASES
from trnbench.records.schema import FAILED
from trnbench.report.check_counts import beside_tag, record_tag, record_words
from trnbench.report.check_tables import subject
from trnbench.report.format import joined, trimmed
from trnbench.report.metric_names import PHASE_WORDS, capitalised
from trnbench.report.names import deviation_anchor, record_page
from trnbench.report.ordering import case_key
from trnbench.report.views import Cell, Column, GroupedTable, RowGroup, Table, TableRow, Tag

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from trnbench.case import Case
    from trnbench.records.schema import Check, Record
    from trnbench.report.checked_records import Stack

_EVIDENCE = re.compile(r" \((exact constant|bitwise match|matched residual)[^()]*\)$|, [\d.]+ effective bits$")
"""How the words of a diagnosis end: by what evidence the fault was recognised, or how precise the result still is."""

LEVELS: dict[str, str] = {
    "formats": "Number formats: does a cast round, overflow and flush as its format says?",
    "operators": "Operators: is each within what its precision allows?",
    "model": "Model: logits, loss, every gradient and one optimizer step",
    "learning": "Learning: does training reach the same quality?",
    "generation": "Generation: the same tokens?",
    "measured": "Checks of measured cases: the model whose speed was taken",
}


def matrix(stack: Stack, table_id: str) -> GroupedTable:
    """Levels and workloads against modes and precisions; a cell leads to the newest record of that case."""
    rows: dict[str, dict[Hashable, list[Record]]] = {level: {} for level in LEVELS}
    for record in sorted((entry.record for entry in stack.entries), key=lambda record: case_key(record.case)):
        level = record.case.phase if record.case.checks_only else "measured"
        rows[level].setdefault(record.case.identity(["precision", "mode", "version"]), []).append(record)
    return GroupedTable(
        id=table_id,
        caption=f"Verdicts on {stack.label}",
        headed=True,
        columns=[
            Column("Checked", "name"),
            *(Column(precision, "verdict", mode) for mode, precision in stack.columns),
        ],
        groups=[
            RowGroup(LEVELS[level], [_matrix_row(records, stack.columns) for records in cases.values()])
            for level, cases in rows.items()
            if cases
        ],
    )


def _matrix_row(records: list[Record], columns: list[tuple[str, str]]) -> TableRow:
    found: dict[tuple[str, str], Record] = {(record.case.mode, record.case.precision): record for record in records}
    case = records[0].case
    name = case.workload if case.checks_only else f"{case.workload}, {PHASE_WORDS[case.phase]}"
    return TableRow(
        [Cell(name, note=_shape(case)), *(_matrix_cell(found.get(column)) for column in columns)],
    )


def _shape(case: Case) -> str:
    """Sizes and tier; `smoke` is the tier of every laptop and goes without saying beside sizes."""
    sizes = [f"batch {case.batch}", f"sequence {case.sequence}"] if case.batch else []
    return ", ".join([*sizes, f"{case.tier} tier"])


def _matrix_cell(record: Record | None) -> Cell:
    if record is None:
        return Cell("\u2013")
    return Cell(record_words(record), record_page(record) + "#checks", beside_tag(record), record_tag(record))


def faults_table(stacks: list[Stack]) -> Table:
    """Failed checks by the fault that they look like, the commonest first; how it was recognised is left out."""
    by_name: dict[str, list[tuple[Record, Check]]] = {}
    for _, record, check in checks_of(stacks):
        if check.verdict in FAILED:
            name = _EVIDENCE.sub("", check.looks_like) or "no name given"
            by_name.setdefault(name, []).append((record, check))
    return Table(
        id="faults-table",
        caption="What the failures look like",
        headed=True,
        columns=[
            Column("Looks like", "name"),
            Column("Checks", "n"),
            Column("Of", "reason"),
            Column("In", "reason"),
        ],
        rows=[
            TableRow(
                [
                    Cell(name),
                    Cell(f"{len(found):,}"),
                    Cell(joined(sorted({subject(check) for _, check in found}))),
                    Cell(", ".join(sorted({_place(record) for record, _ in found}))),
                ]
            )
            for name, found in sorted(by_name.items(), key=lambda item: (-len(item[1]), item[0]))
        ],
    )


def _place(record: Record) -> str:
    case = record.case
    return f"{record.device.backend} {case.precision} {case.mode}"


def failures_table(stacks: list[Stack]) -> Table:
    """Every failed check of the records that count, with the fault it looks like."""
    failed = [(stack, record, check) for stack, record, check in checks_of(stacks) if check.verdict in FAILED]
    return Table(
        id="failures-table",
        caption=f"Each failed check: {len(failed):,}",
        columns=[
            Column("Check", "name"),
            Column("Looks like", "told"),
            Column("Error", "n", "and its limit"),
            Column("Case", "name"),
            Column("Where", "reason"),
        ],
        rows=[
            TableRow(
                [
                    Cell(check.check, note=_tier_words(check)),
                    Cell(check.looks_like or "no name given", tag=Tag("bad", "\u2715", check.verdict)),
                    Cell(trimmed(check.value), note=f"limit {trimmed(check.limit)}"),
                    Cell(record.case.id, record_page(record) + "#checks", stack.label),
                    Cell(check.where),
                ]
            )
            for stack, record, check in failed
        ],
    )


def unexpected_table(stacks: list[Stack]) -> Table:
    """Checks that pass although a deviation lists them."""
    return Table(
        id="unexpected-table",
        caption="Unexpected passes",
        headed=True,
        columns=[Column("Check", "name"), Column("Listed as", "name"), Column("Case", "name")],
        rows=[
            TableRow(
                [
                    Cell(check.check),
                    Cell(check.deviation, f"#{deviation_anchor(record.device.backend, check.deviation)}"),
                    Cell(record.case.id, record_page(record) + "#checks", stack.label),
                ]
            )
            for stack, record, check in checks_of(stacks)
            if check.verdict == "unexpected pass"
        ],
    )


def reported_table(stacks: list[Stack]) -> Table:
    """What other projects would look at, beside the threshold that their authors give; no verdict is drawn from it."""
    return Table(
        id="reported-table",
        caption="Reported values, never judged",
        headed=True,
        columns=[
            Column("Measure", "name"),
            Column("Value", "n"),
            Column("Threshold", "n", "of its authors"),
            Column("Case", "name"),
            Column("Verdict", "nowrap"),
        ],
        rows=[
            TableRow(
                [
                    Cell(check.check, note=check.metric),
                    Cell(trimmed(check.value)),
                    Cell(trimmed(check.limit)),
                    Cell(record.case.id, record_page(record) + "#checks", stack.label),
                    Cell(tag=Tag("", "i", "never judged")),
                ]
            )
            for stack, record, check in checks_of(stacks)
            if check.verdict == "reported"
        ],
    )


def checks_of(stacks: Iterable[Stack]) -> list[tuple[Stack, Record, Check]]:
    """Every check of the records that count, with its record and stack, in the order of levels and cases."""
    levels = [*CHECK_PHASES]
    return [
        (stack, entry.record, check)
        for stack in stacks
        for entry in sorted(stack.entries, key=lambda entry: case_key(entry.record.case))
        for check in sorted(entry.record.conformance, key=lambda check: levels.index(check.level))
    ]


def _tier_words(check: Check) -> str:
    return ", ".join(filter(None, (check.tier, capitalised(check.metric) if not check.tier else check.metric)))
