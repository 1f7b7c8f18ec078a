"""Tests that a real LoadGen ends well: what comes back in each scenario and mode."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from loadgen_world import SAMPLES, WIDE, Children, Echo, accuracy, answer, children, server, single_stream

from trnbench.serving.link import hints_of, run_loadgen
from trnbench.serving.null import NullSystem, issue_delay, probe, refuse_delay
from trnbench.serving.profiles import SEEDS, Limits
from trnbench.serving.protocol import DETAIL
from trnbench.serving.settings import Test, listed
from trnbench.status import CaseError, Status, UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["children"]  # a fixture

PATIENCE = 30.0


def test_single_stream_gives_a_p90_and_no_p99_from_64_queries(tmp_path: Path, children: Children) -> None:
    result = run_loadgen(single_stream(most_queries=64), Echo(), folder=tmp_path, timeout=PATIENCE)
    assert (result.verdict, result.reasons, result.errors, result.valid) == ("VALID", [], 0, True)
    assert result.queries == result.samples == sum(result.issued.values()) == 64
    assert set(result.latencies) == {"latency", "ttft", "tpot"}
    for found in result.latencies.values():
        assert found.count == 64
        assert set(found.percentiles) == {"50", "90"}
        assert 0 < found.percentiles["50"] <= found.percentiles["90"]
    assert result.latencies["ttft"].mean < result.latencies["latency"].mean
    assert result.metric == result.latencies["latency"].percentiles["90"]
    assert result.produced == sum(len(answer(index)) * times for index, times in result.issued.items())
    assert result.seconds > 64 * 0.9 * result.latencies["latency"].mean
    assert children.all_gone()


def test_single_stream_without_token_times_takes_the_early_stopping_estimate(tmp_path: Path) -> None:
    test = single_stream(token_latencies=False, most_queries=64)
    result = run_loadgen(test, Echo(tokens=False), folder=tmp_path, timeout=PATIENCE)
    assert result.valid
    assert set(result.latencies) == {"latency"}
    assert result.metric is not None
    # Of 64 queries none is discarded: the estimate is the slowest one.
    assert result.metric >= result.latencies["latency"].percentiles["90"]
    assert str(round(result.metric * 1e9)) in result.early_stopping["result"]
    assert result.produced == 64


def test_multi_stream_counts_queries_of_eight_samples(tmp_path: Path) -> None:
    test = single_stream(scenario="multi_stream", token_latencies=False, least_queries=662, most_queries=662)
    result = run_loadgen(test, Echo(tokens=False), folder=tmp_path, timeout=PATIENCE)
    assert result.valid
    assert (result.queries, result.samples) == (662, 8 * 662)
    assert result.latencies["latency"].count == 662
    assert set(result.latencies["latency"].percentiles) == {"50", "90", "95", "99"}
    assert result.metric is not None
    assert result.metric >= result.latencies["latency"].percentiles["99"]


def test_offline_asks_everything_at_once_and_times_no_tokens(tmp_path: Path) -> None:
    test = Test(
        scenario="offline",
        mode="performance",
        token_latencies=True,
        samples=SAMPLES,
        least_queries=20 * SAMPLES,
        expected_rate=1.0,
    )
    result = run_loadgen(test, Echo(pause=0.01), folder=tmp_path, timeout=PATIENCE)
    assert result.valid
    assert (result.queries, result.samples) == (1, 240)
    assert Counter(result.issued.values()) == {20: SAMPLES}
    assert set(result.latencies) == {"latency"}
    assert result.metric == pytest.approx(1 / result.rates["samples"])
    assert result.rates["tokens"] == pytest.approx(result.rates["samples"] * result.produced / 240, rel=1e-4)


def test_server_asks_at_the_rate_and_keeps_the_rules_seeds(tmp_path: Path) -> None:
    result = run_loadgen(server(even=True), Echo(), folder=tmp_path, timeout=PATIENCE)
    assert result.valid
    assert result.queries == 468  # The next multiple of 12 samples above 459.
    assert Counter(result.issued.values()) == {39: SAMPLES}
    assert result.rates["target"] == 900.0
    assert set(result.latencies["ttft"].percentiles) == {"50", "90", "95", "99"}
    assert result.metric == pytest.approx(1 / result.rates["samples"])
    assert result.settings["effective_qsl_rng_seed"] == SEEDS.library
    assert result.settings["effective_sample_index_rng_seed"] == SEEDS.order
    assert result.settings["effective_schedule_rng_seed"] == SEEDS.schedule
    assert str(result.settings["loadgen_version"]).split(".")[0].isdigit()


def test_a_missed_latency_limit_is_told_from_one_met(tmp_path: Path) -> None:
    tight = Limits(ttft=1e-6, tpot=30.0, answer=30.0, source="cannot be met")
    result = run_loadgen(server(latency_limits=tight), Echo(), folder=tmp_path, timeout=PATIENCE)
    assert result.verdict == "INVALID"
    assert "a latency limit is not met" in result.reasons
    assert result.metric is None
    assert any("TTFT" in reason for reason in result.reasons)
    assert result.rates["samples"] > 0


def test_an_overloaded_test_can_end_early(tmp_path: Path) -> None:
    result = run_loadgen(server(rate=5000.0, most_waiting=5), Echo(pause=0.02), folder=tmp_path, timeout=PATIENCE)
    assert result.verdict == "INVALID"
    assert result.errors == 1
    assert any("outstanding" in text for text in result.error_texts)
    assert result.queries < 459


def test_accuracy_mode_returns_every_samples_tokens(tmp_path: Path) -> None:
    result = run_loadgen(accuracy(), Echo(), folder=tmp_path, timeout=PATIENCE)
    assert (result.verdict, result.reasons, result.metric) == ("none", [], None)
    assert result.outputs == {index: answer(index) for index in range(SAMPLES)}
    assert (result.latencies, result.rates) == ({}, {})


def test_accuracy_mode_of_server_logs_first_tokens_and_lengths(tmp_path: Path) -> None:
    test = accuracy(scenario="server", rate=900.0, latency_limits=WIDE)
    result = run_loadgen(test, Echo(), folder=tmp_path, timeout=PATIENCE)
    assert sorted(one.index for one in result.logged) == list(range(SAMPLES))
    for one in result.logged:
        assert one.first == one.tokens[:1]
        assert one.count == len(one.tokens)


def test_performance_mode_logs_a_share_of_the_answers(tmp_path: Path) -> None:
    result = run_loadgen(server(logged_samples=60), Echo(), folder=tmp_path, timeout=PATIENCE)
    assert 0 < len(result.logged) < 459
    assert result.outputs == {index: answer(index) for index in result.outputs}


@pytest.mark.parametrize("draw", ["unique", "same"])
def test_samples_can_be_drawn_once_each_or_one_for_all(draw: str, tmp_path: Path) -> None:
    test = Test(
        scenario="offline",
        mode="performance",
        token_latencies=True,
        samples=SAMPLES,
        expected_rate=1.0,
        draw=draw,  # type: ignore[arg-type]
        same_index=3,
    )
    result = run_loadgen(test, Echo(), folder=tmp_path, timeout=PATIENCE)
    assert sum(result.issued.values()) == SAMPLES
    assert set(result.issued.values()) == ({1} if draw == "unique" else {SAMPLES})


@pytest.mark.parametrize(
    "test",
    [
        single_stream(least_seconds=0.1, expected_latency=0.0007),
        single_stream(least_seconds=0.1, expected_latency=0.0007, even=True),
        single_stream(scenario="multi_stream", token_latencies=False, least_queries=662),
        server(least_seconds=0.7),
        server(least_seconds=0.7, even=True, loaded_samples=7),
    ],
    ids=["single", "single-even", "multi", "server", "server-even"],
)
def test_listed_bounds_what_loadgen_generates(test: Test, tmp_path: Path) -> None:
    result = run_loadgen(test, Echo(tokens=test.token_latencies), folder=tmp_path, timeout=PATIENCE)
    generated = result.settings["generated_query_count"]
    assert isinstance(generated, int)
    assert generated <= listed(test)[0] < 1.4 * generated


def test_a_wrong_hint_ends_as_too_short(tmp_path: Path) -> None:
    # LoadGen lists 2 x 0.5 s / 0.25 s = 4, so 64 queries, which take far less than half a second.
    test = single_stream(least_seconds=0.5, expected_latency=0.25)
    result = run_loadgen(test, Echo(), folder=tmp_path, timeout=PATIENCE)
    assert result.verdict == "INVALID"
    assert any(reason.startswith("too short") and "0.5 s" in reason for reason in result.reasons)


def test_calibration_measures_the_hints(tmp_path: Path) -> None:
    test = single_stream(least_queries=16, most_queries=16, expected_latency=1.0)
    result = run_loadgen(test, Echo(pause=0.01), folder=tmp_path, timeout=PATIENCE)
    hints = hints_of(result)
    assert hints.latency is not None
    assert 0.02 <= hints.latency < 1.0
    assert result.queries == 16
    assert not result.valid  # 16 queries carry no p90; a calibration need not.


def test_clashing_limits_are_refused_before_anything_starts(tmp_path: Path, children: Children) -> None:
    with pytest.raises(UsageError, match="most_queries 50 is below least_queries 100"):
        run_loadgen(single_stream(least_queries=100, most_queries=50), Echo(), folder=tmp_path, timeout=PATIENCE)
    assert not children
    assert not list(tmp_path.iterdir())


def test_the_probe_measures_the_link_alone_and_refuses_a_tight_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trnbench.serving.null.PROBE_SECONDS", 0.5)
    result = probe(server(rate=10.0, least_queries=50_000), folder=tmp_path, timeout=PATIENCE)
    assert result.queries == 459
    assert result.rates["target"] == pytest.approx(459 / 0.5)
    delay = issue_delay(result)
    assert delay == result.latencies["ttft"].percentiles["99"]
    at_limit = Limits(ttft=delay / 0.05 * 1.01, tpot=1.0, answer=1.0, source="")
    refuse_delay(delay, server(latency_limits=at_limit))
    below = Limits(ttft=delay / 0.05 * 0.99, tpot=1.0, answer=1.0, source="")
    with pytest.raises(CaseError, match=r"TTFT limit of .* ms: .* p99 is .* ms") as caught:
        refuse_delay(delay, server(latency_limits=below))
    assert caught.value.status is Status.INVALID


def test_an_audit_file_in_the_current_folder_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, children: Children
) -> None:
    here, logs = tmp_path / "here", tmp_path / "logs"
    here.mkdir()
    logs.mkdir()
    (here / "audit.config").write_text("*.*.min_query_count = 7\n")
    (here / "array.py").write_text("raise SystemExit('a file of the current folder was imported')\n")
    monkeypatch.chdir(here)
    result = run_loadgen(single_stream(most_queries=64), NullSystem(), folder=logs, timeout=PATIENCE)
    assert result.settings["effective_min_query_count"] == 64
    assert (logs / DETAIL).is_file()
    assert children.all_gone()


def test_the_child_imports_neither_torch_nor_pandas() -> None:
    heavy = ("torch", "pandas", "numpy", "scipy", "matplotlib")
    script = f"import sys, trnbench.serving.loadgen_child; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
