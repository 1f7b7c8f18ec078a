"""A run's page: every case it tried, with its outcome, times, memory and checks; a night that measured nothing too."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import msgspec

from trnbench.compare.labels import device_label
from trnbench.compare.metrics import METRICS, headline_metric, metric_values
from trnbench.report.check_counts import count_words, record_tag, tally
from trnbench.report.figures import cases_figure, quartiles, round_seconds
from trnbench.report.format import byte_size, number, percent, seconds, utc
from trnbench.report.material import UNKNOWN, Material, Run, assert_complete
from trnbench.report.metric_names import round_words
from trnbench.report.names import record_page
from trnbench.report.ordering import case_key, record_key
from trnbench.report.verdicts import checks_words, status_tag
from trnbench.report.views import Cell, Column, Fact, Figure, Table, TableRow
from trnbench.status import Status

if TYPE_CHECKING:
    from trnbench.records.schema import Record


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run's page shows."""

    title: str
    headline: str
    facts: list[Fact]
    figure: Figure | None
    cases: Table
    checked: Table


def build_run(run: Run, material: Material) -> RunPage:
    """The page of one run; its cases are listed in number order."""
    ordered = Run(
        id=run.id,
        entries=sorted(run.entries, key=lambda entry: (case_key(entry.record.case), record_key(entry.record))),
    )
    table, checked = _cases(ordered, material), _checked(ordered)
    assert_complete(len(run.entries), [len(table.rows), len(checked.rows)], f"the page of run {run.id}")
    return RunPage(
        title=f"Run of {utc(run.entries[0].record.started_at)}",
        headline=_headline(run),
        facts=_facts(run),
        figure=cases_figure(_measurable(ordered), f"run-{run.id}", table.id) if table.rows else None,
        cases=table,
        checked=checked,
    )


def _headline(run: Run) -> str:
    told = [f"{run.measured:,} of {run.measurable:,} measured"] if run.measurable else []
    return ", ".join([*told, *([f"{run.checked:,} of {run.checkable:,} checked"] if run.checkable else [])])


def _measurable(run: Run) -> Run:
    return Run(id=run.id, entries=[entry for entry in run.entries if not entry.record.case.checks_only])


def _facts(run: Run) -> list[Fact]:
    records = [entry.record for entry in run.entries]
    return [
        Fact("Run", Cell(run.id)),
        Fact("Started", Cell(utc(records[0].started_at))),
        Fact("Finished", Cell(utc(records[-1].finished_at))),
        Fact("Device", Cell(_distinct([device_label(one) for one in records]))),
        Fact("Instance type", Cell(_distinct([one.device.instance_type or UNKNOWN for one in records]))),
        Fact("Region", Cell(_distinct([one.device.region or UNKNOWN for one in records]))),
        Fact("Commit", Cell(_distinct([one.environment.git.commit or UNKNOWN for one in records]))),
    ]


def _distinct(values: list[str]) -> str:
    return ", ".join(sorted(set(values)))


def _cases(run: Run, material: Material) -> Table:
    return Table(
        id="cases-table",
        caption="Cases of this run",
        columns=[
            Column("Case", "name"),
            Column("Status", "nowrap"),
            Column("Result", "n"),
            Column("Median round", "n", "and its spread"),
            Column("Warm-up", "n", "and compiling"),
            Column("Peak memory", "n"),
            Column("Checks", "nowrap"),
            Column("Attempt", "n"),
            Column("Comparisons", "n"),
        ],
        rows=[_row(run, entry.record, material) for entry in _measurable(run).entries],
    )


def _checked(run: Run) -> Table:
    """Cases that are only checked: what their verdicts say."""
    return Table(
        id="checked-table",
        caption="Cases that are only checked",
        columns=[
            Column("Case", "name"),
            Column("Status", "nowrap"),
            Column("Verdict", "nowrap"),
            Column("Checks", "reason"),
            Column("Attempt", "n"),
        ],
        rows=[
            TableRow(
                [
                    Cell(one.case.id, record_page(one), one.reason),
                    Cell(tag=status_tag(one.status)),
                    Cell(href=record_page(one) + "#checks", tag=record_tag(one)) if one.conformance else Cell("n/a"),
                    Cell(count_words(tally(one.conformance)) or "none made"),
                    Cell("{:,} of {:,}".format(*run.attempt(one))),
                ]
            )
            for one in (entry.record for entry in run.entries)
            if one.case.checks_only
        ],
    )


def _row(run: Run, record: Record, material: Material) -> TableRow:
    page, measured = record_page(record), record.measurement
    timed = [value for value in round_seconds(record) if value is not None] if record.status is Status.OK else []
    attempt, attempts = run.attempt(record)
    return TableRow(
        [
            Cell(record.case.id, page, note=record.reason),
            Cell(tag=status_tag(record.status)),
            _result(record),
            Cell(seconds(statistics.median(timed)), page + "#rounds", _round_note(record, timed))
            if timed
            else Cell("n/a"),
            Cell(seconds(sum(step.seconds for step in measured.warmup)), note=seconds(measured.compile.seconds))
            if measured
            else Cell("n/a"),
            Cell(byte_size(measured.memory.peak_bytes) if measured else "n/a"),
            Cell(checks_words(record), page + "#checks"),
            Cell(f"{attempt:,} of {attempts:,}"),
            Cell(f"{len(material.comparisons_of(record.record_id)):,}", page + "#comparisons"),
        ]
    )


def _result(record: Record) -> Cell:
    """The headline metric, only where the measurement counts."""
    metric = headline_metric(record.case)
    value = metric_values(record).get(metric.name) if record.status is Status.OK else None
    if value is None:
        return Cell("n/a")
    return Cell(number(value), record_page(record) + "#values", note=METRICS[metric.name].unit)


def _round_note(record: Record, timed: list[float]) -> str:
    """The spread of the rounds and, where they are no durations of steps, what they are."""
    words = round_words(record.case)
    return "; ".join(filter(None, (_spread(timed), "" if words == "duration" else words)))


def _spread(timed: list[float]) -> str:
    """The middle half of the rounds over their median; empty with too few rounds."""
    first, third = quartiles(timed)
    if first is None or third is None:
        return ""
    return percent((third - first) / statistics.median(timed))
