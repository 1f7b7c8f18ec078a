"""A comparison's page: the verdict, the runs it rests on, the numerics, the prices, what differs and how to redo it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.report.answers import Answer, answer, pairs
from trnbench.report.check_tables import sides_checks_table
from trnbench.report.cost_tables import cost_ratios_table, prices_table, stale_prices
from trnbench.report.cost_words import price_cancels, without_prices
from trnbench.report.figures import round_seconds, rounds_figure, run_interval, runs_figure, side_range
from trnbench.report.format import byte_size, count, number, percent, ratio, ratio_interval, seconds, utc
from trnbench.report.material import UNKNOWN
from trnbench.report.metric_names import capitalised, metric_words
from trnbench.report.names import file_stem, record_page, rerun_command, run_page
from trnbench.report.ordering import natural_key
from trnbench.report.record_page import case_facts
from trnbench.report.verdicts import agreement, newest, status_tag
from trnbench.report.views import Cell, Column, Fact, Figure, Table, TableRow

if TYPE_CHECKING:
    from datetime import date

    from trnbench.compare.model import Comparison, RunValue, Side
    from trnbench.device import Scalar
    from trnbench.records.schema import Record


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one comparison's page shows."""

    title: str
    answer: Answer
    facts: list[Fact]
    figures: list[Figure]
    runs: list[Table]
    rounds: Table | None
    spread: str
    numerics_words: str
    numerics_why: str
    checks: Table
    price_cancels: str
    no_dollars: str
    prices: Table
    stale: list[str]
    cost_ratios: Table
    notes: list[str]
    left_out: Table
    case: list[Fact]
    environment: Table
    commands: list[tuple[str, str, str]]
    exports: list[Cell]


def build_comparison(comparison: Comparison, today: date | None) -> Page:
    """The page of one comparison; prices are aged on `today`."""
    found = agreement(comparison)
    sides = (comparison.a, comparison.b)
    figures = [runs_figure(comparison, "runs-a"), rounds_figure(comparison, "rounds-table")]
    stem = file_stem(comparison.id)
    return Page(
        title=comparison.title,
        answer=answer(pairs([comparison])[0]),
        facts=_facts(comparison),
        figures=[figure for figure in figures if figure],
        runs=[_runs(comparison, side, f"runs-{key}") for key, side in zip("ab", sides, strict=True)],
        rounds=_rounds(sides),
        spread=" ".join(_spread(side) for side in sides),
        numerics_words=found.words,
        numerics_why=found.why.removesuffix(".") + ".",
        checks=sides_checks_table(comparison),
        price_cancels=price_cancels([comparison]),
        no_dollars=without_prices(comparison),
        prices=prices_table(comparison),
        stale=stale_prices(comparison, today),
        cost_ratios=cost_ratios_table(comparison),
        notes=comparison.notes,
        left_out=_left_out(sides),
        case=case_facts(comparison.a.case),
        environment=_environment(comparison),
        commands=[_command(side) for side in sides if newest(side)],
        exports=[
            Cell("CSV: one line a run", f"comparisons/{stem}.csv"),
            Cell("JSON: the whole comparison", f"comparisons/{stem}.json"),
        ],
    )


def _facts(comparison: Comparison) -> list[Fact]:
    facts = []
    if comparison.metric:
        direction = "more is better" if comparison.metric.higher_is_better else "less is better"
        facts.append(
            Fact(
                "Metric",
                Cell(
                    f"{metric_words(comparison.metric)}, in {comparison.metric.unit}; {direction}",
                    note=f"{comparison.metric.definition} (definition {comparison.metric.definition_version})",
                ),
            )
        )
    if comparison.throughput_ratio:
        found = comparison.throughput_ratio
        facts.append(
            Fact(
                "Throughput ratio",
                Cell(
                    f"{ratio(found.value)} ({ratio_interval(found.low, found.high)}), "
                    f"{comparison.a.label} over {comparison.b.label}",
                    note=f"{found.confidence:.0%} interval; {found.method}",
                ),
            )
        )
    facts += [Fact(side.label, Cell(side_range(side), "#runs")) for side in (comparison.a, comparison.b)]
    return facts


def _runs(comparison: Comparison, side: Side, table_id: str) -> Table:
    unit = comparison.metric.unit if comparison.metric else ""
    return Table(
        id=table_id,
        caption=f"Runs of {side.label}",
        columns=[
            Column("Run", "name"),
            Column(capitalised(metric_words(comparison.metric)) if comparison.metric else "Value", "n", unit),
            Column("Median round", "n", f"{unit}, with interval" if unit else "with interval"),
            Column("Rounds", "n"),
            Column("Attempts", "n", "newest counts"),
            Column("First step", "n", "compiles"),
            Column("Peak memory", "n"),
            Column("Record", "nowrap"),
        ],
        rows=[_run_row(run) for run in side.runs],
    )


def _run_row(run: RunValue) -> TableRow:
    record, page = run.record, record_page(run.record)
    measured = record.measurement
    compiled = measured.compile.count if measured else None
    return TableRow(
        [
            Cell(utc(record.started_at), run_page(record.run_id), note=record.run_id),
            Cell(number(run.value), page),
            Cell(number(run.median), note=run_interval(run)),
            Cell(f"{len(measured.rounds):,}" if measured else "0", page + "#rounds"),
            Cell(f"{run.attempts:,}"),
            Cell(
                seconds(measured.compile.first_step_seconds) if measured else "n/a",
                note="compiles unknown" if compiled is None else count(compiled, "compile"),
            ),
            Cell(byte_size(measured.memory.peak_bytes) if measured else "n/a"),
            Cell("record", page),
        ]
    )


def _rounds(sides: tuple[Side, Side]) -> Table | None:
    runs = [(side, run.record) for side in sides for run in side.runs if round_seconds(run.record)]
    if not runs:
        return None
    longest = max(len(round_seconds(record)) for _, record in runs)
    return Table(
        id="rounds-table",
        caption="Seconds of every round",
        columns=[Column("Round", "name")] + [Column(side.label, "n", utc(record.started_at)) for side, record in runs],
        rows=[
            TableRow([Cell(f"{place + 1:,}")] + [_round_cell(record, place) for _, record in runs])
            for place in range(longest)
        ],
    )


def _round_cell(record: Record, place: int) -> Cell:
    values = round_seconds(record)
    return Cell(number(values[place]), record_page(record) + "#rounds") if place < len(values) else Cell("no round")


def _spread(side: Side) -> str:
    if side.run_to_run_spread is None:
        return f"{side.label}: too few runs for a run-to-run spread."
    return f"{side.label}: run-to-run spread {percent(side.run_to_run_spread)}."


def _left_out(sides: tuple[Side, Side]) -> Table:
    return Table(
        id="left-out-table",
        caption="Records left out",
        columns=[Column("Record", "name"), Column("Side"), Column("Status", "nowrap"), Column("Why", "reason")],
        rows=[
            TableRow(
                [
                    Cell(utc(record.started_at), record_page(record), note=record.record_id),
                    Cell(side.label),
                    Cell(tag=status_tag(record.status)),
                    Cell(reason),
                ]
            )
            for side in sides
            for record, reason in side.left_out
        ],
    )


def _environment(comparison: Comparison) -> Table:
    values = [_stack(newest(side)) for side in (comparison.a, comparison.b)]
    keys = sorted({key for one in values for key in one}, key=lambda key: (key[0], natural_key(key[1])))
    rows = []
    for key in keys:
        shown = [str(one[key]) if key in one else "absent" for one in values]
        rows.append(TableRow([Cell(key[1], note=key[0]), *(Cell(text) for text in shown)], shown[0] != shown[1]))
    return Table(
        id="environment-table",
        caption="Device, software and flags of the newest record of each side",
        columns=[Column("What", "name"), Column(comparison.a.label, "name"), Column(comparison.b.label, "name")],
        rows=rows,
    )


def _stack(record: Record | None) -> dict[tuple[str, str], Scalar]:
    if record is None:
        return {}
    device, environment = record.device, record.environment
    found: dict[tuple[str, str], Scalar] = {
        ("device", name): UNKNOWN if value is None else value
        for name, value in (
            ("backend", device.backend),
            ("chip", device.chip),
            ("chips", device.chips),
            ("cores", device.cores),
            ("memory of a chip", byte_size(device.memory_bytes) if device.memory_bytes is not None else None),
            ("instance type", device.instance_type),
            ("region", device.region),
            ("platform", device.platform),
            ("commit", environment.git.commit),
        )
    }
    for heading, values in (("version", environment.versions), ("flag", environment.flags), ("cpu", environment.cpu)):
        found |= {(heading, name): value for name, value in values.items()}
    return found


def _command(side: Side) -> tuple[str, str, str]:
    """A side's label, the command that measures it again, and the checkout that it ran from."""
    record = newest(side)
    if record is None:
        raise AssertionError(f"{side.label} has no record to run again")
    return side.label, rerun_command(record, max(1, len(side.runs))), checkout(record)


def checkout(record: Record) -> str:
    """Which checkout the record came from, in words."""
    git = record.environment.git
    if git.commit is None:
        return "commit unknown"
    state = {True: ", with uncommitted changes", False: "", None: ", state of the checkout unknown"}[git.dirty]
    return f"commit {git.commit}{state}"
