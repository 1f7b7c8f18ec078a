"""A LoadGen test as the record keeps it, and our own judgement on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.records.schema import LENGTH_BAND, LoadGenRun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trnbench.device import Scalar
    from trnbench.records.schema import Purpose
    from trnbench.serving.log import LoadGenResult
    from trnbench.serving.settings import Test

JUDGED: tuple[Purpose, ...] = ("search", "round")
"""Tests that must be valid by LoadGen's verdict. A load point beyond the limits, or with few queries, is a sound
measurement of latencies all the same; its `verdict` says what LoadGen makes of it."""

_SETTINGS = {
    "loadgen_version": "loadgen_version",
    "effective_min_duration_ms": "min_duration_ms",
    "effective_max_duration_ms": "max_duration_ms",
    "effective_min_query_count": "min_query_count",
    "effective_max_query_count": "max_query_count",
    "effective_samples_per_query": "samples_per_query",
    "effective_performance_sample_count": "performance_sample_count",
    "effective_sample_concatenate_permutation": "sample_concatenate_permutation",
    "effective_qsl_rng_seed": "qsl_rng_seed",
    "effective_sample_index_rng_seed": "sample_index_rng_seed",
    "effective_schedule_rng_seed": "schedule_rng_seed",
}
"""LoadGen's effective settings that decide what was asked, under their own names."""


def stored_run(
    result: LoadGenResult,
    test: Test,
    *,
    purpose: Purpose,
    faults: Sequence[str],
    asked_tokens: int,
    notes: Mapping[str, Scalar],
) -> LoadGenRun:
    """The record's form of `result`; not valid where `faults`, which are ours, or LoadGen's reasons say so.

    `asked_tokens` is the most tokens that the answers were allowed together. `notes` join the settings.
    """
    judged = purpose in JUDGED
    reasons = [*(result.reasons if judged else _errors(result)), *faults]
    return LoadGenRun(
        purpose=purpose,
        scenario=test.scenario,
        verdict=result.verdict,
        valid=not reasons,
        reasons=reasons,
        queries=result.queries,
        samples=result.samples,
        errors=result.errors,
        seconds=result.seconds,
        rates=dict(result.rates),
        tokens={"produced": result.produced, "asked": asked_tokens} if test.token_latencies else {},
        latencies=dict(result.latencies),
        settings={**_settings(result, test), **notes},
    )


def length_fault(produced: int, expected: int) -> str:
    """What is wrong with the mean length of a test's answers, in words; empty where it is within the band.

    Both are tokens over the same samples: `produced` in the test, `expected` by the accuracy run's answers to them.
    """
    if abs(produced - expected) <= LENGTH_BAND * expected:
        return ""
    return (
        f"output length out of band: {produced} tokens, {produced / expected:.3g} times the {expected} of the accuracy "
        f"run's answers to the same samples; the band is {1 - LENGTH_BAND:g} to {1 + LENGTH_BAND:g}"
    )


def _errors(result: LoadGenResult) -> list[str]:
    if not result.errors:
        return []
    first = f"; the first: {result.error_texts[0]}" if result.error_texts else ""
    return [f"{result.errors} errors in LoadGen's detail log{first}"]


def _settings(result: LoadGenResult, test: Test) -> dict[str, Scalar]:
    kept: dict[str, Scalar] = {
        ours: result.settings[theirs] for theirs, ours in _SETTINGS.items() if theirs in result.settings
    }
    if test.latency_limits is not None and test.token_latencies:
        kept["ttft_limit_seconds"] = test.latency_limits.ttft
        kept["tpot_limit_seconds"] = test.latency_limits.tpot
    elif test.latency_limits is not None:
        kept["latency_limit_seconds"] = test.latency_limits.answer
    return kept
