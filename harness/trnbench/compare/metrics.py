"""Derived numbers: what each metric means, and its value for one record.

A rate is all items over all seconds, never a mean of rates. Items are those that each round really processed; the
headline counts real tokens, never padding. Nothing here ever returns a negative, infinite or clipped value: a record
whose times contradict each other has an `inconsistency` and no metrics. Phases whose rounds are no steps have their
values from `serving_metrics` and `training_metrics`.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from trnbench.case import QUALITY_PHASES, SERVING_PHASES
from trnbench.catalog.chips import dense_peak
from trnbench.compare.metric_table import (
    METRICS,
    OFFERED,
    ROUND_RATES,
    headline_metric,
    make_metric,
    preferred_metrics,
)
from trnbench.compare.model import Mfu
from trnbench.compare.serving_metrics import serving_inconsistency, serving_round_rates, serving_values, why_no_value
from trnbench.compare.training_metrics import training_inconsistency, training_values
from trnbench.records.quality_score import quality_score
from trnbench.status import TrnBenchError

__all__ = [
    "METRICS",
    "ImpossibleValueError",
    "batch_mismatch",
    "chips_used",
    "headline_metric",
    "inconsistency",
    "make_metric",
    "metric_values",
    "mfu",
    "preferred_metrics",
    "round_rates",
    "why_no_metric",
]

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.records.schema import Measurement, Record, Round

MOST_MFU = 1.0


class ImpossibleValueError(TrnBenchError):
    """A derived number that cannot be true, such as more than all of a chip's peak: an error, not a figure."""


def inconsistency(record: Record) -> str | None:
    """Why the record's times or counts contradict each other, or None.

    Covers rounds and series that are not positive and finite, negative counts, and a total that is shorter than a
    part of it (`total_seconds` against `prefill_seconds` or `ttft_seconds`): a difference of these would be negative.
    The runs behind a served case, or one that trains to a quality, must not contradict themselves either.
    """
    measured = record.measurement
    if measured is None or not measured.rounds:
        return "no round was kept"
    problem = _bad_round(measured) or _bad_timing(measured)
    if problem:
        return problem
    if record.case.phase in SERVING_PHASES:
        return serving_inconsistency(measured)
    return training_inconsistency(measured.training) if record.case.phase in QUALITY_PHASES else None


def batch_mismatch(record: Record) -> str | None:
    """Why the rounds did not process the batch that the case asks for, or None (also where sequences go uncounted).

    The largest round counts: a last round with fewer sequences is an ordinary remainder. Rounds of requests and of
    whole trainings are no batches.
    """
    if record.case.phase in (*SERVING_PHASES, *QUALITY_PHASES):
        return None
    counts = [timed.items["sequences"] for timed in _rounds(record) if "sequences" in timed.items]
    if not counts or max(counts) == record.case.batch:
        return None
    return f"processed {max(counts)} sequences a round, but the case says batch {record.case.batch}"


def chips_used(record: Record) -> float:
    """Chips that the case occupied: all of the device's, or its share of their cores where the plan asks for fewer.

    A host CPU is always used whole.
    """
    device = record.device
    if device.chip == "cpu" or record.case.devices_needed >= device.cores:
        return float(device.chips)
    return device.chips * record.case.devices_needed / device.cores


def metric_values(record: Record) -> dict[str, float]:
    """Every metric of the record by name, in the unit that `METRICS` states; empty for an inconsistent record.

    Units that the rounds do not count are left out, never taken from the case.
    """
    measured = record.measurement
    if measured is None or inconsistency(record):
        return {}
    if record.case.phase in SERVING_PHASES:
        return serving_values(record.case, measured, chips_used(record))
    if record.case.phase in QUALITY_PHASES:
        return training_values(measured.training)
    seconds = math.fsum(timed.seconds for timed in measured.rounds)
    values: dict[str, float] = {}
    for name, unit, item, _ in ROUND_RATES:
        if name not in OFFERED[record.case.phase]:
            continue
        total = _items(measured, item)
        if not total:
            continue
        values[name] = total / seconds
        if unit == "token/s":
            values[f"{name}_per_chip"] = total / seconds / chips_used(record)
    values.update(_latencies(record.case, measured, seconds))
    if measured.flops is not None:
        values["flops_per_second"] = measured.flops.value * len(measured.rounds) / seconds
    return values


def why_no_metric(record: Record) -> str:
    """Why a consistent record has no value of a metric that its case is compared by; empty where it has one."""
    values, wanted = metric_values(record), preferred_metrics(record.case)
    if any(name in values for name in wanted):
        return ""
    if record.measurement is not None and record.case.phase in SERVING_PHASES:
        return why_no_value(record.measurement)
    if record.measurement is not None and record.case.phase in QUALITY_PHASES:
        return f"no score: {quality_score(record.measurement.training).reason}"
    return f"its rounds count nothing that gives {' or '.join(wanted)}"


def round_rates(record: Record, metric_name: str) -> list[float]:
    """The rate metric round by round, in its unit; empty where a round does not count the item, or is no rate."""
    if record.measurement is not None and record.case.phase in SERVING_PHASES:
        return serving_round_rates(record.case, record.measurement, metric_name)
    if record.case.phase in QUALITY_PHASES:
        # Seeds differ in how long they take, and the score drops two of them: no single run is the score of a set.
        return []
    item = next((item for name, _, item, _ in ROUND_RATES if name == metric_name), None)
    rounds = _rounds(record)
    if item is None or any(item not in timed.items for timed in rounds):
        return []
    return [timed.items[item] / timed.seconds for timed in rounds]


def mfu(record: Record) -> Mfu | str:
    """Model FLOP/s utilisation of a consistent record, or the reason why there is none.

    FLOPs by the record's own convention over the dense peak of its precision times the chips the case used. Raises
    `ImpossibleValueError` above 100 %.
    """
    measured = record.measurement
    if measured is None or inconsistency(record):
        return "no consistent rounds"
    if record.case.phase in SERVING_PHASES:
        return "not defined for served requests: their prompts and answers differ in length, and no FLOPs are counted"
    if record.case.phase in QUALITY_PHASES:
        return "not computed for trainings to quality: their time holds evaluations too, and no FLOPs are counted"
    if measured.flops is None:
        return "FLOPs were not counted"
    peak = dense_peak(record.device.chip, record.case.precision)
    if isinstance(peak, str):
        return peak
    chips = chips_used(record)
    achieved = metric_values(record)["flops_per_second"]
    value = achieved / (chips * peak.dense_per_second)
    if value > MOST_MFU:
        raise ImpossibleValueError(
            f"MFU of {value:.1%} is above 100 %: {achieved:.4g} FLOP/s by convention {measured.flops.convention} on "
            f"{chips:g} x {peak.chip}, whose dense {peak.precision} peak is {peak.dense_per_second:.4g} FLOP/s"
        )
    return Mfu(
        value=value,
        convention=measured.flops.convention,
        peak_per_second=peak.dense_per_second,
        precision=peak.precision,
        format=peak.format,
        chips=chips,
        peak_source=peak.source,
        peak_as_of=peak.as_of.isoformat(),
    )


def _bad_round(measured: Measurement) -> str | None:
    for index, timed in enumerate(measured.rounds):
        if not (math.isfinite(timed.seconds) and timed.seconds > 0):
            return f"round {index} took {timed.seconds} s"
        for unit, count in timed.items.items():
            if count < 0:
                return f"round {index} counts {count} {unit}"
    return None


def _bad_timing(measured: Measurement) -> str | None:
    for name, series in measured.timings.items():
        for value in series:
            if not (math.isfinite(value) and value > 0):
                return f"{name} holds {value} s"
    totals = measured.timings.get("total_seconds", [])
    for part in ("prefill_seconds", "ttft_seconds"):
        for total, inside in zip(totals, measured.timings.get(part, []), strict=False):
            if total <= inside:
                return f"total of {total} s is not longer than its {part} of {inside} s"
    return None


def _rounds(record: Record) -> list[Round]:
    return [] if record.measurement is None else record.measurement.rounds


def _items(measured: Measurement, item: str) -> int | None:
    """Items of all rounds; None where any round does not count them."""
    if any(item not in timed.items for timed in measured.rounds):
        return None
    return sum(timed.items[item] for timed in measured.rounds)


def _latencies(case: Case, measured: Measurement, seconds: float) -> dict[str, float]:
    values: dict[str, float] = {}
    if case.phase == "train_step":
        values["step_seconds"] = statistics.median(timed.seconds for timed in measured.rounds)
    if case.phase == "prefill":
        # A prefill round ends when the first token's logits exist, so its time is the time to first token.
        values["ttft_seconds"] = statistics.median(timed.seconds for timed in measured.rounds)
    if case.phase == "decode":
        values["tpot_seconds"] = seconds / len(measured.rounds)
        if measured.timings.get("ttft_seconds"):
            values["ttft_seconds"] = statistics.median(measured.timings["ttft_seconds"])
    return values
