"""What a run was, once it is over: whether its numbers agree, and how a record keeps it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from trnbench.records.schema import Memory, Round, TrainingRun
from trnbench.status import CaseError, Status
from trnbench.training.checkpoint import Finished
from trnbench.training.watch import check_time

if TYPE_CHECKING:
    from trnbench.device import Scalar
    from trnbench.training.run import Run
    from trnbench.workloads.text import Data

MOST_LOSSES = 200
"""Training losses that a record holds of a run."""


def finish(run: Run, timed: float) -> Finished:
    """The outcome of a run that was prepared and trained; `timed` is what pytest-benchmark measured, in seconds.

    Raises `CaseError` (`INVALID`) where the numbers do not belong to a training: the parameters did not change; steps,
    samples and the optimizer's own count do not agree; the time around the run is none, or below the time within it.
    """
    progress, backend = run.progress, run.setting.backend
    counted = backend.counters().since(run.before)
    check_steps(run)
    final_state = run.fingerprint()
    if final_state == progress.start_state:
        raise CaseError(
            Status.INVALID,
            f"the parameters are the same after {progress.steps} steps of {run.name} as before the first",
        )
    if not progress.resumed_at:
        check_time(timed, progress.seconds, run.name)
        progress.seconds = timed
    stored = as_stored(run, final_state)
    if stored is None:
        raise CaseError(Status.INVALID, f"{run.name} ended before its target was known")
    peak = backend.memory_peak()
    return Finished(
        identity=run.setting.identity,
        run=stored,
        round=Round(
            seconds=progress.seconds,
            items={"tokens": progress.tokens, "samples": progress.samples},
            compiles=counted.compiles,
            fallbacks=counted.fallback_total(),
            energy_joules=None,
        ),
        preparation=run.preparation,
        memory=Memory(peak_bytes=peak.peak_bytes, source=peak.source),
        fallbacks=counted.fallbacks,
        log=run.log,
    )


def check_steps(run: Run) -> None:
    """Refuse a run whose own count of steps, losses read and samples is not what its optimizer did."""
    progress, batch = run.progress, run.setting.recipe.batch
    counts = {progress.steps, len(progress.losses), run.learner.steps}
    if len(counts) > 1 or progress.samples != progress.steps * batch:
        raise CaseError(
            Status.INVALID,
            f"{run.name} recorded {progress.steps} steps and {progress.samples} samples in batches of {batch}, read "
            f"{len(progress.losses)} losses, and its optimizer made {run.learner.steps} steps; they must agree",
        )


def as_stored(run: Run, final_state: str | None = None) -> TrainingRun | None:
    """The run as a record keeps it, also one that broke; None where its target was never known.

    `final_state` is the fingerprint of the trained parameters.
    """
    if run.target is None:
        return None
    progress, setting = run.progress, run.setting
    learning: dict[str, Scalar] = {**setting.recipe.learning(), **_data_facts(setting.data)}
    learning |= {"checkpoints": progress.checkpoints, "checkpoint_seconds": progress.checkpoint_seconds}
    if final_state is not None:
        learning["final_parameters"] = final_state
    kept = thinned(progress.losses)
    return TrainingRun(
        seed=run.seed,
        converged=run.converged,
        scored=not (progress.resumed_at or run.failed),
        resumed_at=list(progress.resumed_at),
        samples=progress.samples,
        tokens=progress.tokens,
        seconds=progress.seconds,
        init_seconds=run.preparation.seconds,
        target=run.target,
        floor=setting.data.floor,
        evaluations=list(progress.evaluations),
        losses=kept.losses,
        loss_every=kept.every,
        learning=learning,
    )


class Thinned(NamedTuple):
    """One loss in every `every` steps, that of the first step included."""

    losses: list[float]
    every: int


def thinned(losses: list[float]) -> Thinned:
    """At most `MOST_LOSSES` of the losses of all steps, evenly apart."""
    every = max(1, math.ceil(len(losses) / MOST_LOSSES))
    return Thinned(losses[::every], every)


def _data_facts(data: Data) -> dict[str, Scalar]:
    """What the data are, under names that no hyperparameter has."""
    facts = data.describe()
    return {name if name == "data" else f"data_{name}": value for name, value in facts.items()}
