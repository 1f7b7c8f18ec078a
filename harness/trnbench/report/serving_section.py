"""The part of a served record's page that shows its LoadGen runs: a table of all, and the curve where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.case import SERVING_PHASES
from trnbench.compare.serving_metrics import mean_answer
from trnbench.report.format import number, seconds
from trnbench.report.metric_names import SCENARIO_WORDS
from trnbench.report.serving_curves import curve_figure
from trnbench.report.serving_words import (
    LATENCY_NAMES,
    PERCENTILES,
    PROFILES,
    PURPOSES,
    length_note,
    produced_words,
    run_tag,
    why_not,
)
from trnbench.report.views import Cell, Column, Figure, Table, TableRow

if TYPE_CHECKING:
    from trnbench.records.schema import LoadGenRun, Record


class ServingSection(msgspec.Struct, frozen=True, kw_only=True):
    """What the section shows; `nothing` says why there is no run, and is empty otherwise."""

    scenario: str
    profile: str
    nothing: str
    figure: Figure | None
    table: Table


def serving_section(record: Record) -> ServingSection | None:
    """The section of a served record, None for any other."""
    case = record.case
    if case.phase not in SERVING_PHASES:
        return None
    runs = record.measurement.serving if record.measurement else []
    table = loadgen_table(record, "loadgen-table")
    return ServingSection(
        scenario=f"{SCENARIO_WORDS[case.scenario]}.",
        profile=PROFILES[case.profile],
        nothing="" if runs else record.reason or "no LoadGen run was kept",
        figure=curve_figure(record, f"record-{record.record_id}-serving", table.id),
        table=table,
    )


def loadgen_table(record: Record, table_id: str) -> Table:
    """Every LoadGen run of the record in the order of time, those that failed included."""
    measured = record.measurement
    runs = measured.serving if measured else []
    usual = mean_answer(measured) if measured else None
    latencies = [name for name in PERCENTILES if any(name in run.latencies for run in runs)]
    answers = any("produced" in run.tokens for run in runs)
    columns = [
        Column("LoadGen run", "name"),
        Column("Counts?", "nowrap", "LoadGen's verdict"),
        Column("Failed", "n", "errors logged"),
        Column("Rate asked", "n", "requests/s"),
        Column("Queries", "n"),
        Column("Samples", "n", "a second"),
        *([Column("Tokens", "n", "a second"), Column("Answer", "nowrap", "tokens")] if answers else []),
        *(Column(LATENCY_NAMES[name], "n", f"p{key}") for name in latencies for key in PERCENTILES[name]),
        Column("Duration", "n"),
        Column("Why not", "told"),
    ]
    return Table(
        id=table_id,
        caption="Every LoadGen run behind this record, in the order of time",
        columns=columns,
        rows=[
            TableRow(
                [
                    Cell(f"{place:,} {PURPOSES[run.purpose]}"),
                    Cell(tag=run_tag(run), note=_verdict(run)),
                    Cell(number(run.errors)),
                    Cell(number(run.rates.get("target"))),
                    Cell(number(run.queries)),
                    Cell(number(_rate(run, "samples")), note=f"{run.samples:,} in all"),
                    *(_answers(run, usual) if answers else []),
                    *(_latency(run, name, key) for name in latencies for key in PERCENTILES[name]),
                    Cell(seconds(run.seconds)),
                    Cell(why_not(run)),
                ]
            )
            for place, run in enumerate(runs, 1)
        ],
    )


def _verdict(run: LoadGenRun) -> str:
    return "LoadGen gives none" if run.verdict == "none" else f"LoadGen: {run.verdict}"


def _rate(run: LoadGenRun, name: str) -> float | None:
    """A rate of the run; one without an answered request has none (B13)."""
    return run.rates.get(name) if run.samples else None


def _answers(run: LoadGenRun, usual: float | None) -> list[Cell]:
    return [Cell(number(_rate(run, "tokens"))), Cell(produced_words(run), note=length_note(run, usual))]


def _latency(run: LoadGenRun, name: str, percentile: str) -> Cell:
    found = run.latencies.get(name)
    value = None if found is None else found.percentiles.get(percentile)
    if value is None:
        return Cell("n/a", note=f"{found.count:,} too few" if found is not None else "")
    return Cell(seconds(value))
