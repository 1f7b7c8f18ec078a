"""LoadGen's logs: what is read, what is left out, and what is refused."""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loadgen_world import server, single_stream

from trnbench.serving.log import LoadGenResult, Tally, read_accuracy_log, read_result
from trnbench.serving.protocol import ACCURACY, DETAIL
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.serving.settings import Test

KEYS = {"50": "50.00", "90": "90.00", "95": "95.00", "97": "97.00", "99": "99.00", "99.9": "99.90"}


def line(key: str, value: Any, *, error: bool = False) -> str:
    event = {
        "key": key,
        "value": value,
        "time_ms": 0.5,
        "namespace": "mlperf::logging",
        "event_type": "POINT_IN_TIME",
        "metadata": {"is_error": error, "is_warning": False, "file": "results.cc", "line_no": 7},
    }
    return f":::MLLOG {json.dumps(event)}\n"


def detail(count: int, **changes: Any) -> dict[str, Any]:
    """A detail log's values with a p50 of 1 ms, a p90 of 2 ms and so on."""
    found: dict[str, Any] = {
        "effective_min_duration_ms": 100,
        "loadgen_version": "6.0.17 @ abc",
        "power_end": "11-30-2026 16:09:26.949",
        "result_validity": "VALID",
        "result_query_count": count,
        "result_mean_latency_ns": 1_500_000,
        "result_first_token_mean_latency_ns": 500_000,
        "result_time_to_output_token_mean": 100_000,
        "result_qps_with_loadgen_overhead": 400.5,
        "result_completed_samples_per_sec": 300.5,
        "result_completed_tokens_per_second": 900.5,
        "result_token_throughput": 9.8e-07,
        "early_stopping_latency_ss": 7_000_000,
        "num_errors": 0,
    }
    for place, long in enumerate(KEYS.values(), 1):
        found[f"result_{long}_percentile_latency_ns"] = place * 1_000_000
        found[f"result_first_token_{long}_percentile_latency_ns"] = place * 100_000
        found[f"result_time_per_output_token_{long}_percentile_ns"] = place * 10_000
    return {**found, **changes}


def read(test: Test, folder: Path, values: dict[str, Any], *, more: str = "", samples: int = 64) -> LoadGenResult:
    text = "".join(line(key, value) for key, value in values.items() if value is not None) + more
    (folder / DETAIL).write_text(text)
    (folder / ACCURACY).write_text("[\n]\n")
    return read_result(test, folder, Tally(queries=samples, samples=samples, seconds=2.0))


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (1, ["50"]),
        (63, ["50"]),
        (64, ["50", "90"]),
        (129, ["50", "90"]),
        (130, ["50", "90", "95"]),
        (458, ["50", "90", "95"]),
        (459, ["50", "90", "95", "99"]),
        (4602, ["50", "90", "95", "99"]),
        (4603, ["50", "90", "95", "99", "99.9"]),
    ],
)
def test_only_percentiles_that_the_count_carries_are_kept(count: int, shown: list[str], tmp_path: Path) -> None:
    result = read(single_stream(), tmp_path, detail(count), samples=count)
    assert {name: list(found.percentiles) for name, found in result.latencies.items()} == {
        "latency": shown,
        "ttft": shown,
        "tpot": shown,
    }
    assert result.latencies["latency"].percentiles["50"] == pytest.approx(0.001)
    assert result.latencies["ttft"].mean == pytest.approx(0.0005)
    assert result.latencies["tpot"].mean == pytest.approx(0.0001)


def test_with_token_times_the_metric_is_the_p90_of_the_whole_answer(tmp_path: Path) -> None:
    assert read(single_stream(), tmp_path, detail(64)).metric == pytest.approx(0.002)
    assert read(single_stream(token_latencies=False), tmp_path, detail(64)).metric == pytest.approx(0.007)


def test_rates_are_per_second_and_never_the_one_per_nanosecond(tmp_path: Path) -> None:
    assert read(single_stream(), tmp_path, detail(64)).rates == {"samples": 400.5, "tokens": 900.5}
    rated = read(server(), tmp_path, detail(459), samples=459)
    assert rated.rates == {"samples": 300.5, "tokens": 900.5, "target": 900.0}
    assert rated.metric == pytest.approx(1 / 300.5)


def test_a_valid_verdict_with_errors_is_not_valid(tmp_path: Path) -> None:
    more = line("error_runtime", "n_tokens is missing", error=True) * 3
    result = read(single_stream(), tmp_path, detail(64, num_errors=3), more=more)
    assert result.verdict == "VALID"
    assert not result.valid
    assert result.errors == 3
    assert result.error_texts == ["error_runtime: n_tokens is missing"]
    assert result.reasons == [
        "3 errors in LoadGen's detail log; the first: error_runtime: n_tokens is missing",
    ]
    assert result.metric is None


def test_an_invalid_verdict_is_explained(tmp_path: Path) -> None:
    changes = {
        "result_validity": "INVALID",
        "result_min_duration_met": False,
        "result_min_queries_met": True,
        "early_stopping_met": False,
        "result_invalid_reason": "Decrease the expected latency\n so the loadgen pre-generates more.",
    }
    result = read(single_stream(least_seconds=60.0), tmp_path, detail(64, **changes))
    assert result.reasons == [
        "too short: LoadGen could not keep the test up for 60 s",
        "too few queries, or too many late ones, for early stopping",
        "LoadGen says INVALID: Decrease the expected latency so the loadgen pre-generates more.",
    ]


@pytest.mark.parametrize("missing", ["result_validity", "power_end"])
def test_a_log_that_ends_too_early_is_a_failure(missing: str, tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="ends without a verdict") as caught:
        read(single_stream(), tmp_path, detail(64, **{missing: None}))
    assert caught.value.status is Status.FAILED


def test_a_broken_line_is_a_failure_with_its_number(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=rf"{DETAIL}, line {len(detail(64)) + 1}") as caught:
        read(single_stream(), tmp_path, detail(64), more=':::MLLOG {"key": "cut of')
    assert caught.value.status is Status.FAILED


def test_a_missing_log_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=DETAIL) as caught:
        read_result(single_stream(), tmp_path, Tally())
    assert caught.value.status is Status.FAILED


@given(
    answers=st.lists(
        st.tuples(st.integers(0, 1000), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20), st.booleans()),
        max_size=10,
    )
)
def test_tokens_come_back_from_the_accuracy_log(
    answers: list[tuple[int, list[int], bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = []
    for place, (index, tokens, timed) in enumerate(answers):
        data = array("i", tokens).tobytes().hex().upper()
        extra = {"token_data": data[:8], "token_count": len(tokens)} if timed else {}
        lines.append({"seq_id": place, "qsl_idx": index, "data": data, **extra})
    path = tmp_path_factory.mktemp("log") / ACCURACY
    path.write_text(json.dumps(lines))
    found = read_accuracy_log(path)
    assert [(one.index, one.tokens) for one in found] == [(index, tokens) for index, tokens, _ in answers]
    for one, (_, tokens, timed) in zip(found, answers, strict=True):
        assert one.first == (tokens[:1] if timed else [])
        assert one.count == (len(tokens) if timed else None)


@pytest.mark.parametrize(
    "text", ["", "[", '[{"qsl_idx": 1}]', '[{"qsl_idx": 1, "data": "xx"}]', '[{"qsl_idx": 1, "data": "0102"}]']
)
def test_a_broken_accuracy_log_is_a_failure(text: str, tmp_path: Path) -> None:
    path = tmp_path / ACCURACY
    path.write_text(text)
    with pytest.raises(CaseError, match=ACCURACY) as caught:
        read_accuracy_log(path)
    assert caught.value.status is Status.FAILED


def test_outputs_keep_the_first_answer_and_logged_keeps_all(tmp_path: Path) -> None:
    (tmp_path / DETAIL).write_text("".join(line(key, value) for key, value in detail(64).items()))
    rows = [{"qsl_idx": 4, "data": array("i", [tokens]).tobytes().hex()} for tokens in (1, 2)]
    (tmp_path / ACCURACY).write_text(json.dumps(rows))
    result = read_result(single_stream(), tmp_path, Tally(samples=64))
    assert result.outputs == {4: [1]}
    assert [one.tokens for one in result.logged] == [[1], [2]]
