"""The recipes: which models are trained to quality, and how. Values only; what they mean is in `recipe`.

The target of training from scratch is half-way from the bigram floor of the evaluation set to its Bayes floor. A model
that only counts pairs of tokens stops at the bigram floor, so half the gap can be closed by no other way than inferring
the hidden table from the context. Nearer to the Bayes floor the loss falls so slowly that the noise of the evaluation
would decide when a run is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.status import UsageError
from trnbench.workloads.recipe import Recipe

if TYPE_CHECKING:
    from trnbench.case import Case

_ALL = (
    # Found by trying on a CPU: six seeds are done after 80 or 90 steps, in fp32 as in bf16. One seed took as long at
    # 5e-4 and longer at 1e-3; shorter sequences need more steps.
    Recipe(
        preset="nano",
        phase="pretrain",
        data="source",
        batch=16,
        micro_batch=16,
        sequence=48,
        symbols=16,
        tables=4,
        evaluation_sequences=64,
        evaluation_every=160,
        max_samples=3200,
        gap_share=0.5,
        learning_rate=7e-4,
        end_learning_rate=7e-5,
        warm_up_steps=10,
        decay_steps=1000,
        seeds=3,
    ),
    # Tries the phase everywhere and measures little: behind a frozen random head that is tied to the embedding, what
    # can be learnt soon is which tokens the source uses, worth 1.2 of 8.3 nats; the target asks for nearly all of that.
    Recipe(
        preset="nano",
        phase="finetune_lora",
        data="source",
        batch=16,
        micro_batch=16,
        sequence=32,
        symbols=16,
        tables=4,
        evaluation_sequences=32,
        evaluation_every=48,
        max_samples=1600,
        improvement=1.15,
        learning_rate=2e-3,
        end_learning_rate=2e-4,
        warm_up_steps=5,
        decay_steps=1000,
        weight_decay=1e-4,
        lora_rank=16,
        lora_alpha=32.0,
        seeds=3,
    ),
    # The peak rate is that of Llama 3 8B (arXiv:2407.21783, table 3). Not tried yet: there was no device of this size.
    Recipe(
        preset="llama3.2-1b",
        phase="pretrain",
        data="source",
        batch=64,
        micro_batch=8,
        sequence=512,
        symbols=64,
        tables=8,
        evaluation_sequences=128,
        evaluation_every=1280,
        max_samples=64_000,
        gap_share=0.5,
        learning_rate=3e-4,
        end_learning_rate=3e-6,
        warm_up_steps=50,
        decay_steps=10_000,
        seeds=10,
    ),
    # Untuned, the held-out part of the shipped text costs 4.41 nats a token; two seeds were 1.2 below after 10 steps,
    # and the loss rises again after 20, when the model begins to know the text by heart.
    Recipe(
        preset="smollm2-135m",
        phase="finetune_lora",
        data="shipped",
        batch=8,
        micro_batch=8,
        sequence=64,
        symbols=0,
        tables=0,
        evaluation_sequences=8,
        evaluation_every=16,
        max_samples=400,
        improvement=1.2,
        learning_rate=1e-3,
        end_learning_rate=1e-4,
        warm_up_steps=5,
        decay_steps=1000,
        weight_decay=1e-4,
        base="trained",
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
