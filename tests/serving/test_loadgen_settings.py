"""Settings: built from case and profile, clashes refused before anything starts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loadgen_world import WIDE, server, single_stream

from trnbench.case import Case, case_from
from trnbench.serving.profiles import limits, profile
from trnbench.serving.settings import (
    PREGENERATION_BYTES,
    Hints,
    Test,
    accuracy_test,
    calibration_test,
    check,
    listed,
    performance_test,
    shortfalls,
)
from trnbench.status import UsageError


def case(phase: str, scenario: str, profile_name: str = "quick") -> Case:
    return case_from(
        {
            "suite": "smoke",
            "workload": "nano",
            "phase": phase,
            "precision": "fp32",
            "mode": "eager",
            "tier": "smoke",
            "batch": 4,
            "sequence": 32,
            "new_tokens": 16 if phase == "serving" else 0,
            "scenario": scenario,
            "profile": profile_name,
        }
    )


CASES = [
    *(case("serving", scenario) for scenario in ("single_stream", "offline", "server", "interactive")),
    *(case("scoring", scenario) for scenario in ("single_stream", "multi_stream", "offline", "server")),
]
HINTS = Hints(latency=0.01, rate=100.0)


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.id)
@pytest.mark.parametrize("name", ["quick", "full"])
def test_every_scenario_gets_the_profiles_counts(one: Case, name: str) -> None:
    rules = profile(name)
    rate = 50.0 if one.scenario in ("server", "interactive") else None
    test = performance_test(one, rules, samples=rules.library, rate=rate, hints=HINTS)
    assert test.scenario == one.scenario
    assert test.token_latencies is (one.phase == "serving")
    assert test.least_seconds >= rules.least_seconds
    assert rate is not None or test.least_seconds == rules.least_seconds
    assert test.least_queries == rules.least_queries[test.scenario]
    assert test.latency_limits == limits("nano", one.scenario)
    assert not shortfalls(test, rules)
    if rate is None:
        # The list must suffice for a system somewhat faster than the hint says, and be no more than thrice too long.
        queries, samples = listed(test)
        lasts = samples / HINTS.rate if one.scenario == "offline" else queries * HINTS.latency
        assert lasts >= 1.3 * rules.least_seconds
        assert lasts <= 3 * rules.least_seconds + rules.least_queries[test.scenario] * HINTS.latency + 1


@pytest.mark.parametrize("name", ["quick", "full"])
@pytest.mark.parametrize("scenario", ["server", "interactive"])
def test_a_rated_test_lasts_until_an_overload_shows(scenario: str, name: str) -> None:
    """Asked for more than it can do by the search's precision, a system must have fallen behind by the limit."""
    rules, allowed = profile(name), limits("nano", scenario)
    assert allowed is not None
    test = performance_test(case("serving", scenario, name), rules, samples=rules.library, rate=100.0)
    assert test.least_seconds * rules.search_precision >= allowed.ttft


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.id)
def test_calibration_and_accuracy_tests_pass_the_checks(one: Case) -> None:
    calibration = calibration_test(one, samples=8, queries=16)
    check(calibration)
    assert calibration.least_seconds == 0
    assert calibration.rate is None
    accuracy = accuracy_test(one, samples=8)
    check(accuracy)
    assert listed(accuracy)[1] == 8


def test_a_run_shorter_than_its_profile_says_so_with_both_numbers() -> None:
    rules = msgspec.structs.replace(profile("full"), least_seconds=60.0)
    short = single_stream(least_seconds=3.0, least_queries=10)
    assert shortfalls(short, rules) == [
        "too short: the test lasts 3 s and profile full asks for at least 60 s",
        "too few queries: the test asks 10 and profile full at least 64 in single_stream",
    ]
    capped = single_stream(least_seconds=60.0, most_seconds=3.0)
    assert any("ends after 3 s" in one for one in shortfalls(capped, rules))


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (single_stream(least_queries=100, most_queries=50), "most_queries 50 is below least_queries 100"),
        (single_stream(least_seconds=60.0, most_seconds=3.0), "most_seconds 3 is below least_seconds 60"),
        (single_stream(expected_latency=None), "expected_latency is None"),
        (single_stream(expected_latency=0.0), "expected_latency is 0.0"),
        (single_stream(expected_latency=float("nan")), "expected_latency is nan"),
        (single_stream(rate=3.0), "rate is 3.0; this scenario has none"),
        (server(rate=None), "rate is None"),
        (server(rate=-1.0), "rate is -1.0"),
        (server(latency_limits=None), "latency_limits is missing"),
        (single_stream(samples=0), "the library has 0 samples"),
        (single_stream(loaded_samples=1000), "loaded_samples is 1000"),
        (single_stream(least_queries=0), "least_queries is 0"),
        (single_stream(draw="same", same_index=99), "same_index 99"),
    ],
)
def test_clashes_are_refused(test: Test, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check(test)


@pytest.mark.parametrize(
    "test",
    [
        # The pitfall that ended a machine: a hint of half a microsecond for ten minutes.
        single_stream(least_seconds=600.0, expected_latency=500e-9),
        single_stream(scenario="multi_stream", least_seconds=600.0, expected_latency=20e-6),
        server(least_seconds=600.0, rate=1e6),
        Test(
            scenario="offline",
            mode="performance",
            token_latencies=True,
            samples=64,
            least_seconds=600.0,
            expected_rate=1e5,
        ),
    ],
    ids=lambda test: test.scenario,
)
def test_a_list_of_queries_that_fills_the_memory_is_refused_with_the_numbers(test: Test) -> None:
    with pytest.raises(
        UsageError, match=r"would list [\d,]+ (queries|samples) .*about [\d,]+ MiB; the most is 1,024 MiB"
    ):
        check(test)


@given(
    scenario=st.sampled_from(["single_stream", "multi_stream", "offline", "server"]),
    seconds=st.floats(0, 700),
    speed=st.floats(1e-3, 1e7),
    queries=st.integers(1, 100_000),
    samples=st.integers(1, 500),
    even=st.booleans(),
)
def test_no_test_that_passes_lists_more_than_the_cap(
    *, scenario: str, seconds: float, speed: float, queries: int, samples: int, even: bool
) -> None:
    changes: dict[str, Any] = {"scenario": scenario, "expected_latency": None}
    if scenario.endswith("_stream"):
        changes["expected_latency"] = 1 / speed
    elif scenario == "offline":
        changes["expected_rate"] = speed
    else:
        changes |= {"rate": speed, "latency_limits": WIDE}
    test = single_stream(least_seconds=seconds, least_queries=queries, samples=samples, even=even, **changes)
    listed_queries, listed_samples = listed(test)
    assert listed_samples >= queries * test.samples_per_query
    assert listed_queries * test.samples_per_query == listed_samples or scenario == "offline"
    try:
        check(test)
    except UsageError:
        assert 500 * listed_samples > PREGENERATION_BYTES
    else:
        assert 305 * listed_queries <= PREGENERATION_BYTES
