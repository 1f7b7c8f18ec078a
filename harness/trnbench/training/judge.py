"""Whether a set of finished runs is a time to quality: what marks it invalid, and what a reader must be told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trnbench.records.quality_score import LEAST_SCORED_RUNS, quality_score
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trnbench.training.checkpoint import Finished

STRICT_INIT_MINUTES, INIT_MINUTES = 30, 240
"""Limits of the untimed part in the closed and the open division (training_rules.adoc): the second one binds here."""


def judge(finished: Mapping[int, Finished], notes: Sequence[str] = ()) -> tuple[Status, str]:
    """The status of these runs, by number, and why; the reason of an `OK` is a warning, or empty.

    `notes` are sentences about the state of an interrupted case, told in any case.
    """
    faults = [*_resumed(finished), *_not_warmed_up(finished), *_slow_starts(finished), *_missed(finished)]
    if faults:
        return Status.INVALID, "; ".join([*faults, *notes])
    runs = [one.run for one in finished.values()]
    missed = sum(not run.converged for run in runs)
    warnings = []
    if missed:
        warnings.append(f"{missed} of {len(runs)} runs did not reach the target and counts as the slowest")
    without = quality_score(runs).reason
    if without:
        warnings.append(f"no score: {without}")
    return Status.OK, "; ".join([*warnings, *_long_starts(finished), *notes])


def _resumed(finished: Mapping[int, Finished]) -> list[str]:
    return [
        f"resumed at {', '.join(map(str, one.run.resumed_at))} samples in run {number} (seed {one.run.seed}): its time "
        "is not a score; to start anew, run again without --resume"
        for number, one in finished.items()
        if one.run.resumed_at
    ]


def _not_warmed_up(finished: Mapping[int, Finished]) -> list[str]:
    """Compiles and fallbacks inside the timed part."""
    faults = []
    compiled = {number: one.round.compiles for number, one in finished.items() if one.round.compiles}
    if compiled:
        total = sum(compiled.values())
        faults.append(
            f"recompiled: {total} compiles in the timed part of {len(compiled)} of {len(finished)} runs, first in run "
            f"{min(compiled)}"
        )
    fallbacks: Counter[str] = Counter()
    for one in finished.values():
        fallbacks.update(one.fallbacks)
    if fallbacks:
        named = ", ".join(f"{operator} x{count}" for operator, count in sorted(fallbacks.items()))
        faults.append(f"operators ran on the host in the timed part: {named}")
    return faults


def _slow_starts(finished: Mapping[int, Finished]) -> list[str]:
    return [
        f"the initialisation of run {number} took {one.run.init_seconds / 60:.1f} min; at most {INIT_MINUTES} min are "
        "allowed"
        for number, one in finished.items()
        if one.run.init_seconds >= INIT_MINUTES * 60
    ]


def _long_starts(finished: Mapping[int, Finished]) -> list[str]:
    return [
        f"the initialisation of run {number} took {one.run.init_seconds / 60:.1f} min: above the closed division's "
        f"{STRICT_INIT_MINUTES} min, within the open one's {INIT_MINUTES}"
        for number, one in finished.items()
        if one.run.init_seconds >= STRICT_INIT_MINUTES * 60
    ]


def _missed(finished: Mapping[int, Finished]) -> list[str]:
    """One run may miss the target, where enough are left after dropping it with the fastest."""
    missed = sum(not one.run.converged for one in finished.values())
    allowed = 1 if len(finished) >= LEAST_SCORED_RUNS else 0
    return [f"did not reach the target: {missed} of {len(finished)} runs"] if missed > allowed else []
