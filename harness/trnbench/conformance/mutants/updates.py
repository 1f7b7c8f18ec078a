"""Optimizer steps, clipping and stochastic rounding that are broken on purpose, and correct ones in other orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.mutants.base import Mutant
from trnbench.conformance.operators.updates_adamw import adamw_fused, adamw_products
from trnbench.conformance.operators.updates_clipping import clip_flattened
from trnbench.conformance.operators.updates_optimizer import warm_up
from trnbench.conformance.operators.updates_rounding import random_bits, round_stochastically
from trnbench.conformance.operators.updates_small_steps import STEP_SIZE, STEPS
from trnbench.workloads.training import BETAS, CLIP_NORM, EPSILON, LEARNING_RATE, WEIGHT_DECAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.implementation import Implementation, Tensors


def _optimizer_step(
    *,
    algorithm: type[torch.optim.Adam] = torch.optim.AdamW,
    step_offset: int = 0,
    second_beta: float = BETAS[1],
    keep: torch.dtype = torch.float32,
) -> Callable[..., Tensors]:
    """A step of PyTorch's optimizer with other settings, its state put in place first."""

    def function(weight: Tensor, gradient: Tensor, mean: Tensor, variance: Tensor, step: Tensor) -> Tensors:
        parameter = weight.float().clone().requires_grad_()
        betas = (BETAS[0], second_beta)
        optimizer = algorithm([parameter], LEARNING_RATE, betas, EPSILON, WEIGHT_DECAY, foreach=False)
        state = {
            "step": torch.tensor(float(step) - 1.0 + step_offset),
            "exp_avg": mean.clone(),
            "exp_avg_sq": variance.clone(),
        }
        optimizer.state[parameter] = state
        parameter.grad = gradient.float().clone()
        optimizer.step()
        kept = [state[name].to(keep).float() for name in ("exp_avg", "exp_avg_sq")]
        if keep != torch.float32:
            first, second = 1.0 - BETAS[0] ** float(step), 1.0 - BETAS[1] ** float(step)
            update = kept[0] / first / ((kept[1] / second).sqrt() + EPSILON)
            moved = weight.float() * (1.0 - LEARNING_RATE * WEIGHT_DECAY) - LEARNING_RATE * update
            return moved.to(weight.dtype), kept[0], kept[1]
        return parameter.detach().to(weight.dtype), kept[0], kept[1]

    return function


def _uncorrected(weight: Tensor, gradient: Tensor, mean: Tensor, variance: Tensor, step: Tensor) -> Tensors:
    _, mean, variance = adamw_fused(weight, gradient, mean, variance, step)
    decayed = weight - LEARNING_RATE * WEIGHT_DECAY * weight
    return decayed - LEARNING_RATE * mean / (variance.sqrt() + EPSILON), mean, variance


def _epsilon_inside(weight: Tensor, gradient: Tensor, mean: Tensor, variance: Tensor, step: Tensor) -> Tensors:
    _, mean, variance = adamw_fused(weight, gradient, mean, variance, step)
    second = variance / (1.0 - BETAS[1] ** float(step))
    scale = torch.rsqrt(second + EPSILON) * (LEARNING_RATE / (1.0 - BETAS[0] ** float(step)))
    return weight - LEARNING_RATE * WEIGHT_DECAY * weight - scale * mean, mean, variance


def _first(function: Callable[..., Tensors]) -> Callable[..., Tensor]:
    return lambda *inputs: function(*inputs)[0]


def _late_warm_up(weight: Tensor, *gradients: Tensor) -> Tensor:
    parameter = weight.clone().requires_grad_()
    optimizer = torch.optim.AdamW([parameter], lr=0.0, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY)
    for step, gradient in enumerate(gradients):
        optimizer.param_groups[0]["lr"] = warm_up(step)
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


def _clip_each(*gradients: Tensor) -> Tensors:
    return tuple(clip_flattened(gradient)[0] for gradient in gradients)


def _clip_by_half_precision_norm(*gradients: Tensor) -> Tensors:
    squares = torch.stack([(gradient.half() * gradient.half()).sum(dtype=torch.float16) for gradient in gradients])
    factor = torch.clamp(CLIP_NORM / (squares.sum(dtype=torch.float16).sqrt().float() + 1e-6), max=1.0)
    return tuple((gradient.float() * factor).to(gradient.dtype) for gradient in gradients)


def _clip_without_epsilon(*gradients: Tensor) -> Tensors:
    flat = torch.cat([gradient.float().reshape(-1) for gradient in gradients])
    factor = torch.clamp(torch.rsqrt(flat.square().sum()) * CLIP_NORM, max=1.0)
    return tuple((gradient.float() * factor).to(gradient.dtype) for gradient in gradients)


def _swallowed(weight: Tensor, gradient: Tensor) -> Tensor:
    for _ in range(STEPS):
        weight = weight - (STEP_SIZE * gradient.float()).to(weight.dtype)
    return weight


def _to_nearest(weight: Tensor, gradient: Tensor, seed: Tensor) -> Tensor:
    return (weight.float() - STEP_SIZE * gradient.float()).to(torch.bfloat16)


def _same_mask(weight: Tensor, gradient: Tensor, seed: Tensor) -> Tensor:
    return round_stochastically(weight.float() - STEP_SIZE * gradient.float(), torch.zeros_like(seed))


def _always_up(values: Tensor, seed: Tensor) -> Tensor:
    moved = ((values.view(torch.int32) + 0xFFFF) >> 16 << 16).view(torch.float32)
    return torch.where(torch.isfinite(values), moved, values).to(torch.bfloat16)


def _few_bits(values: Tensor, seed: Tensor) -> Tensor:
    """Four random bits on top of twelve zeros."""
    few = random_bits(values.shape[0], seed) >> 12 << 12
    moved = ((values.view(torch.int32) + few) >> 16 << 16).view(torch.float32)
    return torch.where(torch.isfinite(values), moved, values).to(torch.bfloat16)


def _one_mask(values: Tensor, seed: Tensor) -> Tensor:
    return round_stochastically(values, torch.full_like(seed, 7))


def _by_comparison(values: Tensor, seed: Tensor) -> Tensor:
    """Up where the lost bits exceed a random number, as torchao writes it, with another generator."""
    generator = torch.Generator().manual_seed(int(seed))
    bits = values.view(torch.int32)
    random = torch.randint(0, 0x10000, bits.shape, generator=generator, dtype=torch.int32)
    inner = bits >> 16 << 16
    moved = torch.where(random < bits - inner, inner + 0x10000, inner).view(torch.float32)
    return torch.where(torch.isfinite(values), moved, values).to(torch.bfloat16)


def _mutant(name: str, operator: str, precision: str, function: Callable[..., object], *looks_like: str) -> Mutant:
    def make() -> Implementation:
        return HostImplementation(function)

    return Mutant(name=name, operator=operator, precision=precision, make=make, looks_like=looks_like)


ADAMW, NARROW, CLIP = "AdamW", "AdamW with 16-bit weights", "gradient norm clipping"
STATE = "optimizer state in bf16"

MUTANTS: list[Mutant] = [
    _mutant("AdamW state in bf16", ADAMW, "fp32", _optimizer_step(keep=torch.bfloat16), STATE),
    _mutant("AdamW without bias correction", ADAMW, "fp32", _uncorrected, "no bias correction"),
    _mutant("AdamW one step ahead", ADAMW, "fp32", _optimizer_step(step_offset=1), "bias correction off by one step"),
    _mutant(
        "Adam with L2",
        ADAMW,
        "fp32",
        _optimizer_step(algorithm=torch.optim.Adam),
        "weight decay added to the gradient",
    ),
    _mutant("AdamW with epsilon inside the root", ADAMW, "fp32", _epsilon_inside, "epsilon inside the root"),
    _mutant("AdamW with beta2 of 0.999", ADAMW, "fp32", _optimizer_step(second_beta=0.999), "beta2 of 0.999"),
    _mutant(
        "AdamW with beta2 of 0.99, bf16 weights",
        NARROW,
        "bf16",
        _first(_optimizer_step(second_beta=0.99)),
        "beta2 of 0.99",
    ),
    _mutant(
        "learning rate of the step before",
        "torch.optim.AdamW",
        "fp32",
        _late_warm_up,
        "learning rate off by one step",
    ),
    _mutant("clipping tensor by tensor", CLIP, "fp32", _clip_each, "clipped per tensor"),
    _mutant("clipping by an fp16 norm", CLIP, "fp16", _clip_by_half_precision_norm, "norm overflows in fp16"),
    _mutant("clipping without epsilon", CLIP, "fp32", _clip_without_epsilon, "clipped without epsilon"),
    _mutant("bf16 weights to nearest", "small steps with master weights", "bf16", _swallowed, "updates lost"),
    _mutant(
        "nearest in place of stochastic", "small steps with stochastic rounding", "bf16", _to_nearest, "updates lost"
    ),
    _mutant(
        "one mask for all steps",
        "small steps with stochastic rounding",
        "bf16",
        _same_mask,
        "the same random bits at every step",
    ),
    _mutant("rounding always up", "stochastic rounding", "bf16", _always_up, "always rounds up"),
    _mutant("four random bits", "stochastic rounding", "bf16", _few_bits, "too few random bits"),
    _mutant("one mask for all seeds", "stochastic rounding", "bf16", _one_mask, "the same random bits at every step"),
    _mutant("AdamW as products", ADAMW, "fp32", adamw_products),
    _mutant("AdamW by PyTorch's optimizer", ADAMW, "fp32", _optimizer_step()),
    _mutant("AdamW fused, bf16 weights", NARROW, "bf16", _first(adamw_fused)),
    _mutant("clipping over one flat tensor", CLIP, "bf16", clip_flattened),
    _mutant("stochastic rounding by comparison", "stochastic rounding", "bf16", _by_comparison),
]
