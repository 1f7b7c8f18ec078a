"""The figures of the site: which values go into which plot, and the words for those who cannot see it."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from trnbench.case import QUALITY_PHASES, SERVING_PHASES
from trnbench.report import plots
from trnbench.report.format import count, interval, minute, number, ratio, ratio_interval, seconds
from trnbench.report.metric_names import capitalised, metric_words, round_words
from trnbench.report.plots import Row, Series
from trnbench.report.verdicts import DECIDED, verdict_words
from trnbench.report.views import Figure
from trnbench.status import Status

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.compare.model import Comparison, RunValue, Side
    from trnbench.records.schema import Record
    from trnbench.report.material import Run

_LOOKS = {"a faster": 0, "b faster": 1, "not distinguishable": 2}
_UNDECIDED_LOOK = 3


def ratio_figure(comparisons: list[Comparison], *, name: str, sides: str, table_id: str) -> Figure:
    """Throughput ratios with intervals, one row a comparison, around the line at which both sides are equal."""
    rows = [
        Row(
            name=comparison.a.case.id,
            value=comparison.throughput_ratio.value if comparison.throughput_ratio else None,
            low=comparison.throughput_ratio.low if comparison.throughput_ratio else None,
            high=comparison.throughput_ratio.high if comparison.throughput_ratio else None,
            text=_ratio_text(comparison),
            missing=comparison.verdict,
            look=_LOOKS.get(comparison.verdict, _UNDECIDED_LOOK),
        )
        for comparison in comparisons
    ]
    said = "; ".join(
        f"{comparison.a.case.id}: {_ratio_text(comparison) or 'no ratio'}, {verdict_words(comparison)}"
        for comparison in comparisons
    )
    title = f"Throughput of {sides}"
    return Figure(
        drawing=plots.intervals(
            rows,
            title=title,
            description=said,
            axis="throughput ratio on a logarithmic scale; right of the line the first side is faster",
            log=True,
            reference=1.0,
        ),
        name=name,
        alt=f"{title}: ratios with intervals for {count(len(comparisons), 'comparison')}. {said}.",
        caption="Circle: the first side is faster. Square: the second side is. Triangle: not distinguishable. "
        "Diamond: no verdict. Bars span the interval.",
        table_id=table_id,
    )


def runs_figure(comparison: Comparison, table_id: str) -> Figure | None:
    """Each run's value with the interval inside the run, both sides over one scale; None without a common metric."""
    if comparison.metric is None or not (comparison.a.runs or comparison.b.runs):
        return None
    rows = [
        Row(
            name=f"{side.label}, {minute(run.record.started_at)}",
            value=run.value,
            low=run.low,
            high=run.high,
            text=number(run.value),
            look=look,
        )
        for look, side in enumerate((comparison.a, comparison.b))
        for run in side.runs
    ]
    better = "more is better" if comparison.metric.higher_is_better else "less is better"
    words = metric_words(comparison.metric)
    title = f"{capitalised(words)} of every run"
    said = "; ".join(f"{row.name}: {row.text}" for row in rows)
    return Figure(
        drawing=plots.intervals(
            rows, title=title, description=said, axis=f"{words}, {comparison.metric.unit}; {better}"
        ),
        name=f"{comparison.id}-runs",
        alt=f"{title} in {comparison.metric.unit}, with the interval inside each run. {said}.",
        caption=f"Circles: {comparison.a.label}. Squares: {comparison.b.label}. "
        "Bars bound each run's median; the distance between runs of one side is what the verdict is weighed against.",
        table_id=table_id,
    )


def rounds_figure(comparison: Comparison, table_id: str) -> Figure | None:
    """Seconds of every round in the order they were measured, one line a run: drift and outliers show here."""
    series = [
        Series(name=f"{side.label}, {minute(run.record.started_at)}", values=round_seconds(run.record))
        for side in (comparison.a, comparison.b)
        for run in side.runs
    ]
    case = comparison.a.case
    return _rounds(series, f"{comparison.id}-rounds", table_id, case) if any(one.values for one in series) else None


def cases_figure(run: Run, name: str, table_id: str) -> Figure | None:
    """Median seconds of a round for every case of a run; a case without a measurement keeps its row and says why.

    Rounds that are LoadGen's metrics or whole trainings have no place on the scale of steps: such cases are left to
    the run's table, and the caption says so. None where no case has steps.
    """
    steps = [entry.record for entry in run.entries if entry.record.case.phase not in (*SERVING_PHASES, *QUALITY_PHASES)]
    if not steps:
        return None
    others = len(run.entries) - len(steps)
    rows = [case_row(record) for record in steps]
    measured = sum(row.value is not None for row in rows)
    title = "Median seconds of a round, by case"
    said = "; ".join(f"{row.name}: {row.text or row.missing}" for row in rows)
    return Figure(
        drawing=plots.intervals(
            rows,
            title=title,
            description=said,
            axis="seconds of a round on a logarithmic scale; less is faster",
            log=True,
        ),
        name=name,
        alt=f"{title}: {measured:,} of {count(len(rows), 'case')} measured. {said}.",
        caption="Bars span the middle half of the rounds. A case without a point was not measured; its row says why."
        + (f" The table alone has {count(others, 'case')} of serving and training to quality." if others else ""),
        table_id=table_id,
    )


def case_row(record: Record) -> Row:
    """A record as a row of the cases' plot: the median of its rounds between their quartiles."""
    values = round_seconds(record) if record.status is Status.OK else []
    timed = [value for value in values if value is not None]
    if not timed:
        reason = record.status.value.replace("_", " ")
        return Row(name=record.case.id, value=None, missing=reason if record.status is not Status.OK else "no rounds")
    low, high = quartiles(timed)
    median = statistics.median(timed)
    return Row(name=record.case.id, value=median, low=low, high=high, text=seconds(median))


def quartiles(values: list[float]) -> tuple[float | None, float | None]:
    """First and third quartile (inclusive method); None below two values."""
    if len(values) < 2:
        return None, None
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def round_seconds(record: Record) -> list[float | None]:
    """Seconds of the record's rounds, in order; empty where nothing was measured."""
    return [one.seconds for one in record.measurement.rounds] if record.measurement else []


def run_interval(run: RunValue) -> str:
    """The interval inside a run, as printed."""
    return interval(run.low, run.high)


def side_range(side: Side) -> str:
    """`n runs, from .. to ..` of a side's values."""
    values = [run.value for run in side.runs]
    if not values:
        return "no runs"
    if len(values) == 1:
        return f"1 run, {number(values[0])}"
    return f"{count(len(values), 'run')}, {number(min(values))} to {number(max(values))}"


def decided(comparisons: list[Comparison]) -> list[Comparison]:
    """Those that rest on a full comparison and have a ratio."""
    return [one for one in comparisons if one.verdict in DECIDED and one.throughput_ratio is not None]


def _ratio_text(comparison: Comparison) -> str:
    found = comparison.throughput_ratio
    return f"{ratio(found.value)} ({ratio_interval(found.low, found.high)})" if found else ""


def _rounds(series: list[Series], name: str, table_id: str, case: Case) -> Figure:
    title = "Seconds of every round, in the order they were measured"
    words = round_words(case)
    axis = "seconds of a round" + ("" if words == "duration" else f": {words}")
    told = "A line that climbs is a device that slows down."
    if case.phase in QUALITY_PHASES:
        told = "Each round is a training from a seed of its own, so rounds differ with their seeds."
    said = "; ".join(f"{one.name}: {_series_words(one)}" for one in series)
    return Figure(
        drawing=plots.rounds(series, title=title, description=said, axis=axis),
        name=name,
        alt=f"{title}. {said}.",
        caption=f"{title}. {told}",
        table_id=table_id,
    )


def _series_words(series: Series) -> str:
    values = [value for value in series.values if value is not None]
    if not values:
        return "no rounds"
    return f"{count(len(values), 'round')} between {seconds(min(values))} and {seconds(max(values))}"
