"""The tests decide as often right and wrong as they say, in simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trnbench.conformance.learning.statistics import (
    TEST_LEVEL,
    floor_margin,
    shortfall_margin,
    two_one_sided_tests,
)

SEEDS, FLOOR = 6, 12


def passes(generator: np.random.Generator, shift: float, scatter: float = 1.0, trials: int = 1000) -> float:
    """Share of simulated checks that pass: a floor of unit deviation, a device at `shift` with `scatter`."""
    good = 0
    for _ in range(trials):
        delta = floor_margin(list(generator.normal(size=FLOOR)), comparisons=2)
        good += two_one_sided_tests(list(generator.normal(shift, scatter, SEEDS)), delta).equivalent
    return good / trials


def test_a_permitted_implementation_raises_no_alarm() -> None:
    assert passes(np.random.default_rng(1), 0.0) == 1.0


def test_an_implementation_with_a_bias_of_its_own_raises_no_alarm() -> None:
    """Each has one mean for all its seeds, drawn with the floor's whole deviation: the worst way to be permitted."""
    generator = np.random.default_rng(2)
    failures = 0
    for _ in range(2000):
        delta = floor_margin(list(generator.normal(size=FLOOR)), comparisons=2)
        bias = generator.normal()
        failures += not two_one_sided_tests(list(bias + 1e-3 * generator.normal(size=SEEDS)), delta).equivalent
    assert failures <= stats.binom.ppf(0.9999, 2000, 1e-4)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_true_difference_of_delta_passes_as_rarely_as_the_level_says(sign: float) -> None:
    generator = np.random.default_rng(3)
    trials = 2000
    passed = sum(
        two_one_sided_tests(list(generator.normal(sign * 10.0, 1.0, SEEDS)), 10.0).equivalent for _ in range(trials)
    )
    assert stats.binom.ppf(1e-4, trials, TEST_LEVEL) <= passed <= stats.binom.ppf(0.9999, trials, TEST_LEVEL)


def test_a_difference_of_twice_delta_is_caught_and_its_direction_named() -> None:
    generator = np.random.default_rng(4)
    for sign, direction in ((1.0, "slower"), (-1.0, "faster")):
        for _ in range(300):
            delta = floor_margin(list(generator.normal(size=FLOOR)), comparisons=2)
            outcome = two_one_sided_tests(list(generator.normal(sign * 2.0 * delta, 1.0, SEEDS)), delta)
            assert outcome.direction == direction


def test_a_sample_too_small_or_too_scattered_is_not_shown_equivalent() -> None:
    generator = np.random.default_rng(5)
    assert passes(generator, 0.0, scatter=40.0, trials=300) < 0.05
    outcome = two_one_sided_tests([-30.0, 31.0], floor_margin(list(generator.normal(size=FLOOR))))
    assert not outcome.equivalent
    assert outcome.direction == "not shown"


def test_a_shortfall_that_the_reference_could_have_is_allowed() -> None:
    generator = np.random.default_rng(6)
    failures = 0
    for _ in range(2000):
        reference, device = list(generator.normal(size=SEEDS)), list(generator.normal(size=SEEDS))
        failures += np.mean(reference) - np.mean(device) > shortfall_margin(reference, SEEDS)
    assert failures <= stats.binom.ppf(0.9999, 2000, 1e-4)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8), st.floats(1e-3, 1e3))
def test_the_value_and_the_p_values_decide_alike(differences: list[float], delta: float) -> None:
    outcome = two_one_sided_tests(differences, delta)
    if abs(outcome.value - 1.0) > 1e-6:
        assert outcome.equivalent == (max(outcome.p_slower, outcome.p_faster) < TEST_LEVEL)


def test_p_values_are_those_of_scipy() -> None:
    differences = [0.1, 0.4, -0.2, 0.3, 0.15]
    outcome = two_one_sided_tests(differences, 0.5)
    assert outcome.p_slower == pytest.approx(stats.ttest_1samp(differences, 0.5, alternative="less").pvalue)
    assert outcome.p_faster == pytest.approx(stats.ttest_1samp(differences, -0.5, alternative="greater").pvalue)
    assert outcome.p_difference == pytest.approx(stats.ttest_1samp(differences, 0.0).pvalue)


@pytest.mark.parametrize("floor", [[0.1, 0.2, 0.3], [0.0] * 8, [0.1, 0.2, 0.3, math.nan]])
def test_a_floor_that_cannot_judge_is_refused(floor: list[float]) -> None:
    with pytest.raises(ValueError, match="paired floor"):
        floor_margin(floor)


def test_one_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="at least two"):
        two_one_sided_tests([0.1], 1.0)
