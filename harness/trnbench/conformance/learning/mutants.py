"""Trainers broken on purpose, each with the name that the checks must give it, and correct ones that must pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import torch

from trnbench.conformance.learning.arms import Trainer
from trnbench.conformance.learning.judge import FLAT, NOT_SHOWN, TOO_FAST, TOO_SLOW
from trnbench.conformance.learning.recipe import Recipe
from trnbench.conformance.learning.updates import FROZEN, LOST, NO_GRADIENT
from trnbench.workloads.training import LEARNING_RATE

if TYPE_CHECKING:
    from torch import Tensor

    from trnbench.workloads.data import TokenBatch
    from trnbench.workloads.decoder import Decoder
    from trnbench.workloads.layers import Attention

RATE_FACTOR = 1.3
LOST_LAYER = "layers.1.feed_forward."
BAD_STEPS = (2, 3)


class LearningMutant(msgspec.Struct, frozen=True):
    """`names`: what must be found among the `looks_like` of the failed checks; empty for a correct variant."""

    name: str
    make: Callable[[Recipe, str], Trainer]
    names: tuple[str, ...]


class FasterRate(Trainer):
    """The learning rate 1.3 times what was asked for."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        optimizer = super().make_optimizer()
        for group in optimizer.param_groups:
            group["lr"] = RATE_FACTOR * LEARNING_RATE
        return optimizer


class NarrowParameters(Trainer):
    """Parameters held in bfloat16, without masters: updates are rounded to nearest."""

    def make_model(self, precision: str, attention: Attention) -> Decoder:
        return super().make_model(precision, attention).to(torch.bfloat16)


class DroppedGradient(Trainer):
    """The gradient of one layer's feed-forward never arrives."""

    def make_model(self, precision: str, attention: Attention) -> Decoder:
        model = super().make_model(precision, attention)
        for name, parameter in model.named_parameters():
            if name.startswith(LOST_LAYER):
                parameter.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
        return model


class Frozen(Trainer):
    """The optimizer steps, and nothing moves."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        optimizer = super().make_optimizer()
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        return optimizer


class IntermittentNaN(Trainer):
    """The loss is NaN at some steps and comes back, as where a scaler skips them in silence."""

    def step(self, optimizer: torch.optim.Optimizer, seed: int, index: int) -> Tensor:
        loss = super().step(optimizer, seed, index)
        return loss * torch.nan if index + 1 in BAD_STEPS else loss


class ShiftedData(Trainer):
    """Every batch comes one step early."""

    def batch(self, seed: int, step: int) -> TokenBatch:
        return super().batch(seed, step + 1)


class WrongSign(Trainer):
    """Gradient ascent."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        optimizer = super().make_optimizer()
        for group in optimizer.param_groups:
            group["maximize"] = True
        return optimizer


class SlowerRate(Trainer):
    """The learning rate half of what was asked for."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        optimizer = super().make_optimizer()
        for group in optimizer.param_groups:
            group["lr"] = 0.5 * LEARNING_RATE
        return optimizer


LEARNING_MUTANTS: list[LearningMutant] = [
    LearningMutant("learning rate times 1.3", FasterRate, (TOO_FAST,)),
    LearningMutant("learning rate halved", SlowerRate, (TOO_SLOW,)),
    LearningMutant("bfloat16 parameters without masters", NarrowParameters, (LOST,)),
    LearningMutant("gradient of one feed-forward dropped", DroppedGradient, (TOO_SLOW, NO_GRADIENT)),
    LearningMutant("frozen weights", Frozen, (FLAT, FROZEN)),
    LearningMutant("gradient ascent", WrongSign, (FLAT,)),
    LearningMutant("loss NaN at steps 2 and 3", IntermittentNaN, ("NaN at step 2 that goes away",)),
    LearningMutant("data one step early", ShiftedData, (NOT_SHOWN,)),
]
"""Each must be caught and named, in every precision."""

CORRECT_VARIANTS: list[LearningMutant] = [
    LearningMutant("as is", Trainer, ()),
    LearningMutant("unfused attention", lambda recipe, precision: Trainer(recipe, precision, attention="unfused"), ()),
]
"""None may raise an alarm."""
