"""The score of a set of training runs: the olympic mean of their times.

Modelled on the rules of the MLPerf(R) Training benchmarks (training_rules.adoc, "Benchmark Results"): drop the fastest
and the slowest run, take the mean of the rest. A run that did not reach the target counts as the slowest, and as only
one is dropped, at most one may. There is one kind of time here, the measured one: the rules also know a time scaled by
a convergence factor, which this project never computes.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.records.schema import TrainingRun

LEAST_SCORED_RUNS = 3
"""Two are dropped, and something has to be left."""

SCORE_RULE = (
    "the fastest and the slowest run are dropped and the mean of the rest is the score; a run that did not converge "
    "counts as the slowest, and at most one may"
)


class QualityScore(msgspec.Struct, frozen=True, kw_only=True):
    """`seconds` is null where there is no score, and `reason` says why; `reason` is empty otherwise.

    `fastest` and `slowest` are the seeds that were dropped, null where there is no score.
    """

    seconds: float | None
    reason: str
    fastest: int | None = None
    slowest: int | None = None


def quality_score(runs: Sequence[TrainingRun]) -> QualityScore:
    """The olympic mean of the runs' seconds, from run_start to run_stop, or why there is none."""
    reason = _why_none(runs)
    if reason:
        return QualityScore(seconds=None, reason=reason)
    # Seeds differ, so that equal times have one order too.
    ordered = sorted(runs, key=lambda run: (not run.converged, run.seconds, run.seed))
    kept = [run.seconds for run in ordered[1:-1]]
    # Rounding may put the mean of equal times a last digit outside them.
    mean = min(max(statistics.fmean(kept), kept[0]), kept[-1])
    return QualityScore(seconds=mean, reason="", fastest=ordered[0].seed, slowest=ordered[-1].seed)


def _why_none(runs: Sequence[TrainingRun]) -> str:
    seeds = [run.seed for run in runs]
    for run in runs:
        reason = _why_not_this(run)
        # One run told twice, or two that are not independent.
        if seeds.count(run.seed) > 1:
            reason = f"is told {seeds.count(run.seed)} times; each run needs a seed of its own"
        if reason:
            return f"the run with seed {run.seed} {reason}"
    if len(runs) < LEAST_SCORED_RUNS:
        counted = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        return f"{counted}; a score needs at least {LEAST_SCORED_RUNS}, as the fastest and the slowest are dropped"
    missed = sum(not run.converged for run in runs)
    return f"{missed} of {len(runs)} runs did not reach the target; a score allows at most 1" if missed > 1 else ""


def _why_not_this(run: TrainingRun) -> str:
    bad = _not_finite(run)
    if bad:
        return f"has {bad}"
    if run.resumed_at:
        return f"was resumed after {run.resumed_at[0]} samples; its time is no score"
    if run.converged and not run.scored:
        return "is marked as not to be scored"
    if not (math.isfinite(run.seconds) and run.seconds > 0):
        return f"took {run.seconds} s; a time is a positive number"
    return ""


def _not_finite(run: TrainingRun) -> str:
    """The first loss that is not finite. None is skipped, not by any mean either."""
    for index, loss in enumerate(run.losses, 1):
        if not math.isfinite(loss):
            return f"a training loss of {loss} (value {index} of {len(run.losses)}, one every {run.loss_every} steps)"
    for evaluation in run.evaluations:
        if not math.isfinite(evaluation.loss):
            return f"an evaluation loss of {evaluation.loss} after {evaluation.samples} samples"
    return ""
