"""Noise floor: how far correct implementations of the same function lie from the float64 oracle.

Instead of a chosen tolerance, a check takes its limit from a declared set of permitted implementations, each run
several times with function-preserving permutations of the weights. Each group of runs has its own mean error; the
spread around it comes from accumulation order alone. The limit is the one-sided prediction limit for one more run of
the worst permitted implementation: with g groups of n runs, pooled standard deviation s and g*(n-1) degrees of freedom,

    limit = max_g mean_g + t(1 - alpha, g*(n-1)) * s * sqrt(1 + 1/n)

(prediction interval of a normal sample: Hahn and Meeker, Statistical Intervals, 1991, section 4.7). Errors are positive
and their spread scales with their size, so means and spread are taken of their logarithms where the error is a norm.
With k quantities judged at once, alpha is divided by k (Bonferroni), so that one check raises a false alarm with
probability at most alpha.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import msgspec
from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEAST_FREEDOM = 4
"""Degrees of freedom below which the quantile is so wide that the limit would pass nearly anything."""

FALSE_ALARM_PROBABILITY = 1e-4
"""Per check: one in ten thousand checks of a correct implementation fails by chance."""


class FloorLimit(msgspec.Struct, frozen=True, kw_only=True):
    """`limit` in the unit of the errors; `runs` and `groups` say what it rests on, `largest` the worst run seen."""

    limit: float
    largest: float
    groups: int
    runs: int


def norm_error_limit(
    groups: Mapping[str, Sequence[float]], *, comparisons: int = 1, alpha: float = FALSE_ALARM_PROBABILITY
) -> FloorLimit:
    """Limit for a positive error norm, from `groups`: permitted implementation -> errors of its runs.

    Raises `ValueError` where a group has fewer than two runs or all together too few, or an error is not finite and
    positive: a floor that holds such a value cannot judge anything.
    """
    for name, errors in groups.items():
        if any(not (math.isfinite(error) and error > 0.0) for error in errors):
            raise ValueError(f"noise floor: implementation {name!r} has an error that is not finite and positive")
    logarithms = {name: [math.log(error) for error in errors] for name, errors in groups.items()}
    upper = _prediction_limit(logarithms, alpha / comparisons)
    runs = [error for errors in groups.values() for error in errors]
    return FloorLimit(limit=math.exp(upper), largest=max(runs), groups=len(groups), runs=len(runs))


def signed_error_limit(
    groups: Mapping[str, Sequence[float]], *, comparisons: int = 1, alpha: float = FALSE_ALARM_PROBABILITY
) -> FloorLimit:
    """Limit for the size of a signed error, such as that of a mean loss: two-sided, around each group's mean.

    Raises `ValueError` as `norm_error_limit`.
    """
    for name, errors in groups.items():
        if any(not math.isfinite(error) for error in errors):
            raise ValueError(f"noise floor: implementation {name!r} has an error that is not finite")
    above = _prediction_limit(groups, alpha / (2 * comparisons))
    below = _prediction_limit(
        {name: [-error for error in errors] for name, errors in groups.items()}, alpha / (2 * comparisons)
    )
    runs = [abs(error) for errors in groups.values() for error in errors]
    return FloorLimit(limit=max(above, below), largest=max(runs), groups=len(groups), runs=len(runs))


def _prediction_limit(groups: Mapping[str, Sequence[float]], alpha: float) -> float:
    """One-sided upper prediction limit for one more run of the group with the largest mean."""
    if not groups or any(len(values) < 2 for values in groups.values()):
        raise ValueError("noise floor: every permitted implementation needs at least two runs")
    freedom = sum(len(values) - 1 for values in groups.values())
    if freedom < LEAST_FREEDOM:
        raise ValueError(f"noise floor: {freedom} degrees of freedom; at least {LEAST_FREEDOM} are needed")
    pooled = math.sqrt(sum(statistics.variance(values) * (len(values) - 1) for values in groups.values()) / freedom)
    quantile = float(stats.t.ppf(1.0 - alpha, freedom))
    return max(
        statistics.fmean(values) + quantile * pooled * math.sqrt(1.0 + 1.0 / len(values)) for values in groups.values()
    )
