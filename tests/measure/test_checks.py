"""The rules that withhold or mark a speed, over all the numbers a clock could give."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.measure.checks import check_seconds, check_steps, drift_warning
from trnbench.records.drift import DRIFT_LIMIT, drift
from trnbench.status import CaseError, Status

durations = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=50)


@given(durations, st.floats(1.0, 10.0))
def test_honest_rounds_pass(seconds: list[float], spare: float) -> None:
    check_seconds(seconds, math.fsum(seconds) * spare)


@given(durations, st.floats(0.0, 0.9))
def test_rounds_longer_than_their_loop_never_pass(seconds: list[float], part: float) -> None:
    """B14: a sum above the wall time is refused, whatever the numbers."""
    total = math.fsum(seconds)
    wall = total * part if total > 1e-4 else -1.0
    with pytest.raises(CaseError, match="inconsistent timing") as caught:
        check_seconds(seconds, wall)
    assert caught.value.status is Status.INVALID


@given(durations, st.data(), st.sampled_from([0.0, -1.0, math.nan, math.inf, -math.inf]))
def test_a_round_without_a_duration_never_passes(seconds: list[float], data: st.DataObject, bad: float) -> None:
    """A13, B14: zero, negative and non-finite rounds are refused, and named by their number."""
    position = data.draw(st.integers(0, len(seconds)))
    seconds.insert(position, bad)
    with pytest.raises(CaseError, match=rf"inconsistent timing: round {position + 1} of {len(seconds)} "):
        check_seconds(seconds, 1e9)


def test_no_rounds_are_no_samples() -> None:
    """A13: an empty list is 'no valid samples', not a division by zero."""
    with pytest.raises(CaseError, match="no valid samples"):
        check_seconds([], 1.0)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 120), st.integers(0, 50))
def test_only_equal_counts_pass(warmup: int, rounds: int, executed: int, noted: int) -> None:
    """A7: steps run, timed and noted agree or the case is refused."""
    if executed == warmup + rounds and noted == rounds:
        check_steps(executed, warmup, rounds, noted)
    else:
        with pytest.raises(CaseError, match="they must agree"):
            check_steps(executed, warmup, rounds, noted)


@given(st.floats(1e-3, 1e3), st.integers(2, 40), st.floats(0.2, 5.0))
def test_drift_is_the_ratio_of_the_halves(base: float, half: int, factor: float) -> None:
    """A12: equal halves but for a factor give that factor, and a warning exactly beyond the limit."""
    seconds = [base] * half + [base * factor] * half
    if abs(abs(factor - 1) - DRIFT_LIMIT) > 1e-6:
        found = drift(seconds)
        assert (found is not None) == bool(drift_warning(seconds)) == (abs(factor - 1) > DRIFT_LIMIT)
        assert found is None or found.change == pytest.approx(factor - 1)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_rounds_have_no_drift(count: int) -> None:
    """A10: with too few rounds the figure is absent, not 0 or 1."""
    assert drift([1.0] * count) is None
    assert drift_warning([1.0] * count) == ""
