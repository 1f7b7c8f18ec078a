"""One run of training to quality: model, optimizer and schedule from a seed; train, evaluate, save, resume.

Initial weights and data order depend on the seed; the evaluation set does not. Everything that a step computes is that
of `training`, and the device is only a place where tensors live. Lazy devices close a graph where the caller's
`materialize` waits, so the caller waits on what `train` returns before it does anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trnbench.status import UsageError
from trnbench.workloads.data import TokenBatch, token_batch
from trnbench.workloads.initial import build_model
from trnbench.workloads.layers import wide
from trnbench.workloads.lora import adapt
from trnbench.workloads.presets import preset
from trnbench.workloads.training import (
    GlobalBatch,
    LossFunction,
    accumulate_gradients,
    clip_gradients,
    forward_loss,
    loss_scale,
    to_device,
)
from trnbench.workloads.weights import SMOLLM2_PRESET, load_smollm2

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.workloads.decoder import Decoder
    from trnbench.workloads.presets import Preset
    from trnbench.workloads.program import Compile, Materialize
    from trnbench.workloads.recipe import Recipe

BASE_SEED = 0
"""Of the frozen weights under adapters where none are trained: the same model is tuned by every run."""

WARM_UP_STEPS = 3
"""On a lazy device the first step makes the optimizer's state, the second is the first that starts from it."""

_MOMENTS = ("exp_avg", "exp_avg_sq")


class Learner:
    """A model on `device` that is trained by `recipe` from `seed`.

    Raises `UsageError` where trained weights are asked for and not installed, and as `build_model` and `adapt` do.
    """

    def __init__(
        self,
        case: Case,
        recipe: Recipe,
        device: torch.device,
        compiler: Compile,
        materialize: Materialize,
        *,
        seed: int,
    ) -> None:
        self.recipe = recipe
        self.seed = seed
        self.steps = 0
        self._device = device
        self._materialize = materialize
        self._preset = preset(case.workload)
        self.model, self.parameters = build_learner(self._preset, recipe, case.precision, device, seed)
        self._loss_dtype = wide(self.model.compute_dtype)
        self._optimizer = torch.optim.AdamW(
            self.parameters,
            lr=recipe.rate(0),
            betas=recipe.betas,
            eps=recipe.epsilon,
            weight_decay=recipe.weight_decay,
            foreach=False,
            fused=False,
        )

        def loss_function(tokens: Tensor, targets: Tensor, real_tokens: Tensor) -> Tensor:
            return forward_loss(self.model, tokens, targets, real_tokens)

        self._loss_function: LossFunction = compiler(loss_function, case.mode)

    def train(self, batch: TokenBatch) -> Tensor:
        """One optimizer step; returns the loss before it, a scalar on the device that nothing has read yet."""
        return self._train(self._copy(batch))

    def evaluate(self, batch: TokenBatch) -> float:
        """Mean loss over `batch` in nats per real token, summed over its micro-batches in float64 on the host."""
        on_device = self._copy(batch)
        total = 0.0
        with torch.no_grad():
            for micro in on_device.micro_batches:
                share = self._loss_function(micro.tokens, micro.targets, on_device.real_tokens)
                # One graph for each micro-batch, however many the evaluation set has.
                self._materialize([share])
                total += float(share)
        return total

    def warm_up(self) -> None:
        """Run a few training steps and an evaluation on synthetic tokens, then put back every bit of the state.

        After it nothing is left to compile. The tokens are those of `data.token_batch`, none of which a run trains on.
        """
        if self.steps:
            raise UsageError("warm-up comes before the first step of a run")
        saved = [parameter.detach().cpu().clone() for parameter in self.parameters]
        recipe = self.recipe
        synthetic = token_batch(self._preset.vocab_size, recipe.batch, recipe.sequence, 0)
        for _ in range(WARM_UP_STEPS):
            self._materialize([self.train(synthetic)])
        self.evaluate(token_batch(self._preset.vocab_size, recipe.micro_batch, recipe.sequence, 1))
        self.steps = 0
        self._optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, value in zip(self.parameters, saved, strict=True):
                parameter.copy_(value.to(self._device))
                state = self._optimizer.state[parameter]
                for moment in _MOMENTS:
                    state[moment].zero_()
                state["step"].zero_()
        self._materialize(self._all_tensors())

    def state(self) -> dict[str, Any]:
        """All that is needed to go on: trained parameters, optimizer state and step, copied to the host.

        Frozen weights are left out: they come from the preset alone. Data need no state, being a function of the step.
        """
        moments = [
            {name: self._optimizer.state[parameter][name].detach().cpu().clone() for name in (*_MOMENTS, "step")}
            for parameter in self.parameters
            if self._optimizer.state[parameter]
        ]
        return {
            "seed": self.seed,
            "steps": self.steps,
            "parameters": [parameter.detach().cpu().clone() for parameter in self.parameters],
            "optimizer": moments,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where `state()` was taken. Raises `UsageError` where it is of another seed or another model."""
        if state["seed"] != self.seed:
            raise UsageError(f"the checkpoint is of seed {state['seed']}, the run of seed {self.seed}")
        shapes = [tuple(value.shape) for value in state["parameters"]]
        if shapes != [tuple(parameter.shape) for parameter in self.parameters]:
            raise UsageError(f"the checkpoint's parameters are not those of this run of {self._preset.name}")
        self.steps = state["steps"]
        self._optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, value in zip(self.parameters, state["parameters"], strict=True):
                parameter.copy_(value.to(self._device))
            for parameter, moments in zip(self.parameters, state["optimizer"], strict=bool(state["optimizer"])):
                own = self._optimizer.state[parameter]
                for name in _MOMENTS:
                    own[name] = moments[name].to(self._device, copy=True)
                # AdamW keeps its step count on the host, where reading it waits for nothing.
                own["step"] = moments["step"].clone()
        self._materialize(self._all_tensors())

    def _train(self, batch: GlobalBatch) -> Tensor:
        for group in self._optimizer.param_groups:
            group["lr"] = self.recipe.rate(self.steps)
        self._optimizer.zero_grad(set_to_none=True)
        scale = loss_scale(self.model)
        loss = accumulate_gradients(self._loss_function, batch, scale)
        clip_gradients(self.parameters, scale)
        self._optimizer.step()
        self.steps += 1
        return loss

    def _copy(self, batch: TokenBatch) -> GlobalBatch:
        return to_device(batch, self.recipe.micro_batch, self._device, self._loss_dtype)

    def _all_tensors(self) -> list[Tensor]:
        moments = [
            self._optimizer.state[p][name]
            for p in self.parameters
            for name in self._optimizer.state[p]
            if name in _MOMENTS
        ]
        return [*(parameter.detach() for parameter in self.parameters), *moments]


def build_learner(
    which: Preset, recipe: Recipe, precision: str, device: torch.device, seed: int
) -> tuple[Decoder, list[nn.Parameter]]:
    """The model of a run and the parameters that it trains.

    Without adapters all are trained, from initial weights of `seed`. With them the frozen weights lie in the compute
    dtype and are the trained ones or those of `BASE_SEED`; only the adapters' start depends on `seed`.
    """
    if not recipe.lora_rank:
        model = build_model(which, precision, device, seed, positions=recipe.sequence)
        return model, list(model.parameters())
    model = build_model(which, precision, device, BASE_SEED, inference=True, positions=recipe.sequence)
    if recipe.base == "trained":
        if which.name != SMOLLM2_PRESET:
            raise UsageError(f"there are no trained weights of {which.name} here; only of {SMOLLM2_PRESET}")
        load_smollm2(model)
    return model, adapt(model, recipe.lora_rank, recipe.lora_alpha, seed)
