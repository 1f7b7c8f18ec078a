"""Latency-throughput curves: of one record all percentiles, of several devices one percentile over common scales.

One load point misleads: a device may be fast while it is idle and late once it is busy. So the latencies stand over
the tokens completed a second, for every load that was tried, the failed ones included (F2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.schema import Record
from trnbench.report import curves
from trnbench.report.curves import Curve, Key, Kind, Panel, Rule, Spot, drawable
from trnbench.report.format import count, joined, number, seconds
from trnbench.report.metric_names import capitalised
from trnbench.report.serving_words import (
    LATENCIES_IN_FULL,
    LATENCY_NAMES,
    PURPOSES,
    limit_of,
    missed,
    throughput,
    throughput_words,
)
from trnbench.report.views import Figure
from trnbench.serving.settings import RATED

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.records.schema import LoadGenRun

_DRAWN: dict[str, Kind] = {"point": "joined", "search": "hollow", "round": "ringed"}
_LIMITED = "99"
PERCENTILES = (_LIMITED, "90", "50")
"""Percentiles that are drawn, the one that limits are about first."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """One device and stack of a common figure: its name, its record, and its place among the series."""

    name: str
    record: Record
    look: int


def load_runs(record: Record) -> list[LoadGenRun]:
    """The runs that a curve shows: search, load points and rounds, from light to heavy load."""
    runs = record.measurement.serving if record.measurement else []
    return sorted((run for run in runs if run.purpose in _DRAWN), key=lambda run: run.rates.get("target", 0.0))


def highest_valid(runs: list[LoadGenRun]) -> LoadGenRun | None:
    """The valid run at the highest rate: of the rounds where one of them is valid, since those are what counts.

    A search may have found a higher rate valid once, which then did not hold.
    """
    valid = [run for run in runs if not missed(run) and "target" in run.rates and run.purpose != "point"]
    return max(valid, key=lambda run: (run.purpose == "round", run.rates["target"]), default=None)


def curve_figure(record: Record, name: str, table_id: str) -> Figure | None:
    """A record's latencies at every percentile its runs carry, over throughput; None for scenarios without a rate."""
    runs = load_runs(record)
    if record.case.scenario not in RATED or not runs:
        return None
    case, best = record.case, highest_valid(runs)
    shown = [latency for latency in LATENCIES_IN_FULL if _carried(runs, latency)]
    if "ttft" in shown:
        shown = [latency for latency in shown if latency != "latency"]
    percentiles = [key for key in reversed(PERCENTILES) if any(key in _carried(runs, latency) for latency in shown)]
    panels = [
        _panel(
            case,
            runs,
            latency,
            [Curve(look=look, spots=_spots(case, runs, latency, key)) for look, key in enumerate(percentiles)],
            highest=None if best is None else throughput(best, case),
        )
        for latency in shown
    ]
    keys = [Key(words=f"p{key} over the requests of a run", look=look) for look, key in enumerate(percentiles)]
    keys += [
        *_kind_keys(runs),
        *_best_key(best, case),
        *(Key(words=words) for words in _undrawn(case, runs, dict.fromkeys(shown, PERCENTILES))),
    ]
    title = f"Latency over throughput of {case.id}"
    said = _said(record, runs)
    return Figure(
        drawing=curves.curves(panels, keys, title=title, description=said),
        name=name,
        alt=f"{title}: {count(len(runs), 'LoadGen run')} from light to heavy load. {said}",
        caption=f"{capitalised(throughput_words(case))} completed, and how late answers were, under rising load. "
        "A line that turns upwards is a device that has more to do than it can.",
        table_id=table_id,
    )


def devices_figure(served: list[Served], name: str, table_id: str, missing: list[str]) -> Figure | None:
    """One line a device over common scales; `missing` says for each device without one why."""
    shown = [one for one in served if load_runs(one.record)]
    if not shown:
        return None
    case = shown[0].record.case
    runs = {one.look: load_runs(one.record) for one in shown}
    every = [run for group in runs.values() for run in group]
    latencies = ("latency",) if case.phase == "scoring" else ("ttft", "tpot")
    panels, told = [], []
    chosen: dict[str, tuple[str, ...]] = {}
    for latency in latencies:
        key = _common_percentile(every, latency)
        if key:
            chosen[latency] = (key,)
            told.append(f"{LATENCIES_IN_FULL[latency]}: p{key}")
            drawn = [Curve(look=look, spots=_spots(case, group, latency, key)) for look, group in runs.items()]
            panels.append(_panel(case, every, latency, drawn, percentile=key))
    if not panels:
        return None
    keys = [Key(words=one.name, look=one.look) for one in shown] + _kind_keys(every)
    keys += [Key(words=f"{one.name}: {words}") for one in shown for words in _undrawn(case, runs[one.look], chosen)]
    keys += [Key(words=words) for words in missing]
    title = f"Latency over throughput by device: {case.id}"
    said = " ".join(f"{one.name}: {_said(one.record, runs[one.look])}" for one in shown)
    return Figure(
        drawing=curves.curves(panels, keys, title=title, description=said),
        name=name,
        alt=f"{title}, {count(len(shown), 'device')}. {'; '.join(told)}. {said}",
        caption="Further right is more work done, lower is sooner answered. All devices share the scales.",
        table_id=table_id,
    )


def _panel(
    case: Case,
    runs: list[LoadGenRun],
    latency: str,
    drawn: list[Curve],
    *,
    percentile: str = "",
    highest: float | None = None,
) -> Panel:
    limits = sorted({limit for run in runs if (limit := limit_of(run, latency)) is not None})
    xs = [spot.x for curve in drawn for spot in curve.spots if spot.x is not None and spot.x > 0]
    return Panel(
        up=f"{LATENCIES_IN_FULL[latency]}{f', p{percentile}' if percentile else ''}, in seconds (logarithmic)",
        across=f"{throughput_words(case)}, completed",
        curves=drawn,
        rules=[Rule(value=limit, label=f"limit of the p{_LIMITED}: {seconds(limit)}") for limit in limits],
        upright=highest,
        log_up=True,
        log_across=bool(xs) and max(xs) > 30 * min(xs),
        from_zero=True,
    )


def _spots(case: Case, runs: list[LoadGenRun], latency: str, percentile: str) -> list[Spot]:
    return [
        Spot(
            x=throughput(run, case),
            y=run.latencies[latency].percentiles.get(percentile) if latency in run.latencies else None,
            kind=_DRAWN[run.purpose],
            crossed=missed(run),
        )
        for run in runs
    ]


def _carried(runs: list[LoadGenRun], latency: str) -> set[str]:
    return {key for run in runs if latency in run.latencies for key in run.latencies[latency].percentiles}


def _common_percentile(runs: list[LoadGenRun], latency: str) -> str:
    """The highest percentile that nearly all load points carry, or all runs where there is no point; empty for none.

    The curve is made of the points: at a percentile that few of them carry there is none.
    """
    found = [run.latencies[latency].percentiles for run in runs if latency in run.latencies and run.purpose == "point"]
    found = found or [run.latencies[latency].percentiles for run in runs if latency in run.latencies]
    return next((key for key in PERCENTILES if found and sum(key in each for each in found) * 4 >= len(found) * 3), "")


def _kind_keys(runs: list[LoadGenRun]) -> list[Key]:
    words = {
        "point": "filled and joined: load points of the curve",
        "search": "hollow: runs of the search for the highest rate",
        "round": "ringed: the rounds, which decide comparisons",
    }
    keys = [Key(words=told, sign=_DRAWN[purpose]) for purpose, told in words.items() if _any(runs, purpose)]
    if any(missed(run) for run in runs):
        keys.append(Key(words="crossed out: missed a limit, or failed", sign="cross"))
    return keys


def _any(runs: list[LoadGenRun], purpose: str) -> bool:
    return any(run.purpose == purpose for run in runs)


def _best_key(best: LoadGenRun | None, case: Case) -> list[Key]:
    if best is None:
        return [Key(words="no rate was valid")]
    rate, done = number(best.rates["target"]), throughput(best, case)
    words = f"upright line: the highest valid rate, {rate} requests/s, {number(done)} {throughput_words(case)}"
    return [Key(words=words, sign="upright")]


def _undrawn(case: Case, runs: list[LoadGenRun], shown: dict[str, tuple[str, ...]]) -> list[str]:
    """Runs without a point in any panel, by reason; `shown` holds percentiles by latency. Nothing vanishes (F2)."""
    wanted = " or ".join(f"p{key}" for key in dict.fromkeys(key for keys in shown.values() for key in keys))
    grouped: dict[str, list[str]] = {}
    for run in runs:
        found = [
            run.latencies[name].percentiles.get(key) for name in shown if name in run.latencies for key in shown[name]
        ]
        if drawable(throughput(run, case), False) and any(drawable(value, True) for value in found):
            continue
        few = f"too few requests for a {wanted}" if run.latencies else "it carries no latency"
        grouped.setdefault("; ".join(run.reasons) or few, []).append(_called(run))
    return [f"no point: {joined(called)}: {reason}" for reason, called in grouped.items()]


def _called(run: LoadGenRun) -> str:
    asked = run.rates.get("target")
    return PURPOSES[run.purpose] + (f" at {number(asked)} requests/s" if asked is not None else "")


def _said(record: Record, runs: list[LoadGenRun]) -> str:
    """The curve in words, for those who cannot see it."""
    told = []
    for run in runs:
        done = throughput(run, record.case)
        late = [
            f"{LATENCY_NAMES[latency]} p{key} {seconds(found.percentiles[key])}"
            for latency, found in run.latencies.items()
            for key in reversed(PERCENTILES)
            if latency in LATENCY_NAMES and key in found.percentiles
        ]
        state = ", crossed out" if missed(run) else ""
        told.append(
            f"{_called(run)}: {number(done)} {throughput_words(record.case)}, {', '.join(late) or 'no latency'}{state}"
        )
    return "; ".join(told) + "."
