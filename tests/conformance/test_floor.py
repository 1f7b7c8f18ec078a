"""The noise floor's arithmetic: limits against an independent calculation, and its rate of false alarms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trnbench.conformance.floor import norm_error_limit, signed_error_limit

errors = st.floats(min_value=1e-9, max_value=1.0)


def test_one_group_gives_the_textbook_prediction_limit() -> None:
    """By hand, for ln errors -2 to 2: mean 0, variance 10 / 4, four degrees of freedom, t(0.95) = 2.13185."""
    limit = norm_error_limit({"only": [math.exp(power) for power in (-2, -1, 0, 1, 2)]}, alpha=0.05)
    assert math.log(limit.limit) == pytest.approx(2.13185 * math.sqrt(2.5) * math.sqrt(1.0 + 1.0 / 5.0), rel=1e-5)
    assert (limit.groups, limit.runs) == (1, 5)
    assert limit.largest == pytest.approx(math.e**2)


def test_a_correct_implementation_fails_as_often_as_promised() -> None:
    """Twenty thousand correct runs against floors of nine: about alpha of them fall outside."""
    generator = np.random.default_rng(1)
    alpha, trials, alarms = 0.01, 20_000, 0
    for _ in range(trials):
        groups = {name: np.exp(generator.normal(-10.0, 0.05, 3)).tolist() for name in "abc"}
        new = math.exp(generator.normal(-10.0, 0.05))
        alarms += new > norm_error_limit(groups, alpha=alpha).limit
    # The limit takes the largest of three group means, so it errs on the side of fewer alarms.
    assert alarms / trials < alpha
    assert alarms > 0


def test_more_comparisons_widen_the_limit_as_bonferroni_says() -> None:
    groups = {"a": [1.0, 1.1, 1.2], "b": [0.9, 1.0, 1.05], "c": [1.0, 1.02]}
    assert norm_error_limit(groups, comparisons=10, alpha=0.01) == norm_error_limit(groups, alpha=0.001)


@given(st.lists(errors, min_size=5, max_size=9), st.floats(min_value=1e-3, max_value=1e3))
def test_limits_scale_with_the_errors(values: list[float], factor: float) -> None:
    """Errors have no natural unit: a floor that is ten times as high has a limit ten times as high."""
    plain, scaled = norm_error_limit({"a": values}), norm_error_limit({"a": [factor * value for value in values]})
    assert scaled.limit == pytest.approx(factor * plain.limit, rel=1e-4)


@given(st.lists(st.floats(min_value=-1.0, max_value=1.0), min_size=5, max_size=9))
def test_a_signed_limit_does_not_depend_on_the_sign(values: list[float]) -> None:
    mirrored = [-value for value in values]
    assert signed_error_limit({"a": values}).limit == pytest.approx(signed_error_limit({"a": mirrored}).limit)


def test_the_signed_limit_is_two_sided() -> None:
    values = [-2.0, -1.0, 0.0, 1.0, 2.0]
    expected = stats.t.ppf(1.0 - 0.05 / 2, 4) * math.sqrt(2.5) * math.sqrt(1.0 + 1.0 / 5.0)
    assert signed_error_limit({"a": values}, alpha=0.05).limit == pytest.approx(expected)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_floor_that_cannot_judge_is_refused(bad: float) -> None:
    """C9, C10: a zero, a NaN or an infinity among the floor's errors would make any limit meaningless."""
    with pytest.raises(ValueError, match="'b' has an error that is not finite and positive"):
        norm_error_limit({"a": [1.0, 1.0], "b": [1.0, bad]})


def test_a_single_run_has_no_spread() -> None:
    with pytest.raises(ValueError, match="at least two runs"):
        norm_error_limit({"a": [1.0, 1.0, 1.0, 1.0, 1.0], "b": [1.0]})


def test_too_few_runs_bound_nothing() -> None:
    with pytest.raises(ValueError, match="3 degrees of freedom; at least 4"):
        norm_error_limit({"a": [1.0, 1.1, 1.2, 1.3]})
