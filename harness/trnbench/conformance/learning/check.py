"""Learning conformance of one case: paired runs on the device against fp32 runs on the host, decided both ways."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from trnbench.conformance.learning import judge
from trnbench.conformance.learning.arms import Run, Trainer
from trnbench.conformance.learning.recipe import Recipe, choose_recipe
from trnbench.conformance.learning.reference import Reference, find_reference
from trnbench.conformance.learning.updates import UPDATES, updates_check
from trnbench.workloads.presets import parameter_shapes, preset

if TYPE_CHECKING:
    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.records.schema import Check


def check_learning(case: Case, backend: Backend) -> list[Check]:
    """Verdicts on how a slice of the case's preset learns on `backend`, in the case's precision and mode.

    Call it inside `backend.numerics(case.precision)`. Raises whatever the device raises; the caller maps it to a
    status.
    """
    recipe = choose_recipe(preset(case.workload))

    compile_function = functools.partial(backend.compile, mode=case.mode)
    runs = Trainer(recipe, case.precision, backend.device, compile_function, backend.materialize).train_all()
    return judge_runs(recipe, runs, find_reference(recipe, case.precision))


def judge_runs(recipe: Recipe, runs: list[Run], reference: Reference) -> list[Check]:
    """Judge one arm's runs, one a seed. Losses that are not finite are judged first, and then no other curve is."""
    scope = (
        f"{recipe.steps} steps of {recipe.batch} sequences of {recipe.sequence} tokens from {len(recipe.seeds)} "
        f"paired seeds, {recipe.words}"
    )
    compared_with = (
        f"fp32 on the host CPU, eager, paired by initial weights and data; floor of {len(reference.floor)} runs of "
        f"permitted implementations, arms {reference.digest}"
    )
    curves, fp32, floor = ([run.losses for run in arm] for arm in (runs, reference.fp32, reference.floor))
    finite = judge.finite_check(curves, scope=scope)
    if finite.verdict != "pass":
        reason = f"a loss is not finite ({finite.looks_like}), and no mean may skip it"
        return [
            finite,
            *(judge.not_checked(name, reason) for name in (judge.FALLS, judge.FINAL, judge.SAMPLES, UPDATES)),
        ]
    sizes = {name: math.prod(shape) for name, shape in parameter_shapes(recipe.preset).items()}
    words = {"compared_with": compared_with, "scope": scope}
    vocabulary = recipe.preset.vocab_size
    return [
        finite,
        judge.falls_check(curves, fp32, recipe.window, **words),
        judge.final_check(curves, fp32, floor, recipe.window, vocabulary=vocabulary, **words),
        judge.samples_check(curves, fp32, floor, recipe.window, recipe.batch, vocabulary=vocabulary, **words),
        updates_check(runs, reference.fp32, sizes, **words),
    ]
