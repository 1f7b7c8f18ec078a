"""Running the decoder once, on any device and by any implementation, and bringing what it computed to the host.

Everything comes back as float64 on the CPU, so that the comparison itself adds no error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from trnbench.workloads.data import IGNORED_TARGET, TokenBatch
from trnbench.workloads.decoder import Decoder
from trnbench.workloads.inference import decode_step, prefill_step
from trnbench.workloads.layers import Attention, wide
from trnbench.workloads.training import (
    accumulate_gradients,
    clip_gradients,
    loss_scale,
    make_optimizer,
    to_device,
)

Weights = dict[str, Tensor]
CompileFunction = Callable[[Callable[..., Any]], Callable[..., Any]]
Wait = Callable[[Sequence[Tensor]], None]


class TrainingResult(msgspec.Struct, frozen=True):
    """`loss` of the global batch; `logits` [real tokens, vocab_size]; gradients by parameter, before clipping."""

    loss: float
    logits: Tensor
    gradients: Weights


class OptimizerResult(msgspec.Struct, frozen=True):
    """What one optimizer step was given and what it left: float64 copies by parameter name."""

    before: Weights
    gradients: Weights
    after: Weights


class InferenceResult(msgspec.Struct, frozen=True):
    """`logits` [steps, B, vocab_size]: after the prompt first, then after each teacher-forced token."""

    logits: Tensor


def as_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """The compile function of implementations that run eagerly."""
    return function


def no_wait(outputs: Sequence[Tensor]) -> None:
    """The wait of the host, where outputs exist when a call returns."""


def decoder_with(
    preset: Any, weights: Weights, compute_dtype: torch.dtype, attention: Attention, positions: int
) -> Decoder:
    """A decoder on the CPU that holds `weights` in their own dtype."""
    dtype = next(iter(weights.values())).dtype
    model = Decoder(preset, compute_dtype, attention, parameter_dtype=dtype, positions=positions)
    load(model, weights)
    return model


def load(model: Decoder, weights: Weights) -> None:
    """Copy `weights` into the model, rounding to its parameter dtype; raises `KeyError` for a missing parameter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name].to(parameter.dtype).to(parameter.device))


def host_copy(tensors: dict[str, Tensor]) -> Weights:
    """float64 copies on the CPU. Narrow dtypes widen on the host: not every device knows float64."""
    return {name: tensor.detach().cpu().to(torch.float64, copy=True) for name, tensor in tensors.items()}


def train_once(
    model: Decoder, batch: TokenBatch, micro_batch: int, compile_function: CompileFunction = as_is, wait: Wait = no_wait
) -> TrainingResult:
    """Forward and backward over `batch`; leaves the gradients, still times the loss scale, on the model."""
    device = model.embedding.weight.device
    on_device = to_device(batch, micro_batch, device, wide(model.compute_dtype))
    logits: list[Tensor] = []

    def loss_and_logits(tokens: Tensor, targets: Tensor, real_tokens: Tensor) -> tuple[Tensor, Tensor]:
        outputs = model(tokens)
        total = torch.nn.functional.cross_entropy(
            outputs.flatten(0, 1), targets.flatten(), ignore_index=IGNORED_TARGET, reduction="sum"
        )
        return total / real_tokens, outputs

    compiled = compile_function(loss_and_logits)

    def loss_function(tokens: Tensor, targets: Tensor, real_tokens: Tensor) -> Tensor:
        loss: Tensor
        loss, outputs = compiled(tokens, targets, real_tokens)
        logits.append(outputs.detach())
        return loss

    model.zero_grad(set_to_none=True)
    loss = accumulate_gradients(loss_function, on_device, loss_scale(model))
    wait([loss, *logits, *(_gradient(parameter) for parameter in model.parameters())])
    real = torch.from_numpy(batch.targets).flatten() != IGNORED_TARGET
    host_logits = torch.cat([part.cpu().to(torch.float64).flatten(0, 1) for part in logits])
    return TrainingResult(
        loss=float(loss.cpu().to(torch.float64)), logits=host_logits[real], gradients=host_gradients(model)
    )


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        raise RuntimeError("a parameter took no part in the backward pass")
    return parameter.grad


def host_gradients(model: Decoder) -> Weights:
    """The gradients that the model holds, divided by its loss scale (a power of two: exact)."""
    gradients = host_copy({name: _gradient(parameter) for name, parameter in model.named_parameters()})
    return {name: gradient / loss_scale(model) for name, gradient in gradients.items()}


def optimize_once(model: Decoder, wait: Wait = no_wait) -> OptimizerResult:
    """Clip the gradients that `train_once` left and take the first AdamW step of a new optimizer."""
    optimizer = make_optimizer(model.parameters())
    before, gradients = host_copy(dict(model.named_parameters())), host_gradients(model)
    clip_gradients(list(model.parameters()), loss_scale(model))
    optimizer.step()
    wait([parameter.detach() for parameter in model.parameters()])
    return OptimizerResult(before=before, gradients=gradients, after=host_copy(dict(model.named_parameters())))


@torch.no_grad()
def infer_once(
    model: Decoder, batch: TokenBatch, steps: int, compile_function: CompileFunction = as_is, wait: Wait = no_wait
) -> InferenceResult:
    """Prefill the prompts of `batch`, then feed `steps` fixed tokens through the cache."""
    device = model.embedding.weight.device
    sequences, length = batch.tokens.shape
    cache = model.new_cache(sequences, length + steps)
    tokens, lengths = torch.from_numpy(batch.tokens).to(device), torch.from_numpy(batch.lengths).to(device)

    def run_prefill(tokens: Tensor, lengths: Tensor, first: Tensor, cache: Any) -> tuple[Tensor, Tensor]:
        return prefill_step(model, tokens, lengths, first, cache)

    def run_decode(tokens: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Tensor, Tensor]:
        return decode_step(model, tokens, positions, cache)

    _, logits = compile_function(run_prefill)(tokens, lengths, tokens[:, 0].clone(), cache)
    wait([logits])
    collected = [logits.cpu().to(torch.float64)]
    positions = lengths
    decode = compile_function(run_decode)
    for step in range(steps):
        # The same tokens for every implementation: teacher forcing keeps one flipped argmax from hiding the rest.
        forced = torch.from_numpy(batch.tokens[:, step % length].copy()).to(device)
        _, positions, logits = decode(forced, positions, cache)
        wait([logits])
        collected.append(logits.cpu().to(torch.float64))
    return InferenceResult(logits=torch.stack(collected))
