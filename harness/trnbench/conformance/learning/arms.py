"""Training one arm: the same few steps from every seed, with what is needed to judge it kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch

from trnbench.conformance.model.runs import CompileFunction, Wait, Weights, as_is, load, no_wait
from trnbench.workloads.data import TokenBatch, token_batch
from trnbench.workloads.initial import build_model, initial_values
from trnbench.workloads.layers import wide
from trnbench.workloads.presets import parameter_shapes
from trnbench.workloads.training import LEARNING_RATE, WEIGHT_DECAY, forward_loss, make_optimizer, to_device, train_step

if TYPE_CHECKING:
    from torch import Tensor

    from trnbench.conformance.learning.recipe import Recipe
    from trnbench.workloads.decoder import Decoder
    from trnbench.workloads.layers import Attention

BATCH_SEEDS = 10_000
"""Distance of the data seeds of two runs: more than any recipe has steps."""


class Run(msgspec.Struct, frozen=True):
    """One arm at one seed: the loss before each step, and for each parameter what training did to it.

    `unmoved` counts elements that hold after the last step exactly what they held before the first; `distance` is the
    2-norm of the change, `decay` what weight decay alone would have made of it.
    """

    losses: list[float]
    unmoved: dict[str, int]
    distance: dict[str, float]
    decay: dict[str, float]


class Trainer:
    """Trains a decoder of the recipe's preset from any of its seeds. Mutants override single methods.

    One model and one compiled function serve all seeds, so a compiling backend compiles once.
    """

    def __init__(
        self,
        recipe: Recipe,
        precision: str,
        device: torch.device | str = "cpu",
        compile_function: CompileFunction = as_is,
        wait: Wait = no_wait,
        *,
        attention: Attention = "fused",
    ) -> None:
        self.recipe, self.device, self.wait = recipe, torch.device(device), wait
        self.model = self.make_model(precision, attention)

        def loss_function(tokens: Tensor, targets: Tensor, real_tokens: Tensor) -> Tensor:
            return forward_loss(self.model, tokens, targets, real_tokens)

        self.loss_function = compile_function(loss_function)

    def make_model(self, precision: str, attention: Attention) -> Decoder:
        """A decoder with float32 masters."""
        preset, positions = self.recipe.preset, self.recipe.sequence
        return build_model(preset, precision, self.device, 0, attention=attention, positions=positions)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """The workload's own."""
        return make_optimizer(self.model.parameters())

    def initial(self, seed: int) -> Weights:
        """Initial weights of a seed, float32 on the host."""
        shapes = parameter_shapes(self.recipe.preset)
        return {name: torch.from_numpy(initial_values(name, shape, seed)) for name, shape in shapes.items()}

    def batch(self, seed: int, step: int) -> TokenBatch:
        """The sequences of one step, never seen before in this run."""
        recipe = self.recipe
        return token_batch(recipe.preset.vocab_size, recipe.batch, recipe.sequence, BATCH_SEEDS * (seed + 1) + step)

    def step(self, optimizer: torch.optim.Optimizer, seed: int, index: int) -> Tensor:
        """One optimizer step; the loss before it, on the device."""
        batch = to_device(self.batch(seed, index), self.recipe.batch, self.device, wide(self.model.compute_dtype))
        return train_step(self.model, optimizer, self.loss_function, batch)

    def train(self, seed: int) -> Run:
        """All steps from `seed`. The loss of every step is read, so that none that is not finite goes unseen."""
        load(self.model, self.initial(seed))
        before = _on_host(self.model)
        optimizer = self.make_optimizer()
        losses = []
        for index in range(self.recipe.steps):
            loss = self.step(optimizer, seed, index)
            self.wait([loss, *(parameter.detach() for parameter in self.model.parameters())])
            losses.append(float(loss.cpu().to(torch.float64)))
        after = _on_host(self.model)
        shrunk = 1.0 - (1.0 - LEARNING_RATE * WEIGHT_DECAY) ** self.recipe.steps
        return Run(
            losses=losses,
            unmoved={name: int((after[name] == value).sum()) for name, value in before.items()},
            distance={name: float((after[name] - value).norm()) for name, value in before.items()},
            decay={name: shrunk * float(value.norm()) for name, value in before.items()},
        )

    def train_all(self) -> list[Run]:
        """One run a seed, in the recipe's order."""
        return [self.train(seed) for seed in self.recipe.seeds]


def _on_host(model: Decoder) -> Weights:
    """float64 copies: every narrower dtype widens exactly, so equal stays equal."""
    return {name: value.detach().cpu().to(torch.float64, copy=True) for name, value in model.named_parameters()}
