"""Derived numbers of trainings to quality, from the runs that a record holds.

Modelled on the rules of the MLPerf(R) Training benchmarks (training_rules.adoc, "Benchmark Results"): of the runs of a
set the fastest and the slowest are dropped, and the mean of the rest is the result. A run that did not reach the target
counts as the slowest; as only one is dropped, at most one may. A set with a resumed run has no result.
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
    """`seconds` is None where there is no score, and `reason` says why. `fastest` and `slowest` were dropped: seeds."""

    seconds: float | None
    reason: str = ""
    fastest: int | None = None
    slowest: int | None = None


def quality_score(runs: Sequence[TrainingRun]) -> QualityScore:
    """The olympic mean of the runs' seconds, or why there is none."""
    reason = _why_none(runs)
    if reason:
        return QualityScore(seconds=None, reason=reason)
    ordered = sorted(runs, key=lambda run: (not run.converged, run.seconds, run.seed))
    kept = [run.seconds for run in ordered[1:-1]]
    return QualityScore(seconds=statistics.fmean(kept), fastest=ordered[0].seed, slowest=ordered[-1].seed)


def training_values(runs: Sequence[TrainingRun]) -> dict[str, float]:
    """Every metric of a set of runs by name; empty without a score."""
    seconds = quality_score(runs).seconds
    if seconds is None:
        return {}
    return {"runs_to_quality_per_second": 1 / seconds, "seconds_to_quality": seconds}


def training_inconsistency(runs: Sequence[TrainingRun]) -> str | None:
    """Why the times or counts of the runs contradict each other, or None."""
    for run in runs:
        told = f"the run with seed {run.seed}"
        if not (math.isfinite(run.seconds) and run.seconds > 0):
            return f"{told} took {run.seconds} s"
        if min(run.samples, run.tokens) < 0:
            return f"{told} counts {min(run.samples, run.tokens)} samples or tokens"
        for evaluation in run.evaluations:
            if not 0 <= evaluation.samples <= run.samples:
                return f"{told} evaluated after {evaluation.samples} samples, but ended after {run.samples}"
    return None


def why_no_score(runs: Sequence[TrainingRun]) -> str:
    """Why a set of runs has no score; empty where it has one."""
    return quality_score(runs).reason


def _why_none(runs: Sequence[TrainingRun]) -> str:
    seeds = [run.seed for run in runs]
    for run in runs:
        problem = _why_unscored(run)
        if seeds.count(run.seed) > 1:
            problem = f"is told {seeds.count(run.seed)} times; each run needs a seed of its own"
        if problem:
            return f"the run with seed {run.seed} {problem}"
    if len(runs) < LEAST_SCORED_RUNS:
        counted = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        return f"{counted}; a score needs at least {LEAST_SCORED_RUNS}, as the fastest and the slowest are dropped"
    missed = sum(not run.converged for run in runs)
    return f"{missed} of {len(runs)} runs did not reach the target; a score allows at most 1" if missed > 1 else ""


def _why_unscored(run: TrainingRun) -> str:
    if not all(math.isfinite(loss) for loss in [*run.losses, *(one.loss for one in run.evaluations)]):
        return "has a loss that is not finite"
    if run.resumed_at:
        return f"was resumed after {run.resumed_at[0]} samples; its time is no score"
    return "is marked as not to be scored" if run.converged and not run.scored else ""
