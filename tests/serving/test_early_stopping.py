"""Early stopping: the published counts, the definition itself, and LoadGen's own estimate in a real run."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loadgen_world import Echo, single_stream

from trnbench.records.schema import LEAST_COUNT
from trnbench.serving.early_stopping import estimate, misses_allowed, queries_needed, supported
from trnbench.serving.link import run_loadgen
from trnbench.serving.profiles import profile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("percentile", "misses", "queries"), [(0.9, 1, 64), (0.99, 1, 662), (0.99, 0, 459)])
def test_the_rules_counts(percentile: float, misses: int, queries: int) -> None:
    assert queries_needed(percentile, misses) == queries


def test_the_profiles_ask_for_these_counts() -> None:
    for name in ("quick", "full"):
        asked = profile(name).least_queries
        assert asked["single_stream"] == queries_needed(0.9, misses=1)
        assert asked["multi_stream"] == queries_needed(0.99, misses=1)
        assert asked["server"] == asked["interactive"] == queries_needed(0.99, misses=0)


@given(queries=st.integers(1, 400), misses=st.integers(0, 20), percentile=st.sampled_from([0.5, 0.9, 0.99]))
def test_supported_is_the_binomial_sum(queries: int, misses: int, percentile: float) -> None:
    chance = sum(
        math.comb(queries, slow) * (1 - percentile) ** slow * percentile ** (queries - slow)
        for slow in range(min(misses, queries) + 1)
    )
    if abs(chance - 0.01) > 1e-9:
        assert supported(queries, misses, percentile) is (chance < 0.01)


@given(queries=st.integers(1, 3000), percentile=st.sampled_from([0.9, 0.95, 0.99]))
def test_as_many_misses_as_allowed_and_not_one_more(queries: int, percentile: float) -> None:
    allowed = misses_allowed(queries, percentile)
    if allowed is None:
        assert queries < queries_needed(percentile)
    else:
        assert queries_needed(percentile, allowed) <= queries < queries_needed(percentile, allowed + 1)


@given(latencies=st.lists(st.floats(0, 1e3), min_size=1, max_size=700), percentile=st.sampled_from([0.9, 0.99]))
def test_the_estimate_bounds_the_percentile_from_above(latencies: list[float], percentile: float) -> None:
    found = estimate(latencies, percentile)
    if len(latencies) < queries_needed(percentile, misses=1):
        assert found is None
    else:
        assert found is not None
        below = sum(latency <= found for latency in latencies)
        assert below >= percentile * len(latencies)
        slow = sum(latency >= found for latency in latencies)
        assert supported(len(latencies), misses_allowed(len(latencies), percentile) or 0, percentile)
        assert slow >= (misses_allowed(len(latencies), percentile) or 0)


@pytest.mark.parametrize("queries", [64, 200, 700])
def test_loadgen_discards_as_many(queries: int, tmp_path: Path) -> None:
    test = single_stream(token_latencies=False, least_queries=queries, most_queries=queries)
    result = run_loadgen(test, Echo(tokens=False), folder=tmp_path, timeout=30.0)
    said = result.early_stopping["result"]
    discarded = re.search(r"Would discard (\d+) highest latency queries", said)
    needed = re.search(r"Processed at least (\d+) queries \((\d+)\)", said)
    assert discarded
    assert needed
    assert int(needed[1]) == queries_needed(0.9, misses=1)
    assert int(needed[2]) == queries
    assert int(discarded[1]) == (misses_allowed(queries, 0.9) or 0) - 1
    if queries >= 662:
        assert re.search(r"99(\.0)?th percentile estimate: \d+", said)
    else:
        more = re.search(r"would need to process at\s+least (\d+)", said)
        assert more
        assert int(more[1]) == queries_needed(0.99, misses=1)


def test_loadgens_estimate_is_ours(tmp_path: Path) -> None:
    # 64 queries: ours of any 64 latencies is the slowest one, and LoadGen's must be its own slowest.
    test = single_stream(token_latencies=False, most_queries=64)
    result = run_loadgen(test, Echo(tokens=False), folder=tmp_path, timeout=30.0)
    slowest = re.search(r'"result_max_latency_ns", "value": (\d+)', (tmp_path / "mlperf_log_detail.txt").read_text())
    assert slowest
    assert result.metric == pytest.approx(int(slowest[1]) / 1e9)
    assert estimate(list(range(64)), 0.9) == 63


def test_percentiles_are_shown_from_as_many_samples_as_early_stopping_asks_for() -> None:
    misses = {"90": 1, "95": 1, "99": 0, "99.9": 0}
    needed = {key: queries_needed(float(key) / 100, allowed) for key, allowed in misses.items()}
    assert {"50": 1, **needed} == LEAST_COUNT
