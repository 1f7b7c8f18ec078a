"""Ways in which optimizer steps, clipping and small updates go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.diagnosis.base import Hypothesis
from trnbench.conformance.operators.updates_clipping import CLIP_EPSILON
from trnbench.conformance.operators.updates_optimizer import warm_up
from trnbench.conformance.operators.updates_small_steps import LOST, STEP_SIZE, STEPS
from trnbench.workloads.training import BETAS, CLIP_NORM, EPSILON, LEARNING_RATE, WEIGHT_DECAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.implementation import Tensors


def _state_in_bfloat16(state: Tensor) -> Tensor:
    return state.float().to(torch.bfloat16).double()


def _step(
    inputs: Tensors,
    *,
    rate: float = LEARNING_RATE,
    betas: tuple[float, float] = BETAS,
    corrected_for: float | None = 0.0,
    coupled: bool = False,
    inside: bool = False,
    keep: Callable[[Tensor], Tensor] = lambda state: state,
) -> Tensors:
    """AdamW in float64, with one thing wrong.

    `corrected_for` is added to the step of the bias correction, None leaves it out; `coupled` adds the decay to the
    gradient, as Adam with L2 does; `inside` takes the root of variance plus epsilon; `keep` stores the state.
    """
    weight, gradient, mean, variance, step = (tensor.double() for tensor in inputs)
    if coupled:
        gradient = gradient + WEIGHT_DECAY * weight
    mean = keep(betas[0] * mean + (1.0 - betas[0]) * gradient)
    variance = keep(betas[1] * variance + (1.0 - betas[1]) * gradient.square())
    first = second = torch.ones(1, dtype=torch.float64)
    if corrected_for is not None:
        first, second = (1.0 - beta ** (step + corrected_for) for beta in betas)
    corrected = variance / second
    denominator = (corrected + EPSILON).sqrt() if inside else corrected.sqrt() + EPSILON
    decay = 0.0 if coupled else rate * WEIGHT_DECAY
    return weight * (1.0 - decay) - rate * (mean / first) / denominator, mean, variance


FAULTS: dict[str, Callable[[Tensors], Tensors]] = {
    "optimizer state in bf16": lambda inputs: _step(inputs, keep=_state_in_bfloat16),
    "no bias correction": lambda inputs: _step(inputs, corrected_for=None),
    "bias correction off by one step": lambda inputs: _step(inputs, corrected_for=1.0),
    "weight decay added to the gradient": lambda inputs: _step(inputs, coupled=True),
    "epsilon inside the root": lambda inputs: _step(inputs, inside=True),
    "beta2 of 0.999": lambda inputs: _step(inputs, betas=(BETAS[0], 0.999)),
    "beta2 of 0.99": lambda inputs: _step(inputs, betas=(BETAS[0], 0.99)),
}


def _hypothesis(name: str, outputs: int, fault: Callable[[Tensors], Tensors]) -> Hypothesis:
    return Hypothesis(name=name, emulate=lambda inputs, precision: fault(inputs)[:outputs])


def _warm_up_late(inputs: Tensors, precision: str) -> Tensors:
    """Every step with the learning rate of the one before it."""
    weight, *gradients = inputs
    state: Tensors = (weight, torch.zeros(weight.shape), torch.zeros(weight.shape))
    for step, gradient in enumerate(gradients, start=1):
        count = torch.tensor([float(step)])
        state = _step((state[0], gradient, state[1], state[2], count), rate=warm_up(step - 1))
    return state[:1]


def _scaled(inputs: Tensors, factors: list[Tensor]) -> Tensors:
    return tuple(gradient.double() * factor for gradient, factor in zip(inputs, factors, strict=True))


def _factor(norm: Tensor, epsilon: float = CLIP_EPSILON) -> Tensor:
    return torch.clamp(CLIP_NORM / (norm.double() + epsilon), max=1.0)


def _per_tensor(inputs: Tensors, precision: str) -> Tensors:
    return _scaled(inputs, [_factor(gradient.double().norm()) for gradient in inputs])


def _total(inputs: Tensors) -> Tensor:
    return torch.stack([gradient.double().square().sum() for gradient in inputs]).sum().sqrt()


def _without_epsilon(inputs: Tensors, precision: str) -> Tensors:
    return _scaled(inputs, [_factor(_total(inputs), 0.0)] * len(inputs))


def _norm_overflows(inputs: Tensors, precision: str) -> Tensors | None:
    """Squares summed in float16; only where that overflows is it told apart from a rounded norm."""
    squares = sum(float(gradient.double().square().sum()) for gradient in inputs)
    if squares < torch.finfo(torch.float16).max:
        return None
    return _scaled(inputs, [torch.zeros(())] * len(inputs))


def _updates_lost(inputs: Tensors, precision: str) -> Tensors:
    """Every step rounded to nearest in the weight's own format."""
    weight, gradient = inputs
    for _ in range(STEPS):
        weight = (weight.float() - STEP_SIZE * gradient.float()).to(STORAGE[precision])
    return (weight,)


CLIPPING = [
    Hypothesis(name="clipped per tensor", emulate=_per_tensor),
    Hypothesis(name="norm overflows in fp16", emulate=_norm_overflows),
    Hypothesis(name="clipped without epsilon", emulate=_without_epsilon),
]

HYPOTHESES: dict[str, list[Hypothesis]] = {
    "AdamW": [_hypothesis(name, 3, fault) for name, fault in FAULTS.items()],
    "AdamW with 16-bit weights": [_hypothesis(name, 1, fault) for name, fault in FAULTS.items()],
    "torch.optim.AdamW": [Hypothesis(name="learning rate off by one step", emulate=_warm_up_late)],
    "gradient norm clipping": CLIPPING,
    "torch.nn.utils.clip_grad_norm_": CLIPPING,
    "small steps with master weights": [Hypothesis(name=LOST, emulate=_updates_lost)],
}
