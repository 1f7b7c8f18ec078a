"""Derived numbers of served cases, from the LoadGen runs that a record holds.

The seconds of a served case's rounds are LoadGen's own metric (a latency, or seconds a sample), so items over seconds
of rounds would mean nothing here: rates come from what each LoadGen run completed, over its own seconds. Only valid
runs count, and what was asked for never stands in for what was produced.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from trnbench.compare.metric_table import SERVED_PERCENTILES

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.records.schema import LoadGenRun, Measurement


def round_runs(measured: Measurement) -> list[LoadGenRun]:
    """The LoadGen runs behind the rounds, in order."""
    return [run for run in measured.serving if run.purpose == "round"]


def counted_runs(measured: Measurement) -> list[LoadGenRun]:
    """The LoadGen runs that a case's values come from: valid rounds with an answer, at the highest rate among them."""
    valid = [run for run in round_runs(measured) if run.valid and run.samples]
    highest = max((run.rates.get("target", 0.0) for run in valid), default=0.0)
    return [run for run in valid if run.rates.get("target", 0.0) == highest]


def serving_inconsistency(measured: Measurement) -> str | None:
    """Why the LoadGen runs of the rounds contradict the rounds or themselves, or None."""
    runs = round_runs(measured)
    if len(runs) != len(measured.rounds):
        return f"{len(measured.rounds)} rounds, but {len(runs)} LoadGen runs of rounds"
    for index, run in enumerate(runs):
        if not (math.isfinite(run.seconds) and run.seconds > 0):
            return f"the LoadGen run of round {index} took {run.seconds} s"
        for name, count in (("samples", run.samples), ("queries", run.queries), *run.tokens.items()):
            if count < 0:
                return f"the LoadGen run of round {index} counts {count} {name}"
        produced, asked = run.tokens.get("produced"), run.tokens.get("asked")
        if produced is not None and asked is not None and produced > asked:
            return f"the LoadGen run of round {index} produced {produced} tokens, but asked for {asked}"
        for name, found in run.latencies.items():
            for percentile, value in found.percentiles.items():
                if not (math.isfinite(value) and value >= 0):
                    return f"the LoadGen run of round {index} has a {name} of {value} s at percentile {percentile}"
    return None


def serving_values(case: Case, measured: Measurement, chips: float) -> dict[str, float]:
    """Every metric of a consistent served record by name; empty where no round's LoadGen run is valid."""
    runs = counted_runs(measured)
    if not runs:
        return {}
    values: dict[str, float] = {}
    tokens, samples = _tokens_per_second(runs), _samples_per_second(runs)
    if case.scenario in ("server", "interactive"):
        if tokens is not None:
            values["served_tokens_per_second"] = tokens
            values["served_tokens_per_second_per_chip"] = tokens / chips
        values["served_samples_per_second"] = samples
    elif case.scenario == "offline":
        if tokens is not None:
            values["output_tokens_per_second"] = tokens
            values["output_tokens_per_second_per_chip"] = tokens / chips
        if case.phase == "scoring":
            values["prompts_per_second"] = samples
    else:
        values |= _latency_rate(case, measured)
    for name, latency, percentile, _ in SERVED_PERCENTILES:
        found = [run.latencies[latency].percentiles.get(percentile) for run in runs if latency in run.latencies]
        carried = [value for value in found if value is not None]
        if len(carried) == len(runs):
            values[name] = statistics.median(carried)
    return values


def serving_round_rates(case: Case, measured: Measurement, metric_name: str) -> list[float]:
    """The deciding metric for each counted round alone, in its unit; empty where a round does not give it."""
    if metric_name in ("one_over_p90_latency", "query_samples_over_p99_latency"):
        return [samples / seconds for samples, seconds in _latency_rounds(case, measured)]
    runs = counted_runs(measured)
    if metric_name in ("served_tokens_per_second", "output_tokens_per_second"):
        if any("produced" not in run.tokens for run in runs):
            return []
        return [run.tokens["produced"] / run.seconds for run in runs]
    if metric_name in ("served_samples_per_second", "prompts_per_second"):
        return [run.samples / run.seconds for run in runs]
    return []


def mean_answer(measured: Measurement) -> float | None:
    """Mean tokens of an answer over the counted runs; None where tokens are not produced."""
    runs = counted_runs(measured)
    samples = sum(run.samples for run in runs)
    if not samples or any("produced" not in run.tokens for run in runs):
        return None
    return sum(run.tokens["produced"] for run in runs) / samples


def why_no_value(measured: Measurement) -> str:
    """Why a served record gives no value to compare."""
    runs = round_runs(measured)
    if any(run.valid and run.samples for run in runs):
        return "its LoadGen runs count nothing that gives a rate"
    reasons = dict.fromkeys(reason for run in runs for reason in run.reasons)
    return f"no LoadGen run of its {len(runs)} rounds is valid" + (f": {'; '.join(reasons)}" if reasons else "")


def _tokens_per_second(runs: list[LoadGenRun]) -> float | None:
    if any("produced" not in run.tokens for run in runs):
        return None
    produced = sum(run.tokens["produced"] for run in runs)
    return produced / math.fsum(run.seconds for run in runs) if produced else None


def _samples_per_second(runs: list[LoadGenRun]) -> float:
    return sum(run.samples for run in runs) / math.fsum(run.seconds for run in runs)


def _latency_rate(case: Case, measured: Measurement) -> dict[str, float]:
    """Samples of all counted rounds' queries, one query a round, over the latencies that LoadGen reports for them."""
    found = _latency_rounds(case, measured)
    value = math.fsum(samples for samples, _ in found) / math.fsum(seconds for _, seconds in found)
    name = "query_samples_over_p99_latency" if case.scenario == "multi_stream" else "one_over_p90_latency"
    return {name: value}


def _latency_rounds(case: Case, measured: Measurement) -> list[tuple[float, float]]:
    """Samples of a query and LoadGen's latency of it, for each valid round: a round's seconds are that latency."""
    pairs = zip(measured.rounds, round_runs(measured), strict=True)
    kept = [(timed.seconds, run) for timed, run in pairs if run.valid and run.samples and run.queries]
    many = case.scenario == "multi_stream"
    return [(run.samples / run.queries if many else 1.0, seconds) for seconds, run in kept]
