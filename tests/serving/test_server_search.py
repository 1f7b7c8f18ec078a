"""The search for the highest valid rate, on systems whose true limit is known."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.serving.search import (
    CONFIRMATIONS,
    FIRST_SHARE,
    FIRST_STEP,
    LEAST_SHARE,
    MOST_SHARE,
    Found,
    bounds_from,
    highest_valid_rate,
    runs_needed,
)
from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

CAPACITIES = st.floats(0.01, 1e5)
PRECISIONS = st.sampled_from([0.02, 0.05, 0.1, 0.25])
SHARES = st.floats(LEAST_SHARE * 1.001, MOST_SHARE * 0.999)


class Subject:
    """A system that is valid at a rate or not, and remembers what it was asked."""

    def __init__(self, valid: Callable[[float], bool]) -> None:
        self._valid = valid
        self.asked: list[tuple[float, bool]] = []

    def __call__(self, rate: float) -> bool:
        answer = self._valid(rate)
        self.asked.append((rate, answer))
        return answer


def search(
    valid: Callable[[float], bool], capacity: float, precision: float, trials: int = 60
) -> tuple[Found, Subject]:
    subject = Subject(valid)
    found = highest_valid_rate(subject, bounds_from(capacity, precision, trials))
    assert found.trials == len(subject.asked) <= trials
    return found, subject


@given(CAPACITIES, PRECISIONS, SHARES)
def test_a_sharp_limit_is_found_to_the_stated_precision(capacity: float, precision: float, share: float) -> None:
    limit = capacity * share
    found, subject = search(lambda rate: rate <= limit, capacity, precision)
    assert found.end == "bracketed"
    assert found.rate is not None
    assert limit / (1 + precision) * (1 - 1e-9) <= found.rate <= limit
    assert found.above is not None
    assert limit < found.above <= found.rate * (1 + precision)
    assert (found.rate, True) in subject.asked


@given(CAPACITIES, PRECISIONS, SHARES)
def test_so_many_runs_as_stated_suffice_for_a_sharp_limit(capacity: float, precision: float, share: float) -> None:
    bounds = bounds_from(capacity, precision, trials=1)
    needed = runs_needed(bounds)
    found = highest_valid_rate(lambda rate: rate <= capacity * share, bounds._replace(trials=needed))
    assert found.end == "bracketed"
    assert needed <= 20


@given(CAPACITIES, PRECISIONS, SHARES, st.floats(0, 0.3), st.integers(0, 2**32))
def test_a_noisy_limit_is_found_within_its_noise(
    capacity: float, precision: float, share: float, noise: float, seed: int
) -> None:
    """Every run has a limit of its own, between L (1 - noise) and L (1 + noise)."""
    draw = random.Random(seed)
    limit = capacity * share
    found, subject = search(lambda rate: rate <= limit * (1 + noise * draw.uniform(-1, 1)), capacity, precision, 80)
    if found.end == "bracketed":
        assert found.rate is not None
        assert limit * (1 - noise) / (1 + precision) * (1 - 1e-9) <= found.rate <= limit * (1 + noise) * (1 + 1e-9)
    if found.rate is not None:
        assert (found.rate, True) in subject.asked, "a rate is reported that no valid run has shown"


@given(CAPACITIES, PRECISIONS, SHARES, st.integers(0, 40))
def test_a_single_hiccup_does_not_lower_the_result(capacity: float, precision: float, share: float, at: int) -> None:
    """One run among all misses although its rate is sustainable; the upper end of the bracket is tried again."""
    limit = capacity * share
    count = iter(range(1000))
    found, _ = search(lambda rate: next(count) != at and rate <= limit, capacity, precision)
    assert found.end == "bracketed"
    assert found.rate is not None
    assert limit / (1 + precision) * (1 - 1e-9) <= found.rate <= limit


@given(CAPACITIES, PRECISIONS, st.floats(0, 1), st.integers(0, 2**32), st.integers(1, 30))
def test_trials_are_bounded_whatever_the_system_answers(
    capacity: float, precision: float, chance: float, seed: int, trials: int
) -> None:
    draw = random.Random(seed)
    found, subject = search(lambda _: draw.random() < chance, capacity, precision, trials)
    valid = [rate for rate, answer in subject.asked if answer]
    assert found.rate == max(valid, default=None)
    assert all(math.isfinite(rate) and rate > 0 for rate, _ in subject.asked)
    assert max(rate for rate, _ in subject.asked) <= capacity * MOST_SHARE * (1 + 1e-9)


@given(CAPACITIES, PRECISIONS)
def test_a_system_that_is_never_valid_ends_without_a_rate(capacity: float, precision: float) -> None:
    found, subject = search(lambda _: False, capacity, precision)
    assert found.end == "never valid"
    assert found.rate is None
    assert "no rate was valid" in found.said
    assert min(rate for rate, _ in subject.asked) == pytest.approx(capacity * LEAST_SHARE)
    assert len(subject.asked) <= 10


@given(CAPACITIES, PRECISIONS)
def test_a_system_that_is_always_valid_says_that_the_limit_lies_above(capacity: float, precision: float) -> None:
    found, _ = search(lambda _: True, capacity, precision)
    assert found.end == "always valid"
    assert found.rate == pytest.approx(capacity * MOST_SHARE)
    assert found.above is None
    assert "lies above" in found.said


def test_too_few_trials_are_told() -> None:
    found, _ = search(lambda rate: rate <= 60, 100, 0.01, trials=3)
    assert found.end == "out of trials"
    assert found.rate == pytest.approx(100 * FIRST_SHARE / FIRST_STEP**3)
    assert found.said.startswith("the search stopped after 3 runs: valid at ")
    assert found.above == pytest.approx(100 * FIRST_SHARE / FIRST_STEP)


def test_the_upper_end_is_tried_as_often_as_stated() -> None:
    _, subject = search(lambda rate: rate <= 50, 100, 0.1)
    upper = min(rate for rate, answer in subject.asked if not answer)
    assert [rate for rate, _ in subject.asked].count(upper) == CONFIRMATIONS


@pytest.mark.parametrize(("capacity", "precision"), [(0.0, 0.1), (math.nan, 0.1), (math.inf, 0.1), (10.0, 0.0)])
def test_a_capacity_or_precision_that_is_none_is_refused(capacity: float, precision: float) -> None:
    with pytest.raises(UsageError, match="must be positive and finite"):
        bounds_from(capacity, precision, 10)
