"""Load points: where they lie, how long they last, and that each can be asked of LoadGen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from serving_world import FakeLoadGen, script_of, served_case, stages_of

from trnbench.records.schema import LEAST_COUNT
from trnbench.serving.curve import FRACTIONS, POINT_RULES, point_tests
from trnbench.serving.profiles import profile
from trnbench.serving.settings import check, listed, performance_test

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_fractions_reach_from_light_load_to_beyond_the_highest_valid_rate() -> None:
    assert len(FRACTIONS) >= 7
    assert list(FRACTIONS) == sorted(set(FRACTIONS))
    assert FRACTIONS[0] <= 0.2
    assert 1.0 in FRACTIONS
    assert FRACTIONS[-1] > 1.0


@given(st.floats(0.2, 2000), st.sampled_from(["quick", "full"]), st.sampled_from(["server", "interactive"]))
def test_every_point_is_a_test_that_loadgen_can_run(rate: float, name: str, scenario: str) -> None:
    case = served_case(scenario=scenario, profile=name)
    rules, points = profile(name), POINT_RULES[name]
    model = performance_test(case, rules, samples=rules.library, rate=rate)
    tests = point_tests(model, rate, points)
    assert [one.rate for one in tests] == [fraction * rate for fraction in FRACTIONS]
    for one in tests:
        check(one)
        assert points.least_queries <= one.least_queries <= points.most_queries
        # The one query that LoadGen lists beyond those it asks is no pass over the library.
        assert listed(one)[0] <= one.least_queries + 1
        assert one.rate is not None
        seconds = one.least_queries / one.rate
        assert seconds <= max(points.seconds, points.least_queries / one.rate) + 1 / one.rate
        assert one.latency_limits == model.latency_limits


def test_a_quick_light_point_takes_seconds() -> None:
    rules = profile("quick")
    case = served_case(scenario="server")
    model = performance_test(case, rules, samples=rules.library, rate=60.0)
    lightest = point_tests(model, 60.0, POINT_RULES["quick"])[0]
    assert lightest.rate is not None
    assert lightest.least_queries >= LEAST_COUNT["90"], "a curve of p90 has all its points"
    assert lightest.least_queries / lightest.rate < 10


def test_points_show_latencies_whatever_loadgen_says_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit and with few queries LoadGen says INVALID: the point is a sound measurement all the same."""
    FakeLoadGen(holds=lambda rate, _: rate <= 60).install(monkeypatch)
    case = served_case(scenario="server")
    stages = stages_of(case, script_of(case), tmp_path)
    stages.run(1)
    points = [one.run for one in stages.runs.of("point")]
    assert len(points) == len(FRACTIONS)
    assert points[-1].verdict == "INVALID"
    assert all(point.valid and not point.reasons for point in points)
    for point in points:
        shown = point.latencies["latency"].percentiles
        assert set(shown) == {key for key, least in LEAST_COUNT.items() if point.samples >= least}
        assert "target" in point.rates
        assert not {name for name in point.rates if name.startswith("p9")}
    rates = [point.rates["target"] for point in points]
    assert rates == sorted(rates)
    assert rates[-1] > max(one.run.rates["target"] for one in stages.rounds)
    assert math.isclose(rates[FRACTIONS.index(1.0)], stages.rounds[0].run.rates["target"])


def test_an_error_in_a_point_makes_it_unsound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeLoadGen()
    fake.install(monkeypatch)
    case = served_case(scenario="server")
    stages = stages_of(case, script_of(case), tmp_path)
    stages.run(1)
    fake.errors = 2
    (test,) = [one.test for one in stages.runs.of("point")][:1]
    ran = stages.runs.run(test, "point")
    assert not ran.run.valid
    assert ran.run.reasons == ["2 errors in LoadGen's detail log"]
