"""Equivalence of paired runs, decided both ways, with a margin that is measured.

For each of n seeds, d is the device's quantity minus that of the host's fp32 arm with the same initial weights and
data. The margin delta comes from the paired floor: m differences of the same kind, made by permitted implementations.
It is the two-sided prediction limit for one more run of a permitted implementation,

    delta = |mean_m| + t(1 - alpha/2, m-1) * s_m * sqrt(1 + 1/m)

(Hahn and Meeker, Statistical Intervals, 1991, section 4.7). The sampling unit is a run, which differs from the next by
implementation as well as by seed, so a bias that one implementation has at every seed is inside delta.

Two one-sided tests (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987) then reject "slower by delta or more" and "faster
by delta or more", each at level `TEST_LEVEL`; both are rejected exactly where |mean_n| + t(1 - level, n-1) * s_n /
sqrt(n) is below delta. So an arm that truly differs by delta passes with probability at most `TEST_LEVEL`, and a
sample too small or too scattered to tell is not shown equivalent and fails. An arm whose differences are distributed as
the floor's stays inside: with n = 6 and m = 12 it would need a mean 5 of its own standard deviations off.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import msgspec
from scipy.special import stdtr, stdtrit

if TYPE_CHECKING:
    from collections.abc import Sequence

TEST_LEVEL = 0.05
"""Of each one-sided test and of the plain difference test: the conventional level of bioequivalence."""

FALSE_ALARM_PROBABILITY = 1e-4
"""That one more run of a permitted implementation lies outside delta, over all quantities of one learning check."""

LEAST_FLOOR = 4
"""Differences below which a prediction limit is so wide that it would pass nearly anything."""


class Equivalence(msgspec.Struct, frozen=True, kw_only=True):
    """`value` is (|mean| + t * se) / delta: at most 1 exactly where both one-sided tests reject.

    `p_slower` and `p_faster` are the p values of "differs by +delta or more" and "by -delta or more"; `p_difference`
    is that of the plain two-sided t test of a mean of zero.
    """

    n: int
    mean: float
    sd: float
    delta: float
    p_slower: float
    p_faster: float
    p_difference: float
    value: float

    @property
    def equivalent(self) -> bool:
        """Both one-sided tests reject."""
        return self.value <= 1.0

    @property
    def direction(self) -> str:
        """ "" where equivalent; "slower" or "faster" where the difference test finds one; else "not shown"."""
        if self.equivalent:
            return ""
        if self.p_difference > TEST_LEVEL:
            return "not shown"
        return "slower" if self.mean > 0 else "faster"

    @property
    def words(self) -> str:
        """The statistics in words."""
        return (
            f"{self.n} seeds, mean paired difference {self.mean:+.3g} (sd {self.sd:.2g}), delta {self.delta:.3g} from "
            f"the paired floor; p {self.p_slower:.2g} (slower by delta), {self.p_faster:.2g} (faster by delta), "
            f"{self.p_difference:.2g} (no difference)"
        )


def floor_margin(floor: Sequence[float], *, comparisons: int = 1) -> float:
    """delta from the floor's paired differences; `comparisons` quantities share the false-alarm probability.

    Raises `ValueError` where there are fewer than `LEAST_FLOOR`, or they are not finite, or all the same: such a floor
    cannot judge anything.
    """
    if len(floor) < LEAST_FLOOR or not all(math.isfinite(difference) for difference in floor):
        raise ValueError(f"paired floor: {len(floor)} differences; at least {LEAST_FLOOR} finite ones are needed")
    spread = statistics.stdev(floor)
    if spread == 0.0:
        raise ValueError("paired floor: all differences are the same")
    quantile = float(stdtrit(len(floor) - 1, 1.0 - FALSE_ALARM_PROBABILITY / (2 * comparisons)))
    return abs(statistics.fmean(floor)) + quantile * spread * math.sqrt(1.0 + 1.0 / len(floor))


def two_one_sided_tests(differences: Sequence[float], delta: float) -> Equivalence:
    """Two one-sided tests and the plain difference test. Raises `ValueError` for fewer than two differences."""
    n = len(differences)
    if n < 2:
        raise ValueError("equivalence: at least two paired differences are needed")
    mean, sd = statistics.fmean(differences), statistics.stdev(differences)
    error = sd / math.sqrt(n)
    quantile = float(stdtrit(n - 1, 1.0 - TEST_LEVEL))
    return Equivalence(
        n=n,
        mean=mean,
        sd=sd,
        delta=delta,
        p_slower=float(stdtr(n - 1, _ratio(mean - delta, error))),
        p_faster=float(stdtr(n - 1, -_ratio(mean + delta, error))),
        p_difference=2.0 * float(stdtr(n - 1, -abs(_ratio(mean, error)))),
        value=(abs(mean) + quantile * error) / delta,
    )


def _ratio(difference: float, error: float) -> float:
    """`difference / error`, and its limit where every seed gave the same difference."""
    if error > 0.0:
        return difference / error
    return math.copysign(math.inf, difference) if difference else 0.0


def shortfall_margin(reference: Sequence[float], n: int, *, comparisons: int = 1) -> float:
    """How far below the mean of `reference` the mean of `n` more such values may lie, by the spread of `reference`.

    One-sided prediction limit for a mean of n: t(1 - alpha, m-1) * s_m * sqrt(1/n + 1/m) (Hahn and Meeker, section
    4.8), alpha the false-alarm probability over `comparisons`. Raises `ValueError` for fewer than two values.
    """
    if len(reference) < 2:
        raise ValueError("shortfall: at least two reference values are needed")
    m = len(reference)
    quantile = float(stdtrit(m - 1, 1.0 - FALSE_ALARM_PROBABILITY / comparisons))
    return quantile * statistics.stdev(reference) * math.sqrt(1.0 / n + 1.0 / m)
