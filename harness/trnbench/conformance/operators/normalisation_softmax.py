"""Softmax, log-softmax and log-sum-exp along the last axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.operators.base import ExactSample, Gradient, Operator, Plan, Sample
from trnbench.conformance.operators.normalisation_inputs import (
    LOGITS,
    Shapes,
    make,
    words,
)
from trnbench.conformance.operators.normalisation_softmax_bounds import (
    log_softmax_bound,
    log_softmax_gradient_bound,
    logsumexp_bound,
    logsumexp_gradient_bound,
    softmax_bound,
    softmax_gradient_bound,
)
from trnbench.conformance.operators.normalisation_softmax_permitted import (
    LOG_SOFTMAX,
    LOGSUMEXP,
    SOFTMAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from trnbench.conformance.implementation import Tensors

COLUMNS = 4096
"""Of the main shape: 2^12 equal terms stop a sum in bfloat16 at 2^8 and one in float16 at 2^11."""

SHAPES = Shapes(
    main=(6, COLUMNS),
    further=((5, 1031), (2, 3, 33), (16, 128)),
    many=((1, 1), (7, 2), (64, 64), (3, 32771), (2, 4, 8, 2048)),
)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, dim=-1)


def logsumexp(x: Tensor) -> Tensor:
    return torch.logsumexp(x, dim=-1)


def _samples(reduced: bool) -> Callable[[str, Plan], Iterator[Sample]]:
    """Every input of the plan, with cotangents shaped as the output: one a row where it is `reduced`."""

    def samples(precision: str, plan: Plan) -> Iterator[Sample]:
        dtype = STORAGE[precision]
        for shape, seed, name in SHAPES.tried(plan, LOGITS):
            outputs = shape[:-1] if reduced else shape
            cotangent = make("gaussian", outputs, dtype, seed, f"{name} cotangent")
            x = make(name, shape, dtype, seed)
            yield Sample(input=name, shape=words(shape), inputs=(x,), cotangents=(cotangent,), seed=seed)

    return samples


def _softmax_gradient(inputs: Tensors, cotangents: Tensors) -> Tensors:
    p, g = torch.softmax(inputs[0].double(), dim=-1), cotangents[0].double()
    return (p * (g - (p * g).sum(-1, keepdim=True)),)


def _log_softmax_gradient(inputs: Tensors, cotangents: Tensors) -> Tensors:
    p, g = torch.softmax(inputs[0].double(), dim=-1), cotangents[0].double()
    return (g - p * g.sum(-1, keepdim=True),)


def _logsumexp_gradient(inputs: Tensors, cotangents: Tensors) -> Tensors:
    return (torch.softmax(inputs[0].double(), dim=-1) * cotangents[0].double().unsqueeze(-1),)


def _row(dtype: torch.dtype, fill: float, *first: float) -> Tensor:
    """A matrix of the main shape: `first` at the beginning of each row, `fill` elsewhere."""
    x = torch.full(SHAPES.main, fill, dtype=dtype)
    x[:, : len(first)] = torch.tensor(first, dtype=dtype)
    return x


def _like(x: Tensor, value: float) -> Tensors:
    return (torch.full_like(x, value),)


def _saturated(value: Callable[[float], Tensors]) -> dict[str, Tensors]:
    """What sums of 4096 equal terms in 16 bits give, `value` of where they stop.

    A sum stops at 2^p, p bits being all a format has: 2^p + 1 is a tie and goes back to the even 2^p.
    """
    return {"bf16 accumulator": value(2.0**8), "fp16 accumulator": value(2.0**11)}


def softmax_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """Equal logits, whose exponentials are all 1, and special values.

    With cotangents of 1 the gradient is p (1 - sum p) = 0, unless the sum stops early: at 2^8/4096 in bfloat16. A row
    with +inf or with nothing but -inf has inf - inf in its sum: NaN (IEEE 754, 7.2); beside finite logits -inf gives 0.
    """
    dtype = STORAGE[precision]
    shape = words(SHAPES.main)
    zeros = _row(dtype, 0.0)
    probability = 1.0 / COLUMNS
    ones = torch.ones_like(zeros)
    equal = _like(zeros, probability)
    yield ExactSample(
        input="4096 equal logits",
        shape=shape,
        inputs=(zeros,),
        expected=equal,
        cotangents=(ones,),
        gradients=_like(zeros, 0.0),
        signatures=_saturated(lambda stop: _like(zeros, 1.0 / stop)),
    )
    alternating = ones.clone()
    alternating[:, ::2] = -1.0
    yield ExactSample(
        input="4096 equal large logits",
        shape=shape,
        inputs=(_row(dtype, 120.0),),
        expected=equal,
        cotangents=(alternating,),
        gradients=(alternating * probability,),
        signatures={"softmax without maximum subtraction": _like(zeros, math.nan)},
    )
    quarter = _row(dtype, 0.0, *[0.25] * 4)
    for name, x, expected in (
        ("all but four logits -inf", _row(dtype, -math.inf, *[3.0] * 4), quarter),
        ("all logits -inf", _row(dtype, -math.inf), _row(dtype, math.nan)),
        ("one logit +inf", _row(dtype, 0.0, math.inf), _row(dtype, math.nan)),
        ("one logit NaN", _row(dtype, 0.0, math.nan), _row(dtype, math.nan)),
    ):
        yield ExactSample(input=name, shape=shape, inputs=(x,), expected=(expected,), special=True)


def log_softmax_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """Equal logits where 16 bits hide the logarithm's own error, and special values.

    The exact result -log(4096) is rounded once; it lies further from the next tie than any permitted float32 error.
    """
    dtype = STORAGE[precision]
    shape = words(SHAPES.main)
    zeros = _row(dtype, 0.0)
    if precision != "fp32":
        yield ExactSample(
            input="4096 equal logits",
            shape=shape,
            inputs=(zeros,),
            expected=_like(zeros, -math.log(COLUMNS)),
            signatures=_saturated(lambda stop: _like(zeros, -math.log(stop))),
        )
    two = _row(dtype, -math.inf, -math.inf, 5.0)
    for name, x, expected in (
        ("one finite logit", two, _row(dtype, -math.inf, -math.inf, 0.0)),
        ("all logits -inf", _row(dtype, -math.inf), _row(dtype, math.nan)),
        ("one logit NaN", _row(dtype, 0.0, math.nan), _row(dtype, math.nan)),
    ):
        yield ExactSample(input=name, shape=shape, inputs=(x,), expected=(expected,), special=True)


def logsumexp_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """As for log-softmax; PyTorch documents nothing for infinities, so these are limits: log sum exp of them.

    A sum of no more than exp(-inf) = 0 is 0, its logarithm -inf; exp(inf) outgrows every finite term.
    """
    dtype = STORAGE[precision]
    shape = words(SHAPES.main)
    zeros = _row(dtype, 0.0)
    rows = torch.zeros(SHAPES.main[:-1], dtype=dtype)
    if precision != "fp32":
        yield ExactSample(
            input="4096 equal logits",
            shape=shape,
            inputs=(zeros,),
            expected=_like(rows, math.log(COLUMNS)),
            signatures=_saturated(lambda stop: _like(rows, math.log(stop))),
        )
    for name, x, expected in (
        ("one finite logit", _row(dtype, -math.inf, -math.inf, 5.0), 5.0),
        ("all logits -inf", _row(dtype, -math.inf), -math.inf),
        ("one logit +inf", _row(dtype, 0.0, math.inf), math.inf),
        ("+inf and -inf", _row(dtype, 0.0, math.inf, -math.inf), math.inf),
        ("one logit NaN", _row(dtype, 0.0, math.nan), math.nan),
    ):
        yield ExactSample(input=name, shape=shape, inputs=(x,), expected=_like(rows, expected), special=True)


OPERATORS: list[Operator] = [
    Operator(
        name="softmax",
        family="normalisation",
        function=softmax,
        samples=_samples(reduced=False),
        oracle=lambda x: torch.softmax(x.double(), dim=-1),
        bound=softmax_bound,
        gradient=Gradient(wrt=(0,), oracle=_softmax_gradient, bound=softmax_gradient_bound),
        exact=softmax_exact,
        permitted=SOFTMAX,
    ),
    Operator(
        name="log-softmax",
        family="normalisation",
        function=log_softmax,
        samples=_samples(reduced=False),
        oracle=lambda x: torch.log_softmax(x.double(), dim=-1),
        bound=log_softmax_bound,
        gradient=Gradient(wrt=(0,), oracle=_log_softmax_gradient, bound=log_softmax_gradient_bound),
        exact=log_softmax_exact,
        permitted=LOG_SOFTMAX,
    ),
    Operator(
        name="logsumexp",
        family="normalisation",
        function=logsumexp,
        samples=_samples(reduced=True),
        oracle=lambda x: torch.logsumexp(x.double(), dim=-1),
        bound=logsumexp_bound,
        gradient=Gradient(wrt=(0,), oracle=_logsumexp_gradient, bound=logsumexp_gradient_bound),
        exact=logsumexp_exact,
        permitted=LOGSUMEXP,
    ),
]
