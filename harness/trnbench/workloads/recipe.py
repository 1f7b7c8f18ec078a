"""How a model is trained to a quality target: hyperparameters, schedule, evaluation points, and the target itself.

What a recipe must state follows the benchmark rules' entries llama31_8b and llama2_70b_lora: AdamW with a cosine
schedule after a linear warm-up, evaluation at fixed numbers of samples, a target on the evaluation loss.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

from trnbench.status import UsageError

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.device import Scalar
    from trnbench.workloads.text import Data

Base = Literal["seeded", "trained"]
"""Weights before training: drawn from the run's seed, or the installed trained ones."""

CLIP_NORM = 1.0
"""Total gradient norm above which gradients shrink: what `training.clip_gradients` does."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model's way to its target. Batches and lengths are in sequences and tokens, learning rates per step.

    Exactly one of three says what the target is, a mean evaluation loss in nats per token: `gap_share` x the gap from
    the evaluation set's Bayes floor to its bigram floor, above the Bayes floor; `improvement` below the loss before
    training; or `target_loss` itself.

    `symbols` and `tables` are those of the token source and mean nothing for a text. A `lora_rank` of 0 trains every
    parameter. `seeds` is how many runs make a score.
    """

    preset: str
    phase: str
    data: str
    batch: int
    micro_batch: int
    sequence: int
    symbols: int
    tables: int
    evaluation_sequences: int
    evaluation_every: int
    max_samples: int
    learning_rate: float
    end_learning_rate: float
    warm_up_steps: int
    decay_steps: int
    seeds: int
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-5
    weight_decay: float = 0.1
    base: Base = "seeded"
    lora_rank: int = 0
    lora_alpha: float = 0.0
    gap_share: float | None = None
    improvement: float | None = None
    target_loss: float | None = None

    def __post_init__(self) -> None:
        name = f"recipe {self.preset} {self.phase}"
        for field in ("batch", "micro_batch", "sequence", "evaluation_sequences", "evaluation_every", "max_samples"):
            if getattr(self, field) < 1:
                raise UsageError(f"{name}: {field} is {getattr(self, field)}; it must be at least 1")
        for field in ("batch", "evaluation_sequences"):
            if getattr(self, field) % self.micro_batch:
                # One shape of micro-batch for training and evaluation: a second would be a second graph.
                raise UsageError(
                    f"{name}: {field} is {getattr(self, field)}, no multiple of micro_batch {self.micro_batch}"
                )
        if sum(value is not None for value in (self.gap_share, self.improvement, self.target_loss)) != 1:
            raise UsageError(f"{name}: give exactly one of gap_share, improvement and target_loss")
        if not 0 < self.end_learning_rate <= self.learning_rate:
            raise UsageError(
                f"{name}: learning rates {self.learning_rate} to {self.end_learning_rate} must fall, above 0"
            )
        if not 0 <= self.warm_up_steps < self.decay_steps:
            raise UsageError(f"{name}: warm-up of {self.warm_up_steps} steps must end before step {self.decay_steps}")

    @property
    def steps_between_evaluations(self) -> int:
        """Optimizer steps from one evaluation to the next: `evaluation_every` samples, rounded up to whole batches."""
        return math.ceil(self.evaluation_every / self.batch)

    @property
    def max_steps(self) -> int:
        """Optimizer steps after which a run that has not reached its target ends: `max_samples` in whole batches."""
        return math.ceil(self.max_samples / self.batch)

    def rate(self, step: int) -> float:
        """Learning rate of step 0, 1, ...: linear over the warm-up, half a cosine until `decay_steps`, then flat."""
        if step < self.warm_up_steps:
            return self.learning_rate * (step + 1) / self.warm_up_steps
        passed = min(1.0, (step - self.warm_up_steps) / (self.decay_steps - self.warm_up_steps))
        span = self.learning_rate - self.end_learning_rate
        return self.end_learning_rate + span * 0.5 * (1 + math.cos(math.pi * passed))

    def fit(self, case: Case) -> Recipe:
        """This recipe at the batch, micro-batch and sequence of `case`. Raises `UsageError` where they do not fit.

        The learning rate stays: it was found for the recipe's own batch, and convergence at another one is the
        reader's to judge, as with reference convergence points of another batch size.
        """
        return msgspec.structs.replace(self, batch=case.batch, micro_batch=case.micro_batch, sequence=case.sequence)

    def target(self, data: Data, untuned: float | None = None) -> float:
        """Evaluation loss in nats per token at which a run has converged.

        `untuned` is the evaluation loss before the first step, needed where the target is an improvement. Raises
        `UsageError` where the data have no floor and the target is a distance above it.
        """
        if self.target_loss is not None:
            return self.target_loss
        if self.improvement is not None:
            if untuned is None:
                raise UsageError(f"recipe {self.preset} {self.phase}: the target needs the loss before training")
            return untuned - self.improvement
        if data.floor is None or data.bigram_floor is None or self.gap_share is None:
            raise UsageError(
                f"recipe {self.preset} {self.phase}: its target is a distance above the floor, but "
                f"{data.floor_reason}; give a target loss"
            )
        return data.floor + self.gap_share * (data.bigram_floor - data.floor)

    @property
    def starts_with_evaluation(self) -> bool:
        """Whether an evaluation before the first step is needed to know the target; it is on the clock."""
        return self.improvement is not None

    def learning(self) -> dict[str, Scalar]:
        """Hyperparameters by their keys in the rules' logs."""
        keys: dict[str, Scalar] = {
            "global_batch_size": self.batch,
            "micro_batch_size": self.micro_batch,
            "gradient_accumulation_steps": self.batch // self.micro_batch,
            "max_sequence_length": self.sequence,
            "max_steps": self.max_steps,
            "opt_name": "adamw",
            "opt_base_learning_rate": self.learning_rate,
            "opt_end_learning_rate": self.end_learning_rate,
            "opt_learning_rate_warmup_steps": self.warm_up_steps,
            "opt_learning_rate_decay_steps": self.decay_steps - self.warm_up_steps,
            "opt_learning_rate_decay_schedule": "cosine with linear warmup",
            "opt_adamw_beta_1": self.betas[0],
            "opt_adamw_beta_2": self.betas[1],
            "opt_adamw_epsilon": self.epsilon,
            "opt_adamw_weight_decay": self.weight_decay,
            "opt_gradient_clip_norm": CLIP_NORM,
        }
        if self.lora_rank:
            keys |= {"lora_rank": self.lora_rank, "lora_alpha": self.lora_alpha}
        return keys
