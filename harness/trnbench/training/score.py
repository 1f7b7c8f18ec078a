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

from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.records.schema import TrainingRun

LEAST_RUNS = 3
"""Two are dropped, and something has to be left."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """`seconds` is null where there is no score, and `reason` says why; `reason` is empty otherwise.

    `fastest` and `slowest` are the seeds that were dropped, null where there is no score.
    """

    seconds: float | None
    reason: str
    fastest: int | None = None
    slowest: int | None = None


def score(runs: Sequence[TrainingRun]) -> Score:
    """The olympic mean of the runs' seconds, from run_start to run_stop.

    Raises `UsageError` where two runs share a seed: one run told twice, or two that are not independent.
    """
    seeds = [run.seed for run in runs]
    repeated = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if repeated:
        raise UsageError(
            f"a set of training runs has seed {repeated[0]} {seeds.count(repeated[0])} times; each run needs its own"
        )
    reason = _why_none(runs)
    if reason:
        return Score(seconds=None, reason=reason)
    # Seeds differ, so that equal times have one order too.
    ordered = sorted(runs, key=lambda run: (not run.converged, run.seconds, run.seed))
    kept = [run.seconds for run in ordered[1:-1]]
    # Rounding may put the mean of equal times a last digit outside them.
    mean = min(max(statistics.fmean(kept), kept[0]), kept[-1])
    return Score(seconds=mean, reason="", fastest=ordered[0].seed, slowest=ordered[-1].seed)


def _why_none(runs: Sequence[TrainingRun]) -> str:
    for run in runs:
        reason = _why_not_this(run)
        if reason:
            return f"the run with seed {run.seed} {reason}"
    if len(runs) < LEAST_RUNS:
        return f"{len(runs)} runs; a score needs at least {LEAST_RUNS}, as the fastest and the slowest are dropped"
    missed = [run.seed for run in runs if not run.converged]
    if len(missed) > 1:
        return f"{len(missed)} of {len(runs)} runs did not reach the target; a score allows at most 1"
    return ""


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
