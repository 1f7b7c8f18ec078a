"""LoadGen's logs, read: the detail log as values with units, the accuracy log as tokens by sample.

LoadGen's process ends the same way whatever it found, so that these files are the only verdict there is.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from trnbench.device import Scalar
from trnbench.mllog import parse, values
from trnbench.records.schema import LEAST_COUNT, Latencies
from trnbench.serving.protocol import ACCURACY, DETAIL
from trnbench.serving.settings import RATED, Test
from trnbench.status import CaseError, Status, UsageError

if TYPE_CHECKING:
    from pathlib import Path

_PERCENTILES = {"50": "50.00", "90": "90.00", "95": "95.00", "99": "99.00", "99.9": "99.90"}
_LATENCY_KEYS = {
    "latency": ("result_{}_percentile_latency_ns", "result_mean_latency_ns"),
    "query": ("result_{}_percentile_per_query_latency_ns", "result_mean_query_latency_ns"),
    "ttft": ("result_first_token_{}_percentile_latency_ns", "result_first_token_mean_latency_ns"),
    "tpot": ("result_time_per_output_token_{}_percentile_ns", "result_time_to_output_token_mean"),
}


class Tally(msgspec.Struct, kw_only=True):
    """What the parent counted while the test ran.

    `issued` says how often each sample was asked, `produced` how many tokens all answers have together; `seconds`
    reaches from the first query to the last answer, on the parent's clock.
    """

    queries: int = 0
    samples: int = 0
    issued: dict[int, int] = {}
    produced: int = 0
    seconds: float = 0.0


class LoggedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the accuracy log. `first` is empty and `count` None where LoadGen logs none (offline; scoring)."""

    index: int
    tokens: list[int]
    first: list[int]
    count: int | None


class LoadGenResult(msgspec.Struct, frozen=True, kw_only=True):
    """One LoadGen test as its logs tell it; times in seconds, rates per second.

    `verdict` is LoadGen's ("none" in accuracy mode), `reasons` say why the test is not valid and are empty where it
    is, `error_texts` are the different ones of the `errors` in its detail log. `latencies` hold "latency" (of a query
    in multi_stream, else of a sample) and, where tokens are timed, "ttft" and "tpot"; percentiles that the count does
    not carry are left out. `rates` hold "target", "samples" and, where tokens are timed, "tokens". `metric` is what a
    record stores for a round: the p90 latency (single_stream), the p99 of a query (multi_stream), or the time a
    sample takes at the measured rate; None in accuracy mode and where the test is not valid. `early_stopping` holds
    LoadGen's sentences.
    """

    scenario: str
    mode: Literal["performance", "accuracy"]
    verdict: Literal["VALID", "INVALID", "none"]
    reasons: list[str]
    errors: int
    error_texts: list[str]
    queries: int
    samples: int
    seconds: float
    issued: dict[int, int]
    produced: int
    rates: dict[str, float]
    latencies: dict[str, Latencies]
    metric: float | None
    early_stopping: dict[str, str]
    settings: dict[str, Scalar]
    logged: list[LoggedAnswer]

    @property
    def valid(self) -> bool:
        """Whether LoadGen found the test valid and logged no error; lengths and compiles are judged elsewhere."""
        return not self.reasons

    @property
    def outputs(self) -> dict[int, list[int]]:
        """Tokens by sample, from the accuracy log: the first answer of each sample that was logged."""
        found: dict[int, list[int]] = {}
        for answer in self.logged:
            found.setdefault(answer.index, answer.tokens)
        return found


def read_result(test: Test, folder: Path, tally: Tally) -> LoadGenResult:
    """Read what LoadGen wrote into `folder` for `test`.

    Raises `CaseError` (failed) where a file is missing, broken or ends too early.
    """
    text = _read(folder / DETAIL)
    try:
        events = parse(text, DETAIL)
    except UsageError as error:
        raise CaseError(Status.FAILED, f"LoadGen's detail log cannot be read: {error}") from None
    found = values(events)
    verdict = found.get("result_validity", "none")
    if "power_end" not in found or (test.mode == "performance" and verdict not in ("VALID", "INVALID")):
        raise CaseError(Status.FAILED, f"LoadGen's {DETAIL} ends without a verdict after {len(events)} events")
    error_texts = [f"{event.key}: {event.value}" for event in events if event.metadata.get("is_error")]
    errors = max(len(error_texts), int(found.get("num_errors", 0)))
    queries = int(found.get("result_query_count", tally.queries))
    reasons = _reasons(test, found, errors, error_texts)
    rates = _rates(test, found, tally)
    return LoadGenResult(
        scenario=test.scenario,
        mode=test.mode,
        verdict=verdict,
        reasons=reasons,
        errors=errors,
        error_texts=list(dict.fromkeys(error_texts)),
        queries=queries,
        samples=tally.samples,
        seconds=tally.seconds,
        issued=tally.issued,
        produced=tally.produced,
        rates=rates,
        latencies=_latencies(test, found, queries, tally.samples),
        metric=None if reasons else _metric(test, found, rates),
        early_stopping={
            key.removeprefix("early_stopping_"): str(value).strip()
            for key, value in found.items()
            if key.startswith("early_stopping_") and key.endswith("result") and str(value).strip()
        },
        settings={
            key: value
            for key, value in found.items()
            if (key.startswith("effective_") or key in _KEPT) and isinstance(value, str | int | float | bool)
        },
        logged=read_accuracy_log(folder / ACCURACY),
    )


_KEPT = (
    "loadgen_version",
    "requested_use_token_latencies",
    "requested_server_ttft_latency",
    "requested_server_tpot_latency",
    "generated_query_count",
)


def read_accuracy_log(path: Path) -> list[LoggedAnswer]:
    """Answers in LoadGen's order; tokens are int32. Raises `CaseError` (failed) for a missing or broken file."""
    try:
        lines = msgspec.json.decode(_read(path), type=list[_AccuracyLine])
        return [
            LoggedAnswer(
                index=line.qsl_idx,
                tokens=_tokens(line.data),
                first=_tokens(line.token_data),
                count=line.token_count,
            )
            for line in lines
        ]
    except (msgspec.DecodeError, ValueError) as error:
        raise CaseError(Status.FAILED, f"LoadGen's {path.name} cannot be read: {error}") from None


class _AccuracyLine(msgspec.Struct, frozen=True):
    qsl_idx: int
    data: str
    token_data: str = ""
    token_count: int | None = None


def _tokens(hexadecimal: str) -> list[int]:
    tokens = array("i")
    tokens.frombytes(bytes.fromhex(hexadecimal))
    return tokens.tolist()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(Status.FAILED, f"LoadGen left no readable {path.name}: {error}") from None


def _reasons(test: Test, found: dict[str, Any], errors: int, error_texts: list[str]) -> list[str]:
    reasons: list[str] = []
    if found.get("result_validity") == "INVALID":
        if found.get("result_min_duration_met") is False:
            reasons.append(f"too short: LoadGen could not keep the test up for {test.least_seconds:g} s")
        if found.get("result_min_queries_met") is False:
            reasons.append(f"too few queries: fewer than the {test.least_queries} asked for")
        if found.get("result_perf_constraints_met") is False:
            reasons.append("a latency limit is not met")
        if found.get("early_stopping_met") is False:
            reasons.append("too few queries, or too many late ones, for early stopping")
        said = str(found.get("result_invalid_reason", "")).split()
        reasons.append("LoadGen says INVALID" + (": " + " ".join(said) if said else ""))
    if errors:
        first = f"; the first: {error_texts[0]}" if error_texts else ""
        reasons.append(f"{errors} errors in LoadGen's detail log{first}")
    return reasons


def _rates(test: Test, found: dict[str, Any], tally: Tally) -> dict[str, float]:
    if test.mode == "accuracy":
        return {}
    # Not result_token_throughput: in LoadGen 6.0.17 that one is per nanosecond.
    if test.scenario == "offline":
        keys = {"samples": "result_samples_per_second", "tokens": "result_tokens_per_second"}
    else:
        samples = "result_completed_samples_per_sec" if test.scenario in RATED else "result_qps_with_loadgen_overhead"
        keys = {"samples": samples, "tokens": "result_completed_tokens_per_second"}
    rates = {name: float(found[key]) for name, key in keys.items() if found.get(key)}
    if test.scenario == "multi_stream" and tally.seconds > 0:
        # LoadGen gives none in this scenario.
        rates["samples"] = tally.samples / tally.seconds
    if test.rate is not None:
        rates["target"] = test.rate
    return rates


def _latencies(test: Test, found: dict[str, Any], queries: int, samples: int) -> dict[str, Latencies]:
    if test.mode == "accuracy":
        return {}
    grouped = test.scenario == "multi_stream"
    wanted = {"latency": ("query", queries) if grouped else ("latency", samples)}
    if test.token_latencies:
        wanted |= {name: (name, samples) for name in ("ttft", "tpot")}
    result = {}
    for name, (kind, count) in wanted.items():
        percentile_key, mean_key = _LATENCY_KEYS[kind]
        if mean_key not in found:  # Offline times no tokens.
            continue
        result[name] = Latencies(
            count=count,
            mean=found[mean_key] / 1e9,
            percentiles={
                short: found[percentile_key.format(long)] / 1e9
                for short, long in _PERCENTILES.items()
                if count >= LEAST_COUNT[short] and percentile_key.format(long) in found
            },
        )
    return result


def _metric(test: Test, found: dict[str, Any], rates: dict[str, float]) -> float | None:
    if test.mode == "accuracy":
        return None
    if test.scenario == "single_stream":
        # Where tokens are timed, LoadGen's early_stopping_latency_ss is an estimate of the first token's latency.
        key = "result_90.00_percentile_latency_ns" if test.token_latencies else "early_stopping_latency_ss"
    elif test.scenario == "multi_stream":
        key = "early_stopping_latency_ms"
    else:
        return 1 / rates["samples"] if rates.get("samples") else None
    return found[key] / 1e9 if found.get(key) else None
