"""torch.optim.AdamW itself: three steps of a warm-up from fresh state, on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.inputs import make
from trnbench.conformance.operators.base import ExactSample, Operator, Plan, Sample
from trnbench.conformance.operators.updates_adamw import adamw
from trnbench.conformance.operators.updates_adamw_bound import Step, adamw_bound, adamw_exactly
from trnbench.workloads.training import BETAS, EPSILON, LEARNING_RATE, WEIGHT_DECAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors

STEPS = 3
SIZE = 2048


def warm_up(step: int) -> float:
    """Learning rate of a step, counted from 1: it rises in proportion to its full size in the last of `STEPS`."""
    return LEARNING_RATE * step / STEPS


def optimize(weight: Tensor, *gradients: Tensor) -> Tensor:
    """Weight [n] after one step for each gradient, by torch.optim.AdamW.

    A compiler that insists on one graph cannot trace the optimizer's Python state: it gets the same steps as tensors.
    """
    if torch.compiler.is_compiling():
        mean, variance = torch.zeros_like(weight), torch.zeros_like(weight)
        for step, gradient in enumerate(gradients, start=1):
            count = torch.full((1,), float(step), device=weight.device)
            weight, mean, variance = adamw(weight, gradient, mean, variance, count, rate=warm_up(step))
        return weight
    parameter = weight.detach().clone().requires_grad_()
    optimizer = torch.optim.AdamW(
        [parameter], lr=warm_up(1), betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, foreach=False
    )
    for step, gradient in enumerate(gradients, start=1):
        optimizer.param_groups[0]["lr"] = warm_up(step)
        parameter.grad = gradient.detach().clone()
        optimizer.step()
    return parameter.detach()


def _samples(precision: str, plan: Plan) -> Iterator[Sample]:
    for seed in plan.seeds:
        for name in ("gaussian", "wide range", "weights of zero", "gradients near epsilon"):
            generator = name if name == "wide range" else "gaussian"
            scale = 2.0**-17 if name == "gradients near epsilon" else 1.0
            weight = make("gaussian", (SIZE,), torch.float32, seed, "weight")
            gradients = [
                make(generator, (SIZE,), torch.float32, seed, f"gradient {step}") * scale for step in range(STEPS)
            ]
            yield Sample(
                input=name,
                shape=f"{SIZE} weights, {STEPS} steps",
                inputs=(weight if name in ("gaussian", "wide range") else torch.zeros(SIZE), *gradients),
                seed=seed,
            )


def _exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    zero = torch.zeros(SIZE)
    yield ExactSample(
        input="nothing moves nothing",
        shape=f"{SIZE} weights, {STEPS} steps",
        inputs=(zero,) * (STEPS + 1),
        expected=(zero,),
    )


def _oracle(weight: Tensor, *gradients: Tensor) -> Tensor:
    state = Step(weight.double(), torch.zeros(weight.shape).double(), torch.zeros(weight.shape).double())
    for step, gradient in enumerate(gradients, start=1):
        state = adamw_exactly(state.weight, gradient, state.mean, state.variance, step, rate=warm_up(step))
    return state.weight


def _bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """`adamw_bound` step after step: each takes the errors that the one before it left in weight and state."""
    weight, *gradients = inputs
    zero = torch.zeros(weight.shape, dtype=torch.float64)
    state, allowed = Step(weight.double(), zero, zero), Step(zero, zero, zero)
    for step, gradient in enumerate(gradients, start=1):
        allowed = adamw_bound(state, gradient, step, allowed, arithmetic, rate=warm_up(step))
        state = adamw_exactly(state.weight, gradient, state.mean, state.variance, step, rate=warm_up(step))
    return (allowed.weight,)


OPTIMIZER: list[Operator] = [
    Operator(
        name="torch.optim.AdamW",
        family="updates",
        function=optimize,
        precisions=("fp32",),
        samples=_samples,
        oracle=_oracle,
        bound=_bound,
        exact=_exact,
    )
]
