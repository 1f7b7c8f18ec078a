"""Derived numbers of trainings to quality, from the runs that a record holds. What scores them is in `records`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trnbench.records.quality_score import quality_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.records.schema import TrainingRun


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
