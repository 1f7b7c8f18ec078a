"""How many requests, how fast? Served cases by scenario, devices beside each other, with their curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.case import SERVING_PHASES
from trnbench.compare.metrics import headline_metric, metric_values
from trnbench.report.format import count, number, utc
from trnbench.report.metric_names import SCENARIO_WORDS, capitalised, metric_words, readable
from trnbench.report.names import file_stem, record_page
from trnbench.report.newest_cases import CaseRecords, Newest, devices_in, newest_cases, version_note, without_values
from trnbench.report.serving_curves import Served, devices_figure, load_runs
from trnbench.report.serving_words import (
    LATENCY_NAMES,
    PERCENTILES,
    PROFILES,
    PURPOSES,
    length,
    produced_words,
    run_tag,
    throughput,
    throughput_words,
)
from trnbench.report.verdicts import status_tag
from trnbench.report.views import Cell, Column, Figure, GroupedTable, RowGroup, Table, TableRow
from trnbench.serving.settings import RATED

if TYPE_CHECKING:
    from trnbench.records.schema import LoadGenRun
    from trnbench.report.material import Material

SERVING, SERVING_TITLE, SERVING_SHORT = "serving.html", "How many requests, how fast?", "Serving"
EXPORTS = (
    Cell("Every LoadGen run of every served record (CSV)", "serving.csv"),
    Cell("The same with all latencies and settings (JSON)", "serving.json"),
)
_LATENCIES = (
    ("ttft_p50_seconds", "TTFT", "p50"),
    ("ttft_p90_seconds", "TTFT", "p90"),
    ("ttft_p99_seconds", "TTFT", "p99"),
    ("tpot_p50_seconds", "TPOT", "p50"),
    ("tpot_p99_seconds", "TPOT", "p99"),
    ("latency_p90_seconds", "Latency", "p90"),
    ("latency_p99_seconds", "Latency", "p99"),
)


class CaseCurves(msgspec.Struct, frozen=True, kw_only=True):
    """The curves of one case on all its devices, and the table of their points."""

    id: str
    heading: str
    profile: str
    figure: Figure | None
    nothing: str
    points: Table


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which requests arrive: a table of its cases, and curves where there are loads."""

    id: str
    heading: str
    words: str
    definitions: list[str]
    table: GroupedTable
    curves: list[CaseCurves]


class ServingPage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page shows."""

    headline: str
    profiles: list[str]
    scenarios: list[Scenario]
    exports: list[Cell]

    @property
    def figures(self) -> list[Figure]:
        """All its figures."""
        return [one.figure for scenario in self.scenarios for one in scenario.curves if one.figure]


def build_serving(material: Material) -> ServingPage | None:
    """The page, or None where no record is of a served case."""
    cases = newest_cases(material, SERVING_PHASES)
    if not cases:
        return None
    profiles = [words for profile, words in PROFILES.items() if any(one.case.profile == profile for one in cases)]
    shown = [
        _scenario(name, words, [one for one in cases if one.case.scenario == name])
        for name, words in SCENARIO_WORDS.items()
        if any(one.case.scenario == name for one in cases)
    ]
    measured = sum(any(one.counts for one in case.newest) for case in cases)
    devices = count(devices_in(cases), "device and stack", "devices and stacks")
    return ServingPage(
        headline=f"{count(len(cases), 'served case')} on {devices}, {measured:,} with a result. "
        "The newest record of each is shown.",
        profiles=profiles,
        scenarios=shown,
        exports=list(EXPORTS),
    )


def _scenario(name: str, words: str, cases: list[CaseRecords]) -> Scenario:
    heading, _, told = words.partition(": ")
    headlines = {headline_metric(one.case).name: headline_metric(one.case) for one in cases}
    return Scenario(
        id=f"scenario-{name.replace('_', '-')}",
        heading=heading,
        words=f"{capitalised(told)}.",
        definitions=[
            f"{capitalised(metric_words(one))}, in {one.unit}: {one.definition}." for one in headlines.values()
        ],
        table=_table(name, heading, cases),
        curves=[_curves(one) for one in cases] if name in RATED else [],
    )


def _table(name: str, heading: str, cases: list[CaseRecords]) -> GroupedTable:
    values = {one.record.record_id: _values(one) for case in cases for one in case.newest}
    latencies = [column for column in _LATENCIES if any(column[0] in found for found in values.values())]
    if not name.endswith("_stream") and all(case.case.phase == "serving" for case in cases):
        # Where tokens are timed the limits are theirs; the latency of whole answers is on the records' pages.
        latencies = [column for column in latencies if column[1] != "Latency"]
    return GroupedTable(
        id=f"serving-{name.replace('_', '-')}",
        caption=f"{heading}: the newest record of each case on each device and stack",
        headed=True,
        columns=[
            Column("Device and stack", "name"),
            Column("Status", "nowrap"),
            Column("Result", "n"),
            *([Column("Requests", "n", "a second")] if _beside(values) else []),
            *(Column(word, "n", percentile) for _, word, percentile in latencies),
            Column("Answer", "nowrap", "tokens"),
            Column("Rounds", "n", "valid"),
            Column("Measured", "nowrap"),
            Column("Why not", "reason"),
        ],
        groups=[
            RowGroup(
                f"{case.case.id}: {case.case.profile} profile",
                [_row(one, case, values[one.record.record_id], latencies, _beside(values)) for one in case.newest],
            )
            for case in cases
        ],
    )


def _values(one: Newest) -> dict[str, float]:
    return metric_values(one.record) if one.counts else {}


def _beside(values: dict[str, dict[str, float]]) -> bool:
    """Whether requests a second stand beside tokens a second."""
    return any("served_tokens_per_second" in found for found in values.values())


def _row(
    one: Newest,
    case: CaseRecords,
    values: dict[str, float],
    latencies: list[tuple[str, str, str]],
    beside: bool,
) -> TableRow:
    record, page = one.record, record_page(one.record)
    metric = headline_metric(record.case)
    result = Cell(number(values[metric.name]), page + "#values", metric.unit) if metric.name in values else Cell("n/a")
    return TableRow(
        [
            Cell(one.name, page, note=version_note(one, case)),
            Cell(tag=status_tag(record.status)),
            result,
            *([Cell(number(values.get("served_samples_per_second")))] if beside else []),
            *(Cell(" ".join(readable(values.get(name), "s")) if name in values else "n/a") for name, _, _ in latencies),
            Cell(_answers(one)),
            Cell(_valid_rounds(one), page + "#serving"),
            Cell(utc(record.started_at)),
            Cell(record.reason),
        ]
    )


def _rounds(one: Newest) -> list[LoadGenRun]:
    runs = one.record.measurement.serving if one.record.measurement else []
    return [run for run in runs if run.purpose == "round"]


def _answers(one: Newest) -> str:
    """`produced 7 of 32 (mean)` over the rounds that were answered."""
    rounds = [run for run in _rounds(one) if run.samples and "produced" in run.tokens]
    samples = sum(run.samples for run in rounds)
    if not samples:
        return "n/a"
    produced = sum(run.tokens["produced"] for run in rounds)
    asked = sum(run.tokens.get("asked", run.tokens["produced"]) for run in rounds)
    if asked == produced:
        return f"{length(produced / samples)} (mean)"
    return f"produced {length(produced / samples)} of {length(asked / samples)} (mean)"


def _valid_rounds(one: Newest) -> str:
    rounds = _rounds(one)
    return f"{sum(run.valid for run in rounds):,} of {len(rounds):,}"


def _curves(case: CaseRecords) -> CaseCurves:
    stem = file_stem(case.case.id)
    counted = [one for one in case.newest if one.counts]
    shown = [Served(name=one.name, record=one.record, look=look) for look, one in enumerate(counted)]
    missing = without_values(case) + [f"{one.name}: it kept no load" for one in shown if not load_runs(one.record)]
    points = _points(case, f"points-{stem}")
    return CaseCurves(
        id=f"case-{stem}",
        heading=case.case.id,
        profile=PROFILES[case.case.profile],
        figure=devices_figure(shown, f"serving-{case.case.id}", points.id, [f"no curve: {line}" for line in missing]),
        nothing="; ".join(missing),
        points=points,
    )


def _points(case: CaseRecords, table_id: str) -> Table:
    """Every load of every device: the values of the figure."""
    loads = [(one, run) for one in case.newest for run in load_runs(one.record)]
    latencies = [name for name in PERCENTILES if any(name in run.latencies for _, run in loads)]
    return Table(
        id=table_id,
        caption=f"Every load of {case.case.id}, from light to heavy",
        columns=[
            Column("Device and stack", "name"),
            Column("LoadGen run"),
            Column("Counts?", "nowrap"),
            Column("Rate asked", "n", "requests/s"),
            Column(capitalised(throughput_words(case.case)), "n", "completed"),
            *(Column(LATENCY_NAMES[name], "n", f"p{key}, seconds") for name in latencies for key in PERCENTILES[name]),
            Column("Answer", "nowrap", "tokens"),
        ],
        rows=[
            TableRow(
                [
                    Cell(one.name, record_page(one.record) + "#serving"),
                    Cell(PURPOSES[run.purpose]),
                    Cell(tag=run_tag(run)),
                    Cell(number(run.rates.get("target"))),
                    Cell(number(throughput(run, case.case))),
                    *(Cell(number(_percentile(run, name, key))) for name in latencies for key in PERCENTILES[name]),
                    Cell(produced_words(run)),
                ]
            )
            for one, run in loads
        ],
    )


def _percentile(run: LoadGenRun, name: str, key: str) -> float | None:
    return run.latencies[name].percentiles.get(key) if name in run.latencies else None
