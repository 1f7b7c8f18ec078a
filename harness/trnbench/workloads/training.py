"""The training step: forward, loss over real tokens, backward, accumulation, clipping, AdamW.

Hyperparameters are those of Llama 2 (arXiv:2307.09288, section 2.2 and table 1: AdamW with betas 0.9 and 0.95, eps
1e-5, weight decay 0.1, gradient clipping at 1.0, peak learning rate 3e-4 for 7B and 13B), without its schedule: a
benchmark step must cost the same at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from trnbench.workloads.data import IGNORED_TARGET, TokenBatch, token_batch
from trnbench.workloads.initial import build_model
from trnbench.workloads.layers import wide
from trnbench.workloads.program import Compile, Program, batch_items, fingerprint

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.workloads.decoder import Decoder
    from trnbench.workloads.presets import Preset

LEARNING_RATE = 3e-4
BETAS = (0.9, 0.95)
EPSILON = 1e-5
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0

FP16_LOSS_SCALE = 4096.0
"""Factor on the loss of fp16 training, divided out of the gradients before clipping.

float16 flushes below 6e-8, where most gradients of a mean over thousands of tokens lie; Micikevicius et al.
(arXiv:1710.03740, section 3.2) scale by 8 to 32 768. It is fixed because a dynamic one reads a flag back to the host
in each step; with it a gradient element overflows above 16, far over the clipping norm, and then the loss of the
next step is not finite and the case fails.
"""

PREPARED_BATCHES = 8
"""Batches that lie on the device before timing; steps take them in turn."""

LossFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(tokens [b, T], targets [b, T], real tokens of the global batch, scalar) -> this micro-batch's share of the loss."""


class MicroBatch(NamedTuple):
    """A slice of the global batch on the device: int64 [b, T] each."""

    tokens: Tensor
    targets: Tensor


class GlobalBatch(NamedTuple):
    """One optimizer step's data on the device; `real_tokens` is a scalar in the loss's dtype."""

    micro_batches: list[MicroBatch]
    real_tokens: Tensor


def loss_scale(model: Decoder) -> float:
    """Factor that keeps this model's gradients inside its compute dtype: 1 except for float16."""
    return FP16_LOSS_SCALE if model.compute_dtype == torch.float16 else 1.0


def forward_loss(model: Decoder, tokens: Tensor, targets: Tensor, real_tokens: Tensor) -> Tensor:
    """Cross-entropy summed over this micro-batch's real tokens, divided by those of the global batch.

    Summed over the micro-batches this is the mean over the global batch, however it is divided. Scalar in the wide
    dtype.
    """
    logits = model(tokens)
    total = functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED_TARGET, reduction="sum"
    )
    return total / real_tokens


def make_optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
    """AdamW, one operator at a time: the only implementation that every backend has."""
    return torch.optim.AdamW(
        parameters,
        lr=LEARNING_RATE,
        betas=BETAS,
        eps=EPSILON,
        weight_decay=WEIGHT_DECAY,
        foreach=False,
        fused=False,
    )


def accumulate_gradients(loss_function: LossFunction, batch: GlobalBatch, scale: float = 1.0) -> Tensor:
    """Forward and backward over every micro-batch; returns the loss of the global batch, detached.

    Gradients, times `scale`, are added to what the parameters hold.
    """
    losses = []
    for micro in batch.micro_batches:
        loss = loss_function(micro.tokens, micro.targets, batch.real_tokens)
        (loss * scale).backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
    return torch.stack(losses).sum()


def clip_gradients(parameters: Sequence[nn.Parameter], scale: float = 1.0) -> Tensor:
    """Divide gradients by `scale`, then shrink them to a total 2-norm of at most `CLIP_NORM`, all on the device.

    Returns the norm before clipping.
    """
    if scale != 1.0:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(1.0 / scale)
    return nn.utils.clip_grad_norm_(parameters, CLIP_NORM, error_if_nonfinite=False, foreach=False)


def train_step(
    model: Decoder, optimizer: torch.optim.Optimizer, loss_function: LossFunction, batch: GlobalBatch
) -> Tensor:
    """One optimizer step; returns the loss before it. Gradients are left in place for a caller to read."""
    optimizer.zero_grad(set_to_none=True)
    scale = loss_scale(model)
    loss = accumulate_gradients(loss_function, batch, scale)
    clip_gradients(list(model.parameters()), scale)
    optimizer.step()
    return loss


def to_device(batch: TokenBatch, micro_batch: int, device: torch.device | str, loss_dtype: torch.dtype) -> GlobalBatch:
    """Copy a batch to the device in slices of `micro_batch` sequences, all of the same shape."""
    tokens, targets = torch.from_numpy(batch.tokens), torch.from_numpy(batch.targets)
    return GlobalBatch(
        micro_batches=[
            MicroBatch(tokens[start : start + micro_batch].to(device), targets[start : start + micro_batch].to(device))
            for start in range(0, tokens.shape[0], micro_batch)
        ],
        real_tokens=torch.tensor(batch.real_tokens, dtype=loss_dtype).to(device),
    )


class TrainProgram(Program):
    """Each step trains on the next prepared batch, starting from the weights that the step before left."""

    def __init__(self, case: Case, preset: Preset, device: torch.device, compiler: Compile, seed: int) -> None:
        super().__init__(case, preset)
        self.model = build_model(preset, case.precision, device, seed, positions=case.sequence)
        self.optimizer = make_optimizer(self.model.parameters())
        self._batches = [
            token_batch(preset.vocab_size, case.batch, case.sequence, seed + index) for index in range(PREPARED_BATCHES)
        ]
        loss_dtype = wide(self.model.compute_dtype)
        self._on_device = [to_device(batch, case.micro_batch, device, loss_dtype) for batch in self._batches]

        def loss_function(tokens: Tensor, targets: Tensor, real_tokens: Tensor) -> Tensor:
            return forward_loss(self.model, tokens, targets, real_tokens)

        self._loss_function: LossFunction = compiler(loss_function, case.mode)
        self._steps = 0

    def reset(self) -> None:
        """Nothing to put back: training goes on."""

    def step(self) -> list[Tensor]:
        """Outputs: the global batch's loss, and the last parameter that the optimizer updated."""
        batch = self._on_device[self._steps % PREPARED_BATCHES]
        self._steps += 1
        loss = train_step(self.model, self.optimizer, self._loss_function, batch)
        return [loss, list(self.model.parameters())[-1].detach()]

    def items(self) -> dict[str, int]:
        return batch_items(self._batches[self._steps % PREPARED_BATCHES])

    def loss_like(self, outputs: Sequence[Tensor]) -> Tensor:
        return outputs[0]

    def state_fingerprint(self) -> str:
        """Over the norm weights: small, in every layer, and moved by every step."""
        return fingerprint(p for name, p in self.model.named_parameters() if name.endswith("norm.weight"))
