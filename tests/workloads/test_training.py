"""The training step: its loss, accumulation, clipping, and the same numbers as a loop written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional

from trnbench.case import Case
from trnbench.workloads import training
from trnbench.workloads.data import IGNORED_TARGET, token_batch
from trnbench.workloads.initial import build_model
from trnbench.workloads.training import (
    TrainProgram,
    accumulate_gradients,
    clip_gradients,
    forward_loss,
    loss_scale,
    make_optimizer,
    to_device,
    train_step,
)

if TYPE_CHECKING:
    from trnbench.workloads.presets import Preset

Make = Callable[..., Case]
CPU = torch.device("cpu")


def as_is(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    del mode
    return function


def stepped(preset: Preset, precision: str, micro_batch: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses of three optimizer steps over a global batch of 4, and the parameters after them."""
    model = build_model(preset, precision, "cpu", 0, positions=12)
    optimizer = make_optimizer(model.parameters())
    dtype = torch.float64 if precision == "fp64" else torch.float32
    losses = []
    for seed in range(3):
        batch = to_device(token_batch(preset.vocab_size, 4, 12, seed), micro_batch, "cpu", dtype)
        losses.append(train_step(model, optimizer, lambda *a: forward_loss(model, *a), batch).item())
    return losses, {name: parameter.detach() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("accumulation", [2, 4])
def test_accumulation_does_not_change_the_result(tiny: Preset, accumulation: int) -> None:
    """B8: one global batch in 1, 2 or 4 micro-batches of unequal real lengths is one optimizer step."""
    whole, weights = stepped(tiny, "fp64", 4)
    cut, cut_weights = stepped(tiny, "fp64", 4 // accumulation)
    assert cut == pytest.approx(whole, rel=1e-13)
    for name, weight in weights.items():
        # Adam divides by sqrt(v) + 1e-5, so a rounding of the gradient comes back up to 1e5 times larger.
        assert torch.allclose(cut_weights[name], weight, rtol=0, atol=1e-12), name


def test_accumulation_agrees_in_float32(tiny: Preset) -> None:
    """B8: to the rounding of the format."""
    assert stepped(tiny, "fp32", 1)[0] == pytest.approx(stepped(tiny, "fp32", 4)[0], rel=3e-6)


def test_loss_is_the_mean_over_real_tokens(tiny: Preset) -> None:
    model = build_model(tiny, "fp64", "cpu", 0, positions=12)
    made = token_batch(tiny.vocab_size, 4, 12, 7)
    assert made.real_tokens < made.padded_tokens
    log_p = model(torch.from_numpy(made.tokens)).log_softmax(-1)
    by_hand = [
        -log_p[row, position, made.targets[row, position]].item()
        for row in range(4)
        for position in range(made.lengths[row])
    ]
    batch = to_device(made, 2, "cpu", torch.float64)
    loss = accumulate_gradients(lambda *a: forward_loss(model, *a), batch)
    assert loss.item() == pytest.approx(sum(by_hand) / made.real_tokens, rel=1e-13)


def test_program_equals_a_plain_loop(tiny: Preset, make_case: Make) -> None:
    """A7: after n steps the loss is that of n plain steps from the same seed; nothing ran more often than asked."""
    case = make_case("train_step", batch=4, sequence=12)
    program = TrainProgram(case, tiny, CPU, as_is, seed=3)
    losses = []
    for _ in range(5):
        program.reset()
        losses.append(program.step()[0].item())

    model = build_model(tiny, "fp32", "cpu", 3, positions=12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.1)
    plain = []
    for step in range(5):
        made = token_batch(tiny.vocab_size, 4, 12, 3 + step)
        logits = model(torch.from_numpy(made.tokens)).flatten(0, 1)
        loss = functional.cross_entropy(logits, torch.from_numpy(made.targets).flatten(), ignore_index=IGNORED_TARGET)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        plain.append(loss.item())
    assert losses == pytest.approx(plain, rel=1e-6)
    for ours, theirs in zip(program.model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_training_learns(tiny: Preset, make_case: Make, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "LEARNING_RATE", 1e-2)
    case = make_case("train_step", batch=8, micro_batch=4, sequence=32, precision=precision)
    program = TrainProgram(case, tiny, CPU, as_is, seed=0)
    losses = [program.step()[0].item() for _ in range(60)]
    assert losses[0] == pytest.approx(torch.tensor(tiny.vocab_size).log().item(), abs=0.1)
    assert sum(losses[-5:]) / 5 < 0.75 * losses[0]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_wholly_padded_sequence_is_harmless(tiny: Preset, precision: str) -> None:
    """C3: a row without any real token leaves loss and gradients finite and contributes nothing."""
    model = build_model(tiny, precision, "cpu", 0, positions=6)
    tokens, targets = torch.arange(12).view(2, 6), torch.arange(12).view(2, 6) + 1
    targets[1] = IGNORED_TARGET
    both = forward_loss(model, tokens, targets, torch.tensor(6.0))
    both.backward()
    alone = forward_loss(model, tokens[:1], targets[:1], torch.tensor(6.0))
    assert both.item() == pytest.approx(alone.item(), rel=1e-6)
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def test_float16_is_scaled_and_the_scale_is_taken_out_again(tiny: Preset) -> None:
    half = build_model(tiny, "fp16", "cpu", 0, positions=12)
    assert loss_scale(half) == training.FP16_LOSS_SCALE
    assert loss_scale(build_model(tiny, "bf16", "cpu", 0, positions=12)) == 1.0
    batch = to_device(token_batch(tiny.vocab_size, 4, 12, 0), 4, "cpu", torch.float32)
    full = build_model(tiny, "fp32", "cpu", 0, positions=12)
    norms = []
    for model in (half, full):
        accumulate_gradients(lambda *a, model=model: forward_loss(model, *a), batch, loss_scale(model))
        norms.append(clip_gradients(list(model.parameters()), loss_scale(model)).item())
    assert norms[0] == pytest.approx(norms[1], rel=5e-3)


def test_clipping_limits_the_norm_and_leaves_small_gradients_alone() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))]
    for gradient, expected in (([[3.0, 0.0], [4.0]], 1.0), ([[0.3, 0.0], [0.4]], 0.5)):
        for parameter, value in zip(parameters, gradient, strict=True):
            parameter.grad = torch.tensor(value)
        norm = clip_gradients(parameters)
        assert norm.item() == pytest.approx(sum(v * v for row in gradient for v in row) ** 0.5)
        after = torch.cat([parameter.grad for parameter in parameters]).norm()
        assert after.item() == pytest.approx(expected, rel=1e-5)
