"""Sums of integers: exact, in 64 bits, whatever the type of the terms (documentation of `torch.sum` and `cumsum`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.inputs import generator
from trnbench.conformance.operators import reductions_inputs as inputs_of
from trnbench.conformance.operators.base import ExactSample, Operator, Plan
from trnbench.conformance.operators.reductions_exact import cumulative_sums, sums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.random import Generator

SHAPE = (36, 288)

BEYOND_FLOAT32 = 2**24
"""From here on float32 holds even integers only, float64 from 2^53 on."""


def _integers(rng: Generator, low: int, high: int, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(rng.integers(low, high, SHAPE, dtype="int64")).to(dtype)


def _terms(seed: int) -> dict[str, Tensor]:
    """By name; the first also where only one shape and type is tried."""
    rng = generator("integers", seed)
    return {
        "int64 sums beyond 2^53": _integers(rng, 2**45, 2**46, torch.int64) | 1,
        "int64 sums beyond 2^24": _integers(rng, 0, 2**16, torch.int64),
        "int32 sums beyond 2^31": _integers(rng, 2**29, 2**30, torch.int32),
        "int32 sums beyond 2^24": _integers(rng, 0, 2**16, torch.int32),
        "int16 sums": _integers(rng, -(2**15), 2**15, torch.int16),
        "uint8 sums": _integers(rng, 0, 2**8, torch.uint8),
        "bool sums": _integers(rng, 0, 2, torch.bool),
    }


def _exact(function: Callable[[Tensor], tuple[Tensor, ...]]) -> Callable[[str, Plan], Iterator[ExactSample]]:
    """Integer arithmetic of the host, which is exact; signatures of sums through float32 and of wrapped ones."""

    def exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
        for name, x in _terms(plan.seeds[0]).items():
            if plan.shapes == "one" and x.dtype != torch.int64:
                continue
            expected = function(x.long())
            yield ExactSample(
                input=name,
                shape=inputs_of.words(x),
                inputs=(x,),
                expected=expected,
                signatures={
                    "integers wrap at 32 bits": tuple(one.int().long() for one in expected),
                    "integers saturate at 32 bits": tuple(one.clamp(-(2**31), 2**31 - 1) for one in expected),
                    "kept in the type of the terms": tuple(one.to(x.dtype) for one in expected),
                },
            )

    return exact


OPERATORS: list[Operator] = [
    Operator(name="sum of integers", family="reductions", function=sums, precisions=("fp32",), exact=_exact(sums)),
    Operator(
        name="cumsum of integers",
        family="reductions",
        function=cumulative_sums,
        precisions=("fp32",),
        exact=_exact(cumulative_sums),
    ),
]
