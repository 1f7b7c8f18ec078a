"""The front page: the answer, the comparisons, what was not measured, the runs, and the files that were refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.report.answers import AXES, Answer, Pair, answer, pairs, unanswered
from trnbench.report.figures import ratio_figure
from trnbench.report.format import count, ratio, ratio_interval, utc
from trnbench.report.material import Entry, Material, Run, assert_complete
from trnbench.report.names import comparison_page, record_page, run_page
from trnbench.report.ordering import case_key
from trnbench.report.plots import PANEL_ROWS
from trnbench.report.verdicts import (
    DECIDED,
    agreement,
    agreement_tag,
    cheaper_tag,
    metric_words,
    status_tag,
    verdict_tag,
)
from trnbench.report.views import Cell, Column, Figure, Table, TableRow
from trnbench.status import Status

if TYPE_CHECKING:
    from trnbench.compare.model import Comparison, Metric


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The comparisons of one pair of sides that share a metric: figures and a table."""

    heading: str
    definition: str
    figures: list[Figure]
    table: Table


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One axis."""

    id: str
    heading: str
    groups: list[Group]


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the front page shows."""

    lead: str
    newest: str
    answers: list[Answer]
    further: list[Answer]
    unanswered: list[str]
    nothing: str
    sections: list[Section]
    gaps: Table
    runs: Table
    devices: Table
    refused: Table
    totals: str


def build_index(material: Material) -> Index:
    """The front page of the material."""
    found = pairs(material.comparisons)
    answered = [pair for pair in found if pair.answered]
    first_axis = next((pair.axis for pair in answered if pair.decided), answered[0].axis if answered else None)
    measured = sum(entry.record.status is Status.OK for entry in material.entries)
    return Index(
        lead=_lead(material, measured),
        newest=utc(material.entries[-1].record.finished_at) if material.entries else "",
        answers=[answer(pair) for pair in answered if pair.axis == first_axis],
        further=[answer(pair) for pair in answered if pair.axis != first_axis],
        unanswered=[unanswered(pair) for pair in found if not pair.answered],
        nothing="" if found else _nothing(material, measured),
        sections=_sections(found),
        gaps=_gaps(material),
        runs=runs_table(material, "runs-table"),
        devices=_devices(material),
        refused=_refused(material),
        totals=_totals(material),
    )


def _lead(material: Material, measured: int) -> str:
    runs = material.runs()
    if not runs:
        return "No record can be shown." if material.records_in else "No record is here yet."
    return (
        f"From {count(len(material.entries), 'record')} of {count(len(runs), 'run')}: {measured:,} measured, "
        f"{len(material.entries) - measured:,} not."
    )


def _nothing(material: Material, measured: int) -> str:
    """Why there is no comparison, in one sentence that says what would make one."""
    chips = sorted({entry.record.device.chip for entry in material.entries if entry.record.status is Status.OK})
    if not material.entries:
        return "The results folder holds no record that can be shown."
    if not measured:
        return "Nothing was measured, so nothing can be compared; the reasons are listed below."
    return (
        f"The measured records come from {', '.join(chips)}. A comparison needs the same case measured on a second "
        "device, or in a second precision, mode or software stack."
    )


def _sections(found: list[Pair]) -> list[Section]:
    sections = []
    for axis, heading in AXES.items():
        groups = [
            _group(pair, shared, f"{axis}-{number}")
            for number, (pair, shared) in enumerate(
                (pair, shared) for pair in found if pair.axis == axis for shared in _by_metric(pair.comparisons)
            )
        ]
        if groups:
            sections.append(Section(id=f"axis-{axis}", heading=heading, groups=groups))
    shown = [len(group.table.rows) for section in sections for group in section.groups]
    assert_complete(sum(len(pair.comparisons) for pair in found), shown, "the tables of comparisons")
    return sections


def _by_metric(comparisons: list[Comparison]) -> list[list[Comparison]]:
    """Two metrics, or two definitions of one, never share a plot (E8)."""
    grouped: dict[tuple[str, int], list[Comparison]] = {}
    for one in sorted(comparisons, key=lambda one: case_key(one.a.case)):
        key = (one.metric.name, one.metric.definition_version) if one.metric else ("", 0)
        grouped.setdefault(key, []).append(one)
    return list(grouped.values())


def _group(pair: Pair, comparisons: list[Comparison], name: str) -> Group:
    metric = comparisons[0].metric
    table_id = f"table-{name}"
    chunks = [comparisons[start : start + PANEL_ROWS] for start in range(0, len(comparisons), PANEL_ROWS)]
    sides = pair.sides + pair.place + (f": {metric_words(metric)}" if metric else "")
    return Group(
        heading=f"a: {pair.a}, b: {pair.b}{pair.place}",
        definition=_definition(metric) if metric else "No common metric.",
        figures=[
            ratio_figure(chunk, name=f"index-{name}-{place}", sides=sides, table_id=table_id)
            for place, chunk in enumerate(chunks)
            if any(one.throughput_ratio for one in chunk)
        ],
        table=Table(
            id=table_id,
            caption=f"Comparisons of {sides}",
            columns=[
                Column("Case", "name"),
                Column("Verdict", "nowrap"),
                Column("Throughput ratio", "n", "with interval"),
                Column("Break-even price ratio", "n"),
                Column("Same numerics?", "nowrap"),
                Column("Cheaper", "nowrap", "by purchase term"),
                Column("Runs", "n", "each side"),
            ],
            rows=[_comparison_row(one) for one in comparisons],
            headed=True,
        ),
    )


def _definition(metric: Metric) -> str:
    return f"{metric_words(metric).capitalize()}: {metric.definition} (definition {metric.definition_version})."


def _comparison_row(one: Comparison) -> TableRow:
    page = comparison_page(one.id)
    found = one.throughput_ratio
    even = one.break_even_price_ratio if one.verdict in DECIDED else None
    first = one.costs[0] if one.costs else None
    return TableRow(
        [
            Cell(one.a.case.id, href=page),
            Cell(tag=verdict_tag(one, short=True)),
            Cell(ratio(found.value), page + "#runs", ratio_interval(found.low, found.high)) if found else Cell("n/a"),
            Cell(ratio(even), page + "#cost") if even is not None else Cell("n/a"),
            Cell(href=page + "#numerics", tag=agreement_tag(agreement(one))),
            Cell(note=first.name, tag=cheaper_tag(one, first, short=True)) if first else Cell("n/a", note="no price"),
            Cell(f"{len(one.a.runs):,} and {len(one.b.runs):,}", page + "#runs"),
        ]
    )


def _gaps(material: Material) -> Table:
    missing = [entry for entry in material.entries if entry.record.status is not Status.OK]
    order = list(Status)
    missing.sort(key=lambda entry: (order.index(entry.record.status), case_key(entry.record.case)))
    return Table(
        id="gaps-table",
        caption="Records without a result that counts",
        headed=True,
        columns=[
            Column("Case", "name"),
            Column("Status", "nowrap"),
            Column("Reason", "reason"),
            Column("Device"),
            Column("Run", "nowrap"),
        ],
        rows=[
            TableRow(
                [
                    Cell(entry.record.case.id, record_page(entry.record)),
                    Cell(tag=status_tag(entry.record.status)),
                    Cell(entry.record.reason or "no reason recorded"),
                    Cell(entry.record.device.chip, note=f"backend {entry.record.device.backend}"),
                    Cell(utc(entry.record.started_at), run_page(entry.record.run_id)),
                ]
            )
            for entry in missing
        ],
    )


def runs_table(material: Material, table_id: str) -> Table:
    """Every run, newest first, also one in which nothing was measured (G12)."""
    return Table(
        id=table_id,
        caption="Runs, newest first",
        columns=[
            Column("Run", "name"),
            Column("Measured", "n"),
            Column("Device"),
            Column("Instance"),
            Column("Not measured", "reason"),
        ],
        rows=[_run_row(run) for run in material.runs()],
    )


def _run_row(run: Run) -> TableRow:
    devices = sorted({f"{entry.record.device.chip} ({entry.record.device.backend})" for entry in run.entries})
    instances = sorted({entry.record.device.instance_type or "unknown" for entry in run.entries})
    return TableRow(
        [
            Cell(utc(run.entries[0].record.started_at), run_page(run.id), note=run.id),
            Cell(f"{run.measured:,} of {len(run.entries):,}", run_page(run.id)),
            Cell(", ".join(devices)),
            Cell(", ".join(instances)),
            Cell(_statuses(run.entries) or "none"),
        ]
    )


def _statuses(entries: list[Entry]) -> str:
    counted = {status: sum(entry.record.status is status for entry in entries) for status in Status}
    return ", ".join(
        f"{number:,} {status.value.replace('_', ' ')}"
        for status, number in counted.items()
        if number and status is not Status.OK
    )


def _devices(material: Material) -> Table:
    return Table(
        id="devices-table",
        caption="Records by device",
        columns=[
            Column("Chip", "name"),
            Column("Backend"),
            Column("Instance type"),
            Column("Records", "n"),
            Column("Measured", "n"),
            Column("Not measured", "reason"),
        ],
        rows=[
            TableRow(
                [
                    Cell(chip),
                    Cell(backend),
                    Cell(instance),
                    Cell(f"{len(entries):,}"),
                    Cell(f"{sum(entry.record.status is Status.OK for entry in entries):,}"),
                    Cell(_statuses(entries) or "none"),
                ]
            )
            for (chip, backend, instance), entries in material.by_device()
        ],
    )


def _refused(material: Material) -> Table:
    return Table(
        id="refused-table",
        caption="Files that could not be read as records",
        headed=True,
        columns=[Column("File", "name"), Column("Reason", "reason")],
        rows=[TableRow([Cell(one.path), Cell(one.reason)]) for one in material.refused],
    )


def _totals(material: Material) -> str:
    text = f"{count(material.records_in, 'record')} read, {len(material.entries):,} shown"
    if material.simulated_left_out:
        text += f", {material.simulated_left_out:,} left out because a simulated device made them"
    return text + f"; {count(len(material.refused), 'file')} refused."
