"""Comparisons from records: pairs along one axis, each with its metric, its ratio, its verdict and its costs."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

from trnbench import wording
from trnbench.case import QUALITY_PHASES
from trnbench.compare import statistics
from trnbench.compare.admission import Refusal, refusal, unlike_numerics
from trnbench.compare.cost import cost_scenarios
from trnbench.compare.differences import pair_notes, side_notes
from trnbench.compare.keys import case_order
from trnbench.compare.metrics import (
    METRICS,
    ImpossibleValueError,
    chips_used,
    metric_values,
    mfu,
    preferred_metrics,
    round_rates,
)
from trnbench.compare.model import Axis, Comparison, Metric, RunValue, Side
from trnbench.compare.pairing import Attempt, Pair, SideRecords, find_pairs, in_time_order
from trnbench.compare.serving_notes import answer_notes
from trnbench.compare.verdict import SideFound, judge
from trnbench.records.drift import drift
from trnbench.records.schema import Record

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from trnbench.case import Case
    from trnbench.catalog.prices import PriceTable

SUPERSEDED = "an earlier attempt of the same run; the newest counts"


class CompareResult(msgspec.Struct, frozen=True, kw_only=True):
    """Every comparison along one axis, and every record with a speed to compare that is in none, with the reason."""

    axis: Axis
    comparisons: list[Comparison]
    not_compared: list[tuple[Record, str]]


def compare_records(
    records: Sequence[Record], axis: Axis, prices: PriceTable | None = None, allow_simulated: bool = False
) -> list[Comparison]:
    """Every comparison along `axis`, in a fixed order; see `compare_all` for the records that meet no other."""
    return compare_all(records, axis, prices, allow_simulated).comparisons


def compare_all(
    records: Sequence[Record], axis: Axis, prices: PriceTable | None = None, allow_simulated: bool = False
) -> CompareResult:
    """Pair records along `axis` and compare them.

    Identity is the whole case except the axis. Records of simulated devices take no part unless allowed. Cases that
    are only checked have no speed by nature: their records are neither compared nor listed as left out. The order of
    comparisons depends on cases and devices only, with batches in the order of numbers.
    """
    records = [record for record in records if not record.case.checks_only]
    admitted = [record for record in records if allow_simulated or not record.simulated]
    refused = [(record, wording.SIMULATED_NOTICE) for record in records if record.simulated and not allow_simulated]
    pairs, alone = find_pairs(admitted, axis)
    comparisons = sorted((_compare(pair, prices) for pair in pairs), key=_order)
    reasons = {record.record_id: reason for record, reason in [*refused, *alone]}
    not_compared = [
        (record, reasons[record.record_id]) for record in in_time_order(records) if record.record_id in reasons
    ]
    return CompareResult(axis=axis, comparisons=comparisons, not_compared=not_compared)


def _order(comparison: Comparison) -> tuple[Hashable, ...]:
    a, b = comparison.a, comparison.b
    return (case_order(a.case), case_order(b.case), a.label, b.label)


def _compare(pair: Pair, prices: PriceTable | None) -> Comparison:
    refusals = {run.record.record_id: refusal(run.record) for side in (pair.a, pair.b) for run in side.runs}
    metric, mismatch = _common_metric(pair, refusals)
    a, b = (_side(side, metric, refusals, mismatch) for side in (pair.a, pair.b))
    ratio = statistics.ratio_of_runs([run.value for run in a.runs], [run.value for run in b.runs])
    verdict, explanation = judge(
        a=_found(pair.a, refusals),
        b=_found(pair.b, refusals),
        ratio=ratio,
        numerics=unlike_numerics(pair.a.newest, pair.b.newest),
        mismatch=mismatch,
    )
    newest_a = a.runs[-1].record if a.runs else pair.a.newest
    newest_b = b.runs[-1].record if b.runs else pair.b.newest
    compared = Comparison(
        id=_identifier(pair),
        axis=pair.axis,
        title=f"{_case_title(pair)}: {a.label} against {b.label}",
        a=a,
        b=b,
        metric=metric,
        throughput_ratio=ratio,
        break_even_price_ratio=None if ratio is None else ratio.value,
        verdict=verdict,
        explanation=explanation,
        notes=[
            *pair_notes(newest_a, newest_b),
            *answer_notes(newest_a, newest_b),
            *side_notes(a, "a"),
            *side_notes(b, "b"),
        ],
        costs=[],
    )
    return msgspec.structs.replace(compared, costs=cost_scenarios(compared, prices))


def _common_metric(pair: Pair, refusals: dict[str, Refusal | None]) -> tuple[Metric | None, str]:
    """The first preferred metric that every admitted run of both sides has, by the same clock; else why none."""
    admitted = [
        [run.record for run in side.runs if refusals[run.record.record_id] is None] for side in (pair.a, pair.b)
    ]
    clocks = [{r.measurement.clock for r in side if r.measurement is not None} for side in admitted]
    if len(clocks[0] | clocks[1]) > 1:
        told = [" and ".join(sorted(side)) or "nothing" for side in clocks]
        return None, f"a is timed by {told[0]}, b by {told[1]}"
    names = preferred_metrics(pair.a.newest.case)
    values = [metric_values(record) for side in admitted for record in side]
    for name in names:
        if all(name in each for each in values):
            return METRICS[name], ""
    offered = [sorted({name for r in side for name in metric_values(r) if name in names}) for side in admitted]
    return None, f"a gives {', '.join(offered[0])}; b gives {', '.join(offered[1])}"


def _side(side: SideRecords, metric: Metric | None, refusals: dict[str, Refusal | None], mismatch: str) -> Side:
    runs: list[RunValue] = []
    left_out = [(record, SUPERSEDED) for record in side.superseded]
    for attempt in side.runs:
        refused = refusals[attempt.record.record_id]
        if refused is not None:
            left_out.append((attempt.record, refused.reason))
        elif metric is None:
            left_out.append((attempt.record, f"no common metric: {mismatch}"))
        else:
            runs.append(_run_value(attempt, metric))
    values = [run.value for run in runs]
    return Side(
        label=side.label,
        case=side.newest.case,
        runs=runs,
        left_out=left_out,
        run_to_run_spread=statistics.spread(values),
        value=statistics.geometric_mean(values),
        chips_used=chips_used(runs[-1].record) if runs else None,
    )


def _found(side: SideRecords, refusals: dict[str, Refusal | None]) -> SideFound:
    found = [refusals[run.record.record_id] for run in side.runs]
    refused = [one for one in found if one is not None]
    return SideFound(label=side.label, usable_runs=len(found) - len(refused), refusals=refused)


def _run_value(attempt: Attempt, metric: Metric) -> RunValue:
    record = attempt.record
    values = metric_values(record)
    bounds = statistics.median_interval(round_rates(record, metric.name))
    middle, low, high = bounds if bounds is not None else (None, None, None)
    try:
        utilisation = mfu(record)
    except ImpossibleValueError as error:
        utilisation = str(error)
    rounds = record.measurement.rounds if record.measurement is not None else []
    return RunValue(
        record=record,
        value=values[metric.name],
        low=low,
        high=high,
        attempts=attempt.attempts,
        median=middle,
        metrics=values,
        mfu=None if isinstance(utilisation, str) else utilisation,
        mfu_reason=utilisation if isinstance(utilisation, str) else "",
        # Trainings take as long as their seeds make them: a later one that is slower is no drift of the device.
        drift=None if record.case.phase in QUALITY_PHASES else drift([timed.seconds for timed in rounds]),
    )


def _case_title(pair: Pair) -> str:
    case = pair.a.newest.case
    parts = [case.workload, case.phase, *([case.scenario.replace("_", " ")] if case.scenario else [])]
    parts += [value for name, value in (("precision", case.precision), ("mode", case.mode)) if name != pair.axis]
    parts += [f"batch {case.batch}", f"sequence {case.sequence}"]
    if case.new_tokens:
        parts.append(f"{case.new_tokens} new tokens")
    return " ".join(parts) + (f", {case.profile} profile" if case.profile else "")


def _identifier(pair: Pair) -> str:
    """Readable and unique: axis, case and labels, then a digest of everything that tells this pair from others."""
    case: Case = pair.a.newest.case
    words = f"{pair.axis}-{case.id}-{pair.a.label}-vs-{pair.b.label}"
    machines = tuple(
        (side.newest.device.backend, side.newest.device.chip, side.newest.environment.fingerprint)
        for side in (pair.a, pair.b)
    )
    whole = repr((pair.axis, case.identity(), pair.b.newest.case.identity(), pair.a.label, pair.b.label, machines))
    safe = re.sub(r"[^A-Za-z0-9._]+", "-", words).strip("-")
    return f"{safe[:120]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"
