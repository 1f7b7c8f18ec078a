"""Derived numbers: what each metric means, and its value for one record.

A rate is all items over all seconds, never a mean of rates. Items are those that each round really processed; the
headline counts real tokens, never padding. Nothing here ever returns a negative, infinite or clipped value: a record
whose times contradict each other has an `inconsistency` and no metrics.
"""

from __future__ import annotations

import math
import statistics
from types import MappingProxyType
from typing import TYPE_CHECKING

from trnbench.catalog.chips import dense_peak
from trnbench.compare.model import Metric, Mfu
from trnbench.compare.units import UNITS
from trnbench.status import TrnBenchError, UsageError

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.records.schema import Measurement, Record, Round

MOST_MFU = 1.0


class ImpossibleValueError(TrnBenchError):
    """A derived number that cannot be true, such as more than all of a chip's peak: an error, not a figure."""


def make_metric(name: str, unit: str, definition: str, *, higher_is_better: bool) -> Metric:
    """A metric whose unit is on the list. Raises `UsageError` for any other unit."""
    if unit not in UNITS:
        raise UsageError(f"metric {name}: unit {unit!r} is not one of {', '.join(UNITS)}")
    return Metric(name=name, unit=unit, higher_is_better=higher_is_better, definition=definition)


_RATES: tuple[tuple[str, str, str, str], ...] = (
    ("tokens_per_second", "token/s", "tokens", "real training tokens (padding left out)"),
    ("padded_tokens_per_second", "token/s", "padded_tokens", "tokens with padding"),
    ("sequences_per_second", "sequence/s", "sequences", "sequences"),
    ("prompt_tokens_per_second", "token/s", "tokens", "real prompt tokens (padding left out)"),
    ("prompts_per_second", "prompt/s", "sequences", "prompts"),
    ("output_tokens_per_second", "token/s", "tokens", "tokens produced, of all sequences together"),
)


def _all_metrics() -> dict[str, Metric]:
    made = []
    for name, unit, _, what in _RATES:
        definition = f"{what}, all rounds, over the seconds of all rounds; the whole system"
        made.append(make_metric(name, unit, definition, higher_is_better=True))
        if unit == "token/s":
            per_chip = f"{what}, all rounds, over the seconds of all rounds; divided by the chips the case used"
            made.append(make_metric(f"{name}_per_chip", "token/s/chip", per_chip, higher_is_better=True))
    made += [
        make_metric("step_seconds", "s", "median round: one optimizer step", higher_is_better=False),
        make_metric("ttft_seconds", "s", "median time to first token of the whole batch", higher_is_better=False),
        make_metric(
            "tpot_seconds",
            "s",
            "seconds of all rounds over rounds: one output token a sequence",
            higher_is_better=False,
        ),
        make_metric("flops_per_second", "FLOP/s", "FLOPs of all rounds over their seconds", higher_is_better=True),
    ]
    return {metric.name: metric for metric in made}


METRICS: MappingProxyType[str, Metric] = MappingProxyType(_all_metrics())
"""Every metric by name."""

_PREFERRED: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "train_step": ("tokens_per_second", "sequences_per_second"),
        "prefill": ("prompt_tokens_per_second", "prompts_per_second"),
        "decode": ("output_tokens_per_second",),
    }
)
_OFFERED: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "train_step": ("tokens_per_second", "padded_tokens_per_second", "sequences_per_second"),
        "prefill": ("prompt_tokens_per_second", "padded_tokens_per_second", "prompts_per_second"),
        "decode": ("output_tokens_per_second",),
    }
)


def headline_metric(case: Case) -> Metric:
    """The metric that decides a comparison of this phase: real tokens per second of the whole system."""
    return METRICS[_PREFERRED[case.phase][0]]


def preferred_metrics(case: Case) -> tuple[str, ...]:
    """Names of the metrics that may decide a comparison of this phase, the headline first."""
    return _PREFERRED[case.phase]


def inconsistency(record: Record) -> str | None:
    """Why the record's times or counts contradict each other, or None.

    Covers rounds and series that are not positive and finite, negative counts, and a total that is shorter than a
    part of it (`total_seconds` against `prefill_seconds` or `ttft_seconds`): a difference of these would be negative.
    """
    measured = record.measurement
    if measured is None or not measured.rounds:
        return "no round was kept"
    for index, timed in enumerate(measured.rounds):
        if not (math.isfinite(timed.seconds) and timed.seconds > 0):
            return f"round {index} took {timed.seconds} s"
        for unit, count in timed.items.items():
            if count < 0:
                return f"round {index} counts {count} {unit}"
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


def batch_mismatch(record: Record) -> str | None:
    """Why the rounds did not process the batch that the case asks for, or None (also where sequences go uncounted).

    The largest round counts: a last round with fewer sequences is an ordinary remainder.
    """
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
    seconds = math.fsum(timed.seconds for timed in measured.rounds)
    values: dict[str, float] = {}
    for name, unit, item, _ in _RATES:
        if name not in _OFFERED[record.case.phase]:
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


def round_rates(record: Record, metric_name: str) -> list[float]:
    """The rate metric round by round, in its unit; empty where a round does not count the item."""
    item = next((item for name, _, item, _ in _RATES if name == metric_name), None)
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
