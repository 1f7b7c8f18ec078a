"""A hundred steps of 0.001 on bfloat16 weights of 1.0 (field case C7): they must arrive at 0.9, not stay at 1.0.

Half the distance from 1.0 down to the next bfloat16 is 0.00195, so rounding to nearest returns to 1.0 every time and
all updates are lost. Two ways out are checked: float32 master weights, rounded once at the end, and stochastic
rounding with fresh random bits in every step, which arrives on average.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.arithmetic import CONFIDENCE
from trnbench.conformance.inputs import make
from trnbench.conformance.operators.base import ExactSample, Finding, Operator, Plan, Sample
from trnbench.conformance.operators.updates_rounding import round_stochastically

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Implementation, Tensors

STEPS = 100
STEP_SIZE = 0.001
SIZE = 4096
LOST = "updates lost"


def with_master_weights(weight: Tensor, gradient: Tensor) -> Tensor:
    """bfloat16 weight [n] after `STEPS` steps of SGD on its float32 copy, rounded once."""
    master = weight.float()
    update = STEP_SIZE * gradient.float()
    for _ in range(STEPS):
        master = master - update
    return master.to(weight.dtype)


def with_stochastic_rounding(weight: Tensor, gradient: Tensor, seed: Tensor) -> Tensor:
    """One step without a copy: it ends in bfloat16, rounded at random under `seed` (int32 [1])."""
    return round_stochastically(weight.float() - STEP_SIZE * gradient.float(), seed)


def _samples(precision: str, plan: Plan) -> Iterator[Sample]:
    ones = torch.ones(SIZE, dtype=torch.bfloat16)
    yield Sample(input="weights of one", shape=f"{SIZE} weights", inputs=(ones, ones))
    for seed in plan.seeds:
        for name in ("gaussian", "wide range"):
            yield Sample(
                input=name,
                shape=f"{SIZE} weights",
                inputs=(ones, make(name, (SIZE,), torch.bfloat16, seed)),
                seed=seed,
            )


def _oracle(weight: Tensor, gradient: Tensor) -> Tensor:
    return weight.double() - STEPS * STEP_SIZE * gradient.double()


def _bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """The update carries 2 u (constant, product) from the start, and each of n differences rounds what is there.

    No partial result exceeds |w| + n |d| with d the update, so in any rounding

        |error| <= u_o (|y| + e) + e + tau,     e = 2 u n |d| + n u (|w| + n |d|) (1 + n u)

    Roundings of equal steps lean the same way, so no probabilistic growth is assumed.
    """
    weight, gradient = (tensor.double().abs() for tensor in inputs)
    unit = arithmetic.accumulator_unit
    moved = STEPS * STEP_SIZE * gradient
    error = 2.0 * unit * moved + STEPS * unit * (weight + moved) * (1.0 + STEPS * unit)
    return (arithmetic.output_unit * (_oracle(*inputs).abs() + error) + error + arithmetic.smallest,)


def _exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    ones = torch.ones(SIZE, dtype=torch.bfloat16)
    yield ExactSample(input="no gradient", shape=f"{SIZE} weights", inputs=(ones, ones * 0.0), expected=(ones,))


def _stochastic_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    for sample in _exact(precision, plan):
        yield ExactSample(
            input=sample.input,
            shape=sample.shape,
            inputs=(*sample.inputs, torch.tensor([1], dtype=torch.int32)),
            expected=sample.expected,
        )


def _arrives(implementation: Implementation, precision: str, plan: Plan, arithmetic: Arithmetic) -> Iterator[Finding]:
    """z-test of the mean weight against 0.9, with the spread of the weights themselves.

    Each step rounds to one of two neighbours with the exact mean, so all errors of a weight have mean zero; the mean
    of n independent weights of sample deviation s lies within 6 s / sqrt(n) of 0.9 but once in 5e8. Rounding the
    float32 difference itself leans by at most its unit in each step.
    """
    ones = torch.ones(SIZE, dtype=torch.bfloat16)
    target = 1.0 - STEPS * STEP_SIZE
    for seed in plan.seeds:
        weight = ones
        for step in range(STEPS):
            fresh = torch.tensor([seed * STEPS + step], dtype=torch.int32)
            weight = implementation.forward((weight, ones, fresh))[0]
        found = weight.double()
        mean, spread = float(found.mean()), float(found.std())
        limit = CONFIDENCE * spread / math.sqrt(SIZE) + 3 * STEPS * 2.0**-24
        # From 1.0 down to 0.5 neighbours are 2^-8 apart: n independent steps, each down with the same chance p, are
        # binomial, with a deviation of ulp sqrt(n p (1 - p)).
        ulp = 2.0**-8
        chance = STEP_SIZE / ulp
        usual = ulp * math.sqrt(STEPS * chance * (1.0 - chance))
        lost = bool((found == 1.0).all())
        related = "the same random bits at every step" if spread > 2.0 * usual else "biased rounding"
        ratio = abs(mean - target) / limit
        # A sample deviation of n values is known to 1 / sqrt(2 n) of itself.
        spread_ratio = abs(spread / usual - 1.0) / (CONFIDENCE / math.sqrt(2 * SIZE))
        for name, value in (("mean weight after small steps", ratio), ("spread after small steps", spread_ratio)):
            yield Finding(
                operator="small steps with stochastic rounding",
                direction="forward",
                input=name,
                tier="T3",
                verdict="pass" if value <= 1.0 else "fail",
                value=value,
                where=f"mean {mean:.5f}, {target:g} is right; deviation {spread:.4f}, usually {usual:.4f}; seed {seed}",
                looks_like="" if value <= 1.0 else (LOST if lost else related),
            )


SMALL_STEPS: list[Operator] = [
    Operator(
        name="small steps with master weights",
        family="updates",
        function=with_master_weights,
        precisions=("bf16",),
        samples=_samples,
        oracle=_oracle,
        bound=_bound,
        exact=_exact,
    ),
    Operator(
        name="small steps with stochastic rounding",
        family="updates",
        function=with_stochastic_rounding,
        precisions=("bf16",),
        exact=_stochastic_exact,
        statistics=_arrives,
    ),
]
