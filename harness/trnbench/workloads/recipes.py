"""The recipes: which models are trained to quality, and how. Values only; what they mean is in `recipe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.status import UsageError
from trnbench.workloads.recipe import Recipe

if TYPE_CHECKING:
    from trnbench.case import Case

_ALL = (
    Recipe(
        preset="nano",
        phase="pretrain",
        data="source",
        batch=16,
        micro_batch=16,
        sequence=32,
        symbols=16,
        tables=4,
        evaluation_sequences=64,
        evaluation_every=160,
        max_samples=4800,
        gap_share=0.5,
        learning_rate=1e-3,
        end_learning_rate=1e-4,
        warm_up_steps=10,
        decay_steps=1000,
        seeds=3,
    ),
    Recipe(
        preset="nano",
        phase="finetune_lora",
        data="source",
        batch=16,
        micro_batch=16,
        sequence=32,
        symbols=16,
        tables=4,
        evaluation_sequences=64,
        evaluation_every=160,
        max_samples=4800,
        improvement=1.0,
        learning_rate=1e-3,
        end_learning_rate=1e-4,
        warm_up_steps=10,
        decay_steps=1000,
        lora_rank=16,
        lora_alpha=32.0,
        seeds=3,
    ),
)

RECIPES: dict[tuple[str, str], Recipe] = {(recipe.preset, recipe.phase): recipe for recipe in _ALL}
"""By preset and phase."""


def recipe_of(workload: str, phase: str) -> Recipe:
    """The recipe of a preset in a phase, at its own batch and sequence. Raises `UsageError` naming those there are."""
    if (workload, phase) not in RECIPES:
        known = ", ".join(f"{name} {of}" for name, of in RECIPES)
        raise UsageError(f"there is no recipe for {workload} in phase {phase}; there are {known}")
    return RECIPES[workload, phase]


def recipe_for(case: Case) -> Recipe:
    """The recipe of a case's preset and phase, at the shape of the case. Raises `UsageError` as `Recipe.fit`."""
    return recipe_of(case.workload, case.phase).fit(case)
