"""One AdamW step as tensor code: float32 state, and weights of 32 or 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import make
from trnbench.conformance.operators.base import ExactSample, Finding, Operator, Plan, Sample
from trnbench.conformance.operators.updates_adamw_bound import Step, adamw_bound, adamw_exactly
from trnbench.workloads.training import BETAS, EPSILON, LEARNING_RATE, WEIGHT_DECAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Implementation, Tensors

SHAPES: dict[str, tuple[int, ...]] = {"one": (2048,), "several": (2048, 33), "all": (2048, 33, 1, 100_000)}
"""Elements."""

FIRST, LATE = 1.0, 1000.0
"""Steps that are tried: the first, where the state is zero and the correction all, and one where it is nearly none."""

NEAR_EPSILON = 2.0**-17
"""7.6e-6, beside an epsilon of 1e-5: there it matters where epsilon stands."""


def adamw(
    weight: Tensor, gradient: Tensor, mean: Tensor, variance: Tensor, step: Tensor, *, rate: float = LEARNING_RATE
) -> Tensors:
    """Weight, mean and variance after one step; weight and gradient [n] in any dtype, state [n] and step [1] float32.

    As torch.optim.AdamW with capturable=True, which keeps the step on the device.
    """
    wide, gradient = weight.float(), gradient.float()
    mean = mean + (1.0 - BETAS[0]) * (gradient - mean)
    variance = BETAS[1] * variance + (1.0 - BETAS[1]) * gradient * gradient
    corrections = 1.0 - BETAS[0] ** step, 1.0 - BETAS[1] ** step
    denominator = variance.sqrt() / corrections[1].sqrt() + EPSILON
    wide = wide * (1.0 - rate * WEIGHT_DECAY) - rate / corrections[0] * (mean / denominator)
    return wide.to(weight.dtype), mean, variance


def adamw_weight(weight: Tensor, gradient: Tensor, mean: Tensor, variance: Tensor, step: Tensor) -> Tensor:
    """The new weight alone, rounded once to the weight's dtype."""
    return adamw(weight, gradient, mean, variance, step)[0]


def adamw_products(weight: Tensor, gradient: Tensor, mean: Tensor, variance: Tensor, step: Tensor) -> Tensors:
    """The same with the mean as two products, the decay subtracted, and the corrections on mean and variance."""
    wide, gradient = weight.float(), gradient.float()
    mean = BETAS[0] * mean + (1.0 - BETAS[0]) * gradient
    variance = BETAS[1] * variance + (1.0 - BETAS[1]) * gradient.square()
    corrected = mean / (1.0 - BETAS[0] ** step), variance / (1.0 - BETAS[1] ** step)
    update = corrected[0] / (corrected[1].sqrt() + EPSILON)
    return (wide - LEARNING_RATE * WEIGHT_DECAY * wide - LEARNING_RATE * update).to(weight.dtype), mean, variance


def adamw_fused(weight: Tensor, gradient: Tensor, mean: Tensor, variance: Tensor, step: Tensor) -> Tensors:
    """The same with PyTorch's fused elementwise operators, as the optimizer itself calls them."""
    wide, gradient = weight.float(), gradient.float()
    mean = torch.lerp(mean, gradient, 1.0 - BETAS[0])
    variance = (variance * BETAS[1]).addcmul(gradient, gradient, value=1.0 - BETAS[1])
    first, second = 1.0 - BETAS[0] ** float(step), 1.0 - BETAS[1] ** float(step)
    denominator = (variance.sqrt() / second**0.5).add(EPSILON)
    wide = (wide * (1.0 - LEARNING_RATE * WEIGHT_DECAY)).addcdiv(mean, denominator, value=-LEARNING_RATE / first)
    return wide.to(weight.dtype), mean, variance


def _samples(precision: str, plan: Plan) -> Iterator[Sample]:
    dtype = STORAGE[precision]
    for size in SHAPES[plan.shapes]:
        for seed in plan.seeds:

            def values(name: str, part: str, wanted: torch.dtype, size: int = size, seed: int = seed) -> Tensor:
                return make(name, (size,), wanted, seed, part)

            weight = values("gaussian", "weight", dtype)
            normal = values("gaussian", "gradient", dtype)
            mean = 0.1 * values("gaussian", "mean", torch.float32)
            variance = values("gaussian", "variance", torch.float32).square() * 0.1
            zero, none = torch.zeros(size), torch.zeros(size, dtype=dtype)
            tried: dict[str, tuple[Tensor, Tensor, Tensor, Tensor, float]] = {
                "gaussian": (weight, normal, zero, zero, FIRST),
                "late step": (weight, normal, mean, variance, LATE),
                "weights of zero": (none, normal, mean, variance, LATE),
                "weights of zero, first step": (none, normal, zero, zero, FIRST),
                "gradients near epsilon": (none, normal * NEAR_EPSILON, zero, zero, FIRST),
                "small state and gradients": (
                    none,
                    normal * NEAR_EPSILON,
                    mean * NEAR_EPSILON,
                    variance * NEAR_EPSILON**2,
                    LATE,
                ),
                "no gradient": (weight, none, mean, variance, LATE),
                "wide range": (weight, values("wide range", "gradient", dtype), mean, variance, LATE),
                "huge": (weight, values("huge", "gradient", dtype), zero, zero, FIRST),
                "subnormal": (weight, values("subnormal", "gradient", dtype), zero, zero, FIRST),
            }
            for name, (*tensors, step) in tried.items():
                if plan.inputs and name not in plan.inputs:
                    continue
                yield Sample(
                    input=name,
                    shape=f"{size} weights, step {step:g}",
                    inputs=(*tensors, torch.tensor([step])),
                    seed=seed,
                )


def _exact_inputs(precision: str) -> dict[str, tuple[Tensors, Tensors]]:
    """Name -> inputs, and weight, mean and variance after the step: nothing moves nothing, and what is not finite."""
    dtype = STORAGE[precision]
    size = SHAPES["one"][0]
    zero = torch.zeros(size)
    none = zero.to(dtype)
    first = torch.tensor([FIRST])
    gradient = none.clone()
    gradient[0], gradient[1], gradient[2] = torch.nan, torch.inf, -torch.inf
    weight, mean, variance = none.clone(), zero.clone(), zero.clone()
    weight[:3] = torch.nan
    mean[:3] = gradient[:3].float()
    variance[:3] = gradient[:3].float().square()
    return {
        "nothing moves nothing": ((none, none, zero, zero, first), (none, zero, zero)),
        "gradients that are not finite": ((none, gradient, zero, zero, first), (weight, mean, variance)),
    }


def _exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    for name, (inputs, expected) in _exact_inputs(precision).items():
        yield ExactSample(
            input=name,
            shape=f"{inputs[0].numel()} weights",
            inputs=inputs,
            expected=expected if precision == "fp32" else expected[:1],
            special="finite" in name,
        )


def _oracle(weight: Tensor, gradient: Tensor, mean: Tensor, variance: Tensor, step: Tensor) -> Tensors:
    after = adamw_exactly(weight, gradient, mean, variance, float(step))
    return after.weight, after.mean, after.variance


def _bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """Of `adamw_bound` from exact inputs."""
    weight, gradient, mean, variance, step = inputs
    exact = torch.zeros(weight.shape, dtype=torch.float64)
    lost = _flushed_gradient(gradient, arithmetic)
    allowed = adamw_bound(
        Step(weight.double(), mean.double(), variance.double()),
        gradient,
        float(step),
        Step(exact, exact + lost, exact),
        arithmetic,
    )
    return allowed.weight, allowed.mean, allowed.variance


def _flushed_gradient(gradient: Tensor, arithmetic: Arithmetic) -> float:
    """What a flushed gradient may lose of the mean: a 16-bit format's least normal number is above float32's."""
    return torch.finfo(gradient.dtype).tiny if arithmetic.flushes_subnormals else 0.0


def _weight_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """`adamw_bound`, and one rounding to the weight's own dtype: u_o |w'| (1 + u) more, and its underflow."""
    allowed = _bound(inputs, arithmetic)[0]
    exact = _oracle(*inputs)[0].abs()
    return (allowed + arithmetic.output_unit * (exact + allowed) + arithmetic.smallest,)


def _lost_updates(
    implementation: Implementation, precision: str, plan: Plan, arithmetic: Arithmetic
) -> Iterator[Finding]:
    """How many 16-bit weights one late step leaves where they were: told, and judged by no limit.

    Rounding to nearest swallows an update below half the distance to the next number; what a training run does about
    it (float32 master weights, stochastic rounding) is its own choice, not this operator's (field case C7).
    """
    for sample in _samples(precision, Plan(seeds=plan.seeds[:1], shapes="one")):
        if sample.input != "late step":
            continue
        found = implementation.forward(sample.inputs)[0]
        stays = float((found == sample.inputs[0]).double().mean())
        yield Finding(
            operator="AdamW with 16-bit weights",
            direction="forward",
            input="updates lost",
            tier="T3",
            verdict="pass",
            value=None,
            where=f"not judged: {stays:.0%} of gaussian weights do not move in a step of {LEARNING_RATE:g}",
        )


ADAMW: list[Operator] = [
    Operator(
        name="AdamW",
        family="updates",
        function=adamw,
        precisions=("fp32",),
        samples=_samples,
        oracle=_oracle,
        bound=_bound,
        exact=_exact,
        permitted={"as products": adamw_products, "fused": adamw_fused},
    ),
    Operator(
        name="AdamW with 16-bit weights",
        family="updates",
        function=adamw_weight,
        precisions=("bf16", "fp16"),
        samples=_samples,
        oracle=lambda *inputs: _oracle(*inputs)[0],
        bound=_weight_bound,
        exact=_exact,
        permitted={
            "as products": lambda *inputs: adamw_products(*inputs)[0],
            "fused": lambda *inputs: adamw_fused(*inputs)[0],
        },
        statistics=_lost_updates,
    ),
]
