"""Statistics of comparisons against known answers, and how often unchanged code looks changed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from factory import make_record
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trnbench.compare import statistics
from trnbench.compare.engine import compare_records
from trnbench.compare.metrics import round_rates
from trnbench.records.drift import drift

rates = st.lists(st.floats(1.0, 1e6), min_size=3, max_size=8)


def test_five_samples_give_median_and_interval() -> None:
    """A10: times of 8, 9, 10, 11 and 40 ms keep 5 samples; their median is 10 and their mean 15.6."""
    times = [0.008, 0.009, 0.010, 0.011, 0.040]
    found = statistics.median_interval(times)
    assert found is not None
    middle, low, high = found
    assert middle == 0.010
    assert sum(times) / 5 == pytest.approx(0.0156)
    assert low < middle < high
    record = make_record(seconds=times)
    assert len(round_rates(record, "tokens_per_second")) == 5


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_too_few_samples_have_no_interval(count: int) -> None:
    """A10: with one round the spread is not available; it is never 0."""
    assert statistics.median_interval([1.0] * count) is None


def test_the_spread_of_one_run_is_unknown() -> None:
    """A10: below two runs there is no run-to-run spread, rather than one of 0."""
    assert statistics.spread([]) is None
    assert statistics.spread([5.0]) is None
    assert statistics.spread([math.e, math.e**3]) == pytest.approx(math.sqrt(2))


def test_the_bootstrap_is_the_same_every_time() -> None:
    """A page rebuilt from the same records shows the same interval."""
    values = list(np.random.default_rng(7).lognormal(0, 0.1, 30))
    assert statistics.median_interval(values) == statistics.median_interval(values)


def test_the_bootstrap_interval_covers_the_median() -> None:
    """Over 300 samples of 25, the 95 % interval holds the true median about as often as it says."""
    generator = np.random.default_rng(11)
    covered = 0
    for _ in range(300):
        found = statistics.median_interval(list(generator.lognormal(0.0, 0.2, 25)))
        assert found is not None
        covered += found[1] <= 1.0 <= found[2]
    assert 0.90 <= covered / 300 <= 0.99


def test_drift_reports_both_halves() -> None:
    """A12: 50 steps of 10 ms then 50 of 13 ms: the second half is 30 % slower, and both halves are told."""
    found = drift([0.010] * 50 + [0.013] * 50)
    assert found is not None
    assert (found.first_half_seconds, found.second_half_seconds) == (0.010, 0.013)
    assert found.change == pytest.approx(0.30)


def test_steady_rounds_have_no_drift() -> None:
    """A12: noise without a trend, or too few rounds to have halves, is no drift."""
    assert drift([0.010, 0.013] * 50) is None
    assert drift([0.010, 0.013]) is None


def test_drift_reaches_the_page() -> None:
    """A12: a comparison names the drifting run and shows both halves."""
    from factory import H100, TRAINIUM, make_device

    hot = make_record("hot", device=make_device(**H100), seconds=[0.010] * 50 + [0.013] * 50)
    cool = make_record("cool", device=make_device(**TRAINIUM))
    (comparison,) = compare_records([hot, cool], "device")
    assert comparison.b.runs[0].drift is not None
    assert any(
        note.startswith("drift in run hot of b: the second half of its rounds is 30% slower (0.01 s, then 0.013 s)")
        for note in comparison.notes
    )


def test_ratio_by_hand() -> None:
    """Runs of 1, 2 and 4 against 1, 1 and 1 (times a little noise) against scipy's textbook Welch formula."""
    a, b = [1.0, 2.0, 4.0], [1.0, 1.1, 0.9]
    found = statistics.ratio_of_runs(a, b)
    assert found is not None
    log_a, log_b = np.log(a), np.log(b)
    variances = log_a.var(ddof=1) / 3, log_b.var(ddof=1) / 3
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 2 + variances[1] ** 2 / 2)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(sum(variances))
    difference = log_a.mean() - log_b.mean()
    assert found.value == pytest.approx(math.exp(difference))
    assert found.low == pytest.approx(math.exp(difference - half))
    assert found.high == pytest.approx(math.exp(difference + half))


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 5), (5, 2), (0, 5)])
def test_fewer_than_three_runs_have_no_ratio(a: int, b: int) -> None:
    """D12: one run each side is not enough."""
    assert statistics.ratio_of_runs([1.0] * a, [1.0] * b) is None


@given(a=rates, b=rates, factor=st.floats(0.01, 100))
def test_ratio_laws(a: list[float], b: list[float], factor: float) -> None:
    """Scaling one side scales the ratio and its interval; swapping the sides inverts them."""
    there, back = statistics.ratio_of_runs(a, b), statistics.ratio_of_runs(b, a)
    scaled = statistics.ratio_of_runs([factor * value for value in a], b)
    assert there is not None
    assert back is not None
    assert scaled is not None
    assert there.low <= there.value <= there.high
    assert back.value == pytest.approx(1 / there.value)
    assert back.low == pytest.approx(1 / there.high, rel=1e-6)
    assert scaled.value == pytest.approx(factor * there.value)
    assert scaled.high / scaled.low == pytest.approx(there.high / there.low, rel=1e-6)


@given(value=st.floats(1.0, 1e6), other=st.floats(1.0, 1e6))
def test_runs_without_spread_have_a_point_interval(value: float, other: float) -> None:
    """Equal runs on both sides leave no spread to divide by; the interval is the point, never NaN."""
    found = statistics.ratio_of_runs([value] * 3, [other] * 3)
    assert found is not None
    assert found.low == found.high == pytest.approx(value / other)


def simulated_side(generator: np.random.Generator, runs: int = 6, rounds: int = 50) -> np.ndarray:
    """Rates of one side: a run offset of 15 % and 3 % noise inside each run."""
    offsets = generator.lognormal(0.0, 0.15, size=(runs, 1))
    return 1000 * offsets * generator.lognormal(0.0, 0.03, size=(runs, rounds))


def test_identical_code_raises_few_false_alarms() -> None:
    """D12: same code, 6 runs of 50 rounds, 3 % noise and 15 % run offset: about 5 % of pairs look different.

    The same pairs judged by their pooled rounds look different most of the time, which is the fault this avoids.
    """
    generator = np.random.default_rng(20261130)
    pairs, alarms, alarms_over_rounds = 1000, 0, 0
    for _ in range(pairs):
        a, b = simulated_side(generator), simulated_side(generator)
        ratio = statistics.ratio_of_runs(list(a.mean(axis=1)), list(b.mean(axis=1)))
        assert ratio is not None
        alarms += not ratio.low <= 1 <= ratio.high
        alarms_over_rounds += stats.ttest_ind(np.log(a).ravel(), np.log(b).ravel(), equal_var=False).pvalue < 0.05
    assert 0.03 <= alarms / pairs <= 0.07
    assert alarms_over_rounds / pairs > 0.4


def test_a_real_difference_is_found() -> None:
    """D12: with a third less throughput the same spread still lets most pairs be told apart."""
    generator = np.random.default_rng(5)
    found = 0
    for _ in range(200):
        a, b = simulated_side(generator).mean(axis=1), 0.67 * simulated_side(generator).mean(axis=1)
        ratio = statistics.ratio_of_runs(list(a), list(b))
        assert ratio is not None
        found += ratio.low > 1
    assert found / 200 > 0.9
