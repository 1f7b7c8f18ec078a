"""Whether a set of runs learns as fast as the reference: not too fast, not too slowly.

A run that reaches its target in fewer samples than the same model in fp32 trains something else, however short its
time. The rules of the MLPerf(R) Training benchmarks therefore hold every result against reference convergence points
(training_rules.adoc, "Reference Convergence Points") with a one-sided two-sample test at p = 0.05, and reject what is
too fast. The second side, too slow, is this project's own: a precision that costs samples must show as well. So is the
level, `LEVEL`.

**The quantity** is the natural logarithm of the samples to the target, interpolated between evaluations. What makes a
run slower, be it an initialisation or a rounding, multiplies its samples, so on logarithms the spread does not depend
on the target and "20 % fewer samples" is a shift. Without interpolation every point is a multiple of the evaluation
interval: of references like that of `nano` 9 % would tie whole, and with a spread of 0 any difference is significant.
Both sides are evaluated on the same held-out sequences after the same numbers of samples, so what a straight line
between two evaluations misses of a curved one is missed on both.

**The limit** comes from the reference alone: one-sided, how far the mean of n more such runs may lie from the mean of
its m points, t(1 - LEVEL, m - 1) * s * sqrt(1/m + 1/n) (Hahn and Meeker, Statistical Intervals, 1991, section 4.8; the
test of the rules takes the reference's spread for both sides too). So it is known before a run starts, and no set of
runs widens it by scattering. Means take all runs: dropping two of three would leave one. A run that never reached its
target counts with the samples it was given, a lower bound; more than one such run fails "not slower" by itself, as the
rules accept one at most.

**Error rates** of each side for 3 runs, from at least a million simulated sets a number, each with a reference of its
own, with the spread that 6 points of `nano` have (s = 0.064), in per cent:

=============  ======  =========  ================  ================  ================
points, level  factor  no change  10 % fewer, more  20 % fewer, more  30 % fewer, more
=============  ======  =========  ================  ================  ================
6, 0.05        1.10    5.0        64, 57            99.4, 96.2        over 99.9, 99.9
6, 0.001       1.31    0.10       4.9, 3.7          39, 23            86, 55
16, 0.001      1.16    0.10       19, 14            93.8, 76.2        over 99.9, 99.0
=============  ======  =========  ================  ================  ================

`factor` is the limit where s came out true; "no change" are false alarms, the level itself. At 0.05 a check of every
run is wrong on one night in ten, on one side or the other; at 0.001 on one in 500, over all references that could have
been drawn. One that is kept errs at a rate of its own, on both sides together: with 16 points 0.02 % of the nights in
the middle of all references, and at most 0.9 % for 95 in 100 of them. Points buy power back: with 6 the stricter level
is blind to much of what the check is for. The tests repeat a part of this from loss curves to verdicts. The rules' own
test, which leaves out the extremes, allows a factor of 1.19 on the 6 points, and has no second side.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import msgspec
from scipy.special import stdtrit

from trnbench.records.schema import Check
from trnbench.status import UsageError
from trnbench.training.points import Point, samples_to_target
from trnbench.training.reference import Reference, find_reference

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trnbench.case import Case
    from trnbench.records.schema import TrainingRun, Verdict

NOT_FASTER = "learning/convergence: not faster than the reference"
NOT_SLOWER = "learning/convergence: not slower than the reference"
TOO_FAST, TOO_SLOW = "learns too fast", "learns too slowly"
METRIC = "shift of the mean log samples to target over what the reference's spread allows"

LEVEL = 0.001
"""Of each side. The rules' 0.05 is for a result that somebody chose to submit; a check that every run makes, night
after night, must raise fewer false alarms. More reference points buy back the power that this costs."""

MISSED_ALLOWED = 1
"""Runs of a set that may miss the target: the rules' own."""

SAME_TARGET = 1e-4
"""Relative difference of targets that are measured, and therefore rounded, on different devices."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a set of runs may need on average, as geometric means of samples to target."""

    fewest: float
    most: float


def allowed_shift(reference: Reference, runs: int) -> float:
    """How far the mean logarithm of `runs` runs may lie from the reference's, to either side."""
    points = len(reference.points)
    quantile = float(stdtrit(points - 1, 1.0 - LEVEL))
    return quantile * reference.spread * math.sqrt(1.0 / points + 1.0 / runs)


def limits(reference: Reference, runs: int) -> Limits:
    """The two limits in samples."""
    factor = math.exp(allowed_shift(reference, runs))
    return Limits(fewest=reference.typical / factor, most=reference.typical * factor)


def convergence_checks(case: Case, runs: Sequence[TrainingRun], folder: Path | None = None) -> list[Check]:
    """Two checks of `runs` against the reference points in `folder`; "not checked" and why where there are none.

    Precision and mode of the case do not matter, its version does: the reference is fp32 and everything is held
    against it. A file of points that is not valid is a reason as well: the runs cost more than the file.
    """
    if folder is None:
        return _not_checked("no folder of reference convergence points was given")
    try:
        reference = find_reference(folder, case)
    except UsageError as error:
        return _not_checked(str(error))
    if isinstance(reference, str):
        return _not_checked(reference)
    return judge(reference, runs)


def judge(reference: Reference, runs: Sequence[TrainingRun]) -> list[Check]:
    """The two checks against given points."""
    if not runs:
        return _not_checked("there are no runs")
    for run in runs:
        if not math.isclose(run.target, reference.target, rel_tol=SAME_TARGET):
            return _not_checked(
                f"the run with seed {run.seed} has target {run.target:.6g}, the reference {reference.target:.6g}"
            )
        if not run.evaluations:
            return _not_checked(f"the run with seed {run.seed} was never evaluated")
    for run in runs:
        for evaluation in run.evaluations:
            if not math.isfinite(evaluation.loss):
                where = f"first bad evaluation after {evaluation.samples} samples, of the run with seed {run.seed}"
                return [
                    _check(name, None, "non-finite", reference=reference, where=where)
                    for name in (NOT_FASTER, NOT_SLOWER)
                ]
    points = [samples_to_target(run.evaluations, run.target) for run in runs]
    return _compare(reference, points)


def _compare(reference: Reference, points: Sequence[Point]) -> list[Check]:
    mean = statistics.fmean(math.log(point.samples) for point in points)
    shift = mean - math.log(reference.typical)
    allowed = allowed_shift(reference, len(points))
    missed = sum(point.bound == "lower" for point in points)
    bounds = limits(reference, len(points))
    where = (
        f"{math.exp(mean):.0f} samples to target (geometric mean of {len(points)} runs), reference "
        f"{reference.typical:.0f}, allowed {bounds.fewest:.0f} to {bounds.most:.0f}"
    )
    if missed:
        where = f"{missed} of {len(points)} runs never reached the target and count with all they were given; {where}"
    faster, slower = max(0.0, -shift) / allowed, max(0.0, shift) / allowed
    slow = slower > 1.0 or missed > MISSED_ALLOWED
    return [
        _check(NOT_FASTER, faster, _verdict(faster > 1.0), reference=reference, where=where, looks_like=TOO_FAST),
        _check(NOT_SLOWER, slower, _verdict(slow), reference=reference, where=where, looks_like=TOO_SLOW),
    ]


def _check(
    name: str, value: float | None, verdict: Verdict, *, reference: Reference, where: str, looks_like: str = ""
) -> Check:
    torch = reference.versions.get("torch", "of unknown version")
    return Check(
        check=name,
        level="learning",
        metric=METRIC,
        value=value,
        limit=1.0,
        verdict=verdict,
        reference=(
            f"{len(reference.points)} runs in fp32 on a CPU, torch {torch}, {reference.made_at[:10]}: one-sided test "
            f"of two samples, p = {LEVEL}"
        ),
        where=where,
        looks_like=looks_like if verdict == "fail" else "",
    )


def _verdict(bad: bool) -> Verdict:
    return "fail" if bad else "pass"


def _not_checked(reason: str) -> list[Check]:
    return [
        Check(
            check=name,
            level="learning",
            metric="none: not judged",
            value=None,
            limit=None,
            verdict="not checked",
            reference="none",
            where=reason,
        )
        for name in (NOT_FASTER, NOT_SLOWER)
    ]
