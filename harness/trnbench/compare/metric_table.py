"""What each metric means: names, units and definitions, and which phase and scenario offers which."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from trnbench.case import QUALITY_PHASES, SERVING_PHASES
from trnbench.compare.model import Metric
from trnbench.compare.units import UNITS
from trnbench.status import UsageError

if TYPE_CHECKING:
    from trnbench.case import Case

ROUND_RATES: tuple[tuple[str, str, str, str], ...] = (
    ("tokens_per_second", "token/s", "tokens", "real training tokens (padding left out)"),
    ("padded_tokens_per_second", "token/s", "padded_tokens", "tokens with padding"),
    ("sequences_per_second", "sequence/s", "sequences", "sequences"),
    ("prompt_tokens_per_second", "token/s", "tokens", "real prompt tokens (padding left out)"),
    ("prompts_per_second", "prompt/s", "sequences", "prompts"),
    ("output_tokens_per_second", "token/s", "tokens", "tokens produced, of all sequences together"),
)
"""Rates of phases whose rounds are steps: name, unit, the item of a round that is counted, and what it is."""

SERVED_PERCENTILES: tuple[tuple[str, str, str, str], ...] = (
    ("ttft_p50_seconds", "ttft", "50", "time to first token, from the scheduled arrival of a request"),
    ("ttft_p90_seconds", "ttft", "90", "time to first token, from the scheduled arrival of a request"),
    ("ttft_p99_seconds", "ttft", "99", "time to first token, from the scheduled arrival of a request"),
    ("tpot_p50_seconds", "tpot", "50", "time per output token after the first, a request's mean"),
    ("tpot_p99_seconds", "tpot", "99", "time per output token after the first, a request's mean"),
    ("latency_p90_seconds", "latency", "90", "time from a query's scheduled arrival to its last answer"),
    ("latency_p99_seconds", "latency", "99", "time from a query's scheduled arrival to its last answer"),
)
"""Latencies of served cases: name, key of `LoadGenRun.latencies`, percentile, and what it is."""

_ORDINAL = {"50": "50th", "90": "90th", "99": "99th"}
_SERVED = "counted over the valid LoadGen runs of all rounds, over the seconds of these runs"


def make_metric(name: str, unit: str, definition: str, *, higher_is_better: bool) -> Metric:
    """A metric whose unit is on the list. Raises `UsageError` for any other unit."""
    if unit not in UNITS:
        raise UsageError(f"metric {name}: unit {unit!r} is not one of {', '.join(UNITS)}")
    return Metric(name=name, unit=unit, higher_is_better=higher_is_better, definition=definition)


def _step_metrics() -> list[Metric]:
    made = []
    for name, unit, _, what in ROUND_RATES:
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
    return made


def _served_metrics() -> list[Metric]:
    at_rate = f"{_SERVED}; at the highest valid rate of arrivals"
    tokens, whole = f"tokens produced for completed requests, {at_rate}", "the whole system"
    latency = "percentile of a query's latency, the mean over the rounds"
    rates = [
        ("served_tokens_per_second", "token/s", f"{tokens}; {whole}"),
        ("served_tokens_per_second_per_chip", "token/s/chip", f"{tokens}; divided by the chips the case used"),
        ("served_samples_per_second", "sample/s", f"completed requests, {at_rate}; {whole}"),
        ("one_over_p90_latency", "query/s", f"one over LoadGen's 90th {latency}; queries come one at a time"),
        ("query_samples_over_p99_latency", "sample/s", f"samples of a query over LoadGen's 99th {latency}"),
    ]
    made = [make_metric(name, unit, words, higher_is_better=True) for name, unit, words in rates]
    for name, _, percentile, what in SERVED_PERCENTILES:
        words = f"{_ORDINAL[percentile]} percentile of the {what}; the median over the valid rounds"
        made.append(make_metric(name, "s", words, higher_is_better=False))
    return made


def _trained_metrics() -> list[Metric]:
    rule = "olympic mean: the fastest and the slowest run are dropped, and one that did not converge is the slowest"
    return [
        make_metric(
            "runs_to_quality_per_second",
            "run/s",
            f"one over the seconds to quality ({rule}); the whole system",
            higher_is_better=True,
        ),
        make_metric(
            "seconds_to_quality",
            "s",
            f"seconds of a run from the first look at the data to the target, evaluations included; {rule}",
            higher_is_better=False,
        ),
    ]


METRICS: MappingProxyType[str, Metric] = MappingProxyType(
    {metric.name: metric for metric in [*_step_metrics(), *_served_metrics(), *_trained_metrics()]}
)
"""Every metric by name."""

_PREFERRED: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "train_step": ("tokens_per_second", "sequences_per_second"),
        "prefill": ("prompt_tokens_per_second", "prompts_per_second"),
        "decode": ("output_tokens_per_second",),
        **dict.fromkeys(QUALITY_PHASES, ("runs_to_quality_per_second",)),
    }
)
_PREFERRED_SERVED: MappingProxyType[tuple[str, str], str] = MappingProxyType(
    {
        ("serving", "offline"): "output_tokens_per_second",
        ("serving", "server"): "served_tokens_per_second",
        ("serving", "interactive"): "served_tokens_per_second",
        ("serving", "single_stream"): "one_over_p90_latency",
        ("scoring", "offline"): "prompts_per_second",
        ("scoring", "server"): "served_samples_per_second",
        ("scoring", "single_stream"): "one_over_p90_latency",
        ("scoring", "multi_stream"): "query_samples_over_p99_latency",
    }
)

OFFERED: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "train_step": ("tokens_per_second", "padded_tokens_per_second", "sequences_per_second"),
        "prefill": ("prompt_tokens_per_second", "padded_tokens_per_second", "prompts_per_second"),
        "decode": ("output_tokens_per_second",),
    }
)
"""Rates that the rounds of a phase may give."""


def headline_metric(case: Case) -> Metric:
    """The metric that decides a comparison of such cases, always of the whole system: more is better."""
    return METRICS[preferred_metrics(case)[0]]


def preferred_metrics(case: Case) -> tuple[str, ...]:
    """Names of the metrics that may decide a comparison of such cases, the headline first."""
    if case.phase in SERVING_PHASES:
        return (_PREFERRED_SERVED[case.phase, case.scenario],)
    return _PREFERRED[case.phase]
