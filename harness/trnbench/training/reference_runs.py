"""Makes reference convergence points: the runs of a case on this CPU in fp32, from fixed seeds.

The loop here is as plain as it can be, without warm-up, checkpoints, logs and clock rules, so that it also tells
whether any of those changes what is learnt.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trnbench.backends.select import open_backend
from trnbench.case import Case, case_from
from trnbench.records.environment import collect
from trnbench.records.ids import utc_now
from trnbench.records.schema import Evaluation
from trnbench.status import UsageError
from trnbench.training.reference import POINTS_PER_RUN, Facts, Reference, make_reference
from trnbench.workloads.presets import preset
from trnbench.workloads.quality_version import quality_version
from trnbench.workloads.recipes import recipe_for, recipe_of
from trnbench.workloads.text import open_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.backends.base import Backend
    from trnbench.workloads.recipe import Recipe
    from trnbench.workloads.text import Data

FIRST_SEED = 1
"""Seeds count from here, so that anyone can make the same points. A result's runs draw theirs from 32 random bits."""


def reference_case(workload: str, phase: str, *, batch: int | None, sequence: int | None) -> Case:
    """The case in fp32, eager, at the recipe's own shape where none is given. Raises `UsageError` without a recipe."""
    recipe = recipe_of(workload, phase)
    batch = recipe.batch if batch is None else batch
    return case_from(
        {
            "suite": "training",
            "workload": workload,
            "phase": phase,
            "precision": "fp32",
            "mode": "eager",
            "tier": "smoke",
            "batch": batch,
            "micro_batch": recipe.micro_batch if batch == recipe.batch else batch,
            "sequence": recipe.sequence if sequence is None else sequence,
            "version": quality_version(workload, phase),
        }
    )


class Trained(NamedTuple):
    """One run: its target in nats per token, and its evaluations up to the one that reached it."""

    target: float
    evaluations: list[Evaluation]


def take_reference(
    case: Case, runs: int | None, *, threads: int, command: str, tell: Callable[[str], None]
) -> Reference:
    """Train twice as many runs as a result of `runs` has, the recipe's own number by default, and check the points.

    `tell` gets a sentence after each run. Raises `UsageError` where the points are no reference.
    """
    import torch

    recipe = recipe_for(case)
    count = POINTS_PER_RUN * (recipe.seeds if runs is None else runs)
    data = open_data(recipe.data, preset(case.workload), recipe)
    backend = open_backend("cpu")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    taken: dict[int, Trained] = {}
    try:
        with backend.numerics(case.precision):
            for seed in range(FIRST_SEED, FIRST_SEED + count):
                taken[seed] = train(case, recipe, data, backend, seed)
                tell(f"{len(taken)} of {count}: {_told(seed, taken[seed])}")
        environment = collect(backend.describe(), backend.versions(), backend.flags(), Path.cwd())
    finally:
        torch.set_num_threads(before)
    targets = {trained.target for trained in taken.values()}
    if len(targets) > 1:
        raise UsageError(f"reference points need one target; these runs have {sorted(targets)}")
    facts = Facts(
        target=targets.pop(),
        floor=data.floor,
        floor_reason=data.floor_reason if data.floor is None else "",
        threads=threads,
        made_at=utc_now(),
        command=command,
        learning=recipe.learning(),
    )
    return make_reference(case, {seed: trained.evaluations for seed, trained in taken.items()}, facts, environment)


def train(case: Case, recipe: Recipe, data: Data, backend: Backend, seed: int) -> Trained:
    """Train from `seed` until an evaluation reaches the target or samples are used up; seconds include everything."""
    from trnbench.workloads.quality import Learner

    start = time.perf_counter()
    learner = Learner(case, recipe, backend.device, backend.compile, backend.materialize, seed=seed)
    held_out = data.evaluation()
    evaluations: list[Evaluation] = []

    def evaluate(steps: int) -> float:
        loss = learner.evaluate(held_out)
        seconds = time.perf_counter() - start
        evaluations.append(Evaluation(samples=steps * recipe.batch, seconds=round(seconds, 3), loss=loss))
        return loss

    target = recipe.target(data, evaluate(0) if recipe.starts_with_evaluation else None)
    for step in range(recipe.max_steps):
        backend.materialize([learner.train(data.batch(seed, step))])
        due = (step + 1) % recipe.steps_between_evaluations == 0 or step + 1 == recipe.max_steps
        if due and evaluate(step + 1) <= target:
            break
    return Trained(target, evaluations)


def _told(seed: int, trained: Trained) -> str:
    last = trained.evaluations[-1]
    reached = "reached" if last.loss <= trained.target else "did not reach"
    return f"seed {seed} {reached} {trained.target:.4f} after {last.samples} samples in {last.seconds:.1f} s"
