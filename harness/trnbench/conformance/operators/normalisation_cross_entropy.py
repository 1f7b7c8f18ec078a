"""Cross-entropy of each token against its class, over the vocabulary of a language model of today."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.operators.base import ExactSample, Gradient, Operator, Plan, Sample
from trnbench.conformance.operators.normalisation_inputs import (
    LOGITS,
    Shapes,
    make,
    targets,
    words,
)
from trnbench.conformance.operators.normalisation_softmax_bounds import (
    cross_entropy_bound,
    cross_entropy_gradient_bound,
)
from trnbench.conformance.operators.normalisation_softmax_permitted import CROSS_ENTROPY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from trnbench.conformance.implementation import Tensors

VOCABULARY = 128256
"""Llama 3's; a float16 sum of that many ones overflows."""

SHAPES = Shapes(
    main=(2, VOCABULARY),
    further=((16, 1000), (8, 77)),
    many=((1, 2), (64, 512), (3, 32003), (5, 50257)),
)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(logits, target, reduction="none")


def samples(precision: str, plan: Plan) -> Iterator[Sample]:
    """Every input of the plan, with a target and a cotangent for each row."""
    dtype = STORAGE[precision]
    for shape, seed, name in SHAPES.tried(plan, LOGITS):
        x = make(name, shape, dtype, seed)
        cotangent = make("gaussian", shape[:-1], dtype, seed, f"{name} cotangent")
        inputs = (x, targets(x, name, seed))
        yield Sample(input=name, shape=words(shape), inputs=inputs, cotangents=(cotangent,), seed=seed)


def oracle(logits: Tensor, target: Tensor) -> Tensor:
    """-log_softmax at the target, in float64: no cancellation, unlike the difference of two logits."""
    return -logits.double().log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)


def gradient(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """(p - onehot) g; at the target -(1 - p) comes from expm1, so that it does not cancel either."""
    logits, target = inputs
    log_probability = logits.double().log_softmax(-1)
    at = target.unsqueeze(-1)
    difference = log_probability.exp().scatter(-1, at, torch.expm1(log_probability.gather(-1, at)))
    return (difference * cotangents[0].double().unsqueeze(-1),)


def exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """Equal logits where 16 bits hide the logarithm's own error, and special values.

    The loss of a class with probability exp(-inf) = 0 is +inf; NaN anywhere makes the sum NaN.
    """
    dtype = STORAGE[precision]
    rows = SHAPES.main[:-1]
    target = torch.arange(rows[0]) + 7
    zeros = torch.zeros(SHAPES.main, dtype=dtype)
    if precision != "fp32":
        # Log-probabilities summed in 16 bits stop where a term of 1 no longer moves the sum.
        for name, x, count in (
            ("equal logits", zeros, VOCABULARY),
            ("4096 equal logits, the others -200", _beside(zeros, -200.0, 4096), 4096),
        ):
            yield ExactSample(
                input=name,
                shape=words(SHAPES.main),
                inputs=(x, target),
                expected=(torch.full(rows, math.log(count), dtype=dtype),),
                signatures={
                    "bf16 accumulator": (torch.full(rows, math.log(2.0**8), dtype=dtype),),
                    "fp16 accumulator": (torch.full(rows, math.log(2.0**11), dtype=dtype),),
                    "sum of exponentials overflowed in fp16": (torch.full(rows, math.inf, dtype=dtype),),
                },
            )
    forbidden = zeros.clone()
    forbidden.scatter_(-1, target.unsqueeze(-1), -math.inf)
    undefined = zeros.clone()
    undefined[:, 0] = math.nan
    for name, x, expected in (
        ("target logit -inf", forbidden, math.inf),
        ("one logit NaN", undefined, math.nan),
    ):
        yield ExactSample(
            input=name,
            shape=words(SHAPES.main),
            inputs=(x, target),
            expected=(torch.full(rows, expected, dtype=dtype),),
            special=True,
        )


def _beside(zeros: Tensor, value: float, count: int) -> Tensor:
    """`zeros` with all but the first `count` columns at `value`."""
    x = zeros.clone()
    x[:, count:] = value
    return x


OPERATORS: list[Operator] = [
    Operator(
        name="cross-entropy",
        family="normalisation",
        function=cross_entropy,
        samples=samples,
        oracle=oracle,
        bound=cross_entropy_bound,
        gradient=Gradient(wrt=(0,), oracle=gradient, bound=cross_entropy_gradient_bound),
        exact=exact,
        permitted=CROSS_ENTROPY,
    )
]
