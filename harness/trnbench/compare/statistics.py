"""Statistics of comparisons: medians with bootstrap intervals inside a run, the spread between runs for verdicts.

Rounds of one run share its process, its memory layout and the temperature of its chip, so their spread says nothing
about the next run. A test over rounds calls identical code different far too often; only whole runs are compared.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from trnbench.compare.model import Ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_RUNS = 3
"""Runs a side below which no verdict is given."""

LEAST_ROUNDS = 5
"""Rounds below which a run's median has no interval."""

CONFIDENCE = 0.95

_RESAMPLES = 999
_SEED = 20261130


def median_interval(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Median of one run's rounds with the ends of its bootstrap interval; None with fewer than `LEAST_ROUNDS`.

    Percentile bootstrap (Efron and Tibshirani 1993, chapter 13) with a fixed seed, so a page rebuilt is the same.
    """
    if len(values) < LEAST_ROUNDS:
        return None
    middle = statistics.median(values)
    if min(values) == max(values):
        return middle, middle, middle
    result = stats.bootstrap(
        (np.asarray(values, dtype=np.float64),),
        np.median,
        confidence_level=CONFIDENCE,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    )
    return middle, float(result.confidence_interval.low), float(result.confidence_interval.high)


def spread(values: Sequence[float]) -> float | None:
    """Standard deviation of ln(value), about the relative spread; None below two values, never 0 for want of data."""
    if len(values) < 2:
        return None
    return statistics.stdev(math.log(value) for value in values)


def geometric_mean(values: Sequence[float]) -> float | None:
    """exp of the mean of ln(value); None without values."""
    return statistics.geometric_mean(values) if values else None


def ratio_of_runs(a: Sequence[float], b: Sequence[float]) -> Ratio | None:
    """Ratio of the geometric means of two sides' run values, with its two-sided interval.

    Welch's t interval (Welch 1947) on the difference of mean ln(run value), turned back into a ratio. None with
    fewer than `LEAST_RUNS` on either side. All values must be above 0.
    """
    if min(len(a), len(b)) < LEAST_RUNS:
        return None
    log_a, log_b = [math.log(value) for value in a], [math.log(value) for value in b]
    mean_a, mean_b = statistics.fmean(log_a), statistics.fmean(log_b)
    difference = mean_a - mean_b
    if min(log_a) == max(log_a) and min(log_b) == max(log_b):
        # No spread at all on either side: Welch's degrees of freedom are 0/0, and the interval is the point itself.
        low = high = 0.0
    else:
        # The interval's width does not depend on the means; without them nearly equal runs lose no digits.
        centred_a, centred_b = [value - mean_a for value in log_a], [value - mean_b for value in log_b]
        interval = stats.ttest_ind(centred_a, centred_b, equal_var=False).confidence_interval(CONFIDENCE)
        low, high = float(interval.low), float(interval.high)
    return Ratio(
        value=math.exp(difference),
        low=math.exp(difference + low),
        high=math.exp(difference + high),
        confidence=CONFIDENCE,
        method=f"Welch t interval on ln(run value), {len(a)} against {len(b)} runs (scipy.stats.ttest_ind)",
    )
