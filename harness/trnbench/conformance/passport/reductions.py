"""How wide every reduction adds: 4096 equal terms, whose sum a narrow accumulator cannot reach.

A running sum of ones in p bits stops at 2^p, where one more is half of the last place and ties to even. What the
operator then returns is a constant that names the width. A narrow sum in pairs would show the right value: what is
found wide here is "not a narrow running sum".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

from trnbench.conformance.arithmetic import SIGNIFICANT_BITS, STORAGE
from trnbench.conformance.passport.instrument import Instrument, Reading, Readings, number
from trnbench.conformance.passport.products import SIXTEEN_BIT
from trnbench.conformance.passport.subject import Outcomes, Question, Unknown, why

if TYPE_CHECKING:
    from trnbench.conformance.passport.subject import Subject

TERMS = 4096
WIDTH = 64
EPSILON = 1e-5
LARGE = 60000.0
"""Two of it overflow fp16, their mean does not."""


class Reduction(msgspec.Struct, frozen=True, kw_only=True):
    """`result(count)` is what the operator returns where the sum of its ones is `count`: 4096 right, 2^p narrow."""

    name: str
    function: Callable[..., Tensor]
    result: Callable[[float], float]


def _ones(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def of(ones: Tensor, zeros: Tensor, signs: Tensor) -> Tensor:
        return function(ones)

    return of


def _zeros(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def of(ones: Tensor, zeros: Tensor, signs: Tensor) -> Tensor:
        return function(zeros)

    return of


def _layer_norm(ones: Tensor, zeros: Tensor, signs: Tensor) -> Tensor:
    return functional.layer_norm(signs, (TERMS,), eps=EPSILON).abs()


def _cross_entropy(ones: Tensor, zeros: Tensor, signs: Tensor) -> Tensor:
    return functional.cross_entropy(zeros, torch.zeros(zeros.shape[0], dtype=torch.long, device=zeros.device))


ROWWISE: list[Reduction] = [
    Reduction(name="sum", function=_ones(lambda x: x.sum(-1)), result=lambda count: count),
    Reduction(name="mean", function=_ones(lambda x: x.mean(-1)), result=lambda count: count / TERMS),
    Reduction(name="cumsum", function=_ones(lambda x: x.cumsum(-1)[..., -1]), result=lambda count: count),
    Reduction(name="vector norm", function=_ones(lambda x: x.norm(dim=-1)), result=math.sqrt),
    Reduction(name="softmax", function=_zeros(lambda x: x.softmax(-1)), result=lambda count: 1.0 / count),
    Reduction(name="logsumexp", function=_zeros(lambda x: x.logsumexp(-1)), result=math.log),
    Reduction(name="log_softmax", function=_zeros(lambda x: x.log_softmax(-1)), result=lambda count: -math.log(count)),
    Reduction(name="cross_entropy", function=_cross_entropy, result=math.log),
    Reduction(
        name="layer_norm",
        function=_layer_norm,
        result=lambda count: 1.0 / math.sqrt(count / TERMS + EPSILON),
    ),
    Reduction(
        name="rms_norm",
        function=_ones(lambda x: functional.rms_norm(x, (TERMS,), eps=EPSILON)),
        result=lambda count: 1.0 / math.sqrt(count / TERMS + EPSILON),
    ),
]


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Equal scores over 4096 keys."""
    return functional.scaled_dot_product_attention(query, key, value)


def index_add(table: Tensor, indices: Tensor, source: Tensor) -> Tensor:
    """All rows of `source` added to one row of the table."""
    return table.index_add(0, indices, source)[0]


def layers(indices: Tensor, table: Tensor, inputs: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """An embedding that looks one row up 4096 times, and a linear layer over 4096 equal rows."""
    return functional.embedding(indices, table), functional.linear(inputs, weight, bias)


LARGE_TERMS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean(-1),
    "sum that cancels": lambda x: torch.cat([x, -x[:, 1:]], dim=-1).sum(-1),
    "vector norm": lambda x: (x / 60.0).norm(dim=-1),
}


def accumulators(subject: Subject, precision: str) -> Readings:
    """A reading for every operator of `NAMES`."""
    dtype = STORAGE[precision]
    saturated = 2 ** SIGNIFICANT_BITS[precision]
    ones, zeros = torch.ones(4, TERMS, dtype=dtype), torch.zeros(4, TERMS, dtype=dtype)
    signs = ones.clone()
    signs[:, 1::2] = -1.0
    values = torch.zeros(1, 1, TERMS, WIDTH, dtype=dtype)
    values[:, :, :saturated] = 1.0
    everywhere = torch.zeros(TERMS, dtype=torch.long)
    outcomes: Outcomes = subject.ask(
        [Question(name=each.name, function=each.function, inputs=(ones, zeros, signs)) for each in ROWWISE]
    )
    outcomes |= subject.ask(
        [
            Question(
                name="attention",
                function=attention,
                inputs=(torch.zeros(1, 1, 4, WIDTH, dtype=dtype), torch.zeros(1, 1, TERMS, WIDTH, dtype=dtype), values),
            ),
            Question(
                name="index_add",
                function=index_add,
                inputs=(torch.zeros(2, WIDTH, dtype=dtype), everywhere, torch.ones(TERMS, WIDTH, dtype=dtype)),
            ),
        ]
    )
    outcomes |= _gradients(subject, dtype, everywhere)
    results = {each.name: each.result for each in ROWWISE}
    # A narrow sum of the weights stops at 2^p keys, all of which have value one.
    results["attention"] = lambda count: saturated / count
    return {
        name: outcome if isinstance(outcome, Unknown) else _reading(outcome[0], results.get(name, float), precision)
        for name, outcome in outcomes.items()
    }


def _gradients(subject: Subject, dtype: torch.dtype, indices: Tensor) -> Outcomes:
    """Gradients that add 4096 equal terms: one table row, a weight, a bias."""
    inputs = (
        indices,
        torch.zeros(2, WIDTH, dtype=dtype),
        torch.ones(TERMS, WIDTH, dtype=dtype),
        torch.ones(32, WIDTH, dtype=dtype),
        torch.zeros(32, dtype=dtype),
    )
    ones = (torch.ones(TERMS, WIDTH, dtype=dtype), torch.ones(TERMS, 32, dtype=dtype))
    wanted = {"embedding gradient": 1, "linear weight gradient": 3, "linear bias gradient": 4}
    try:
        found = subject.gradient(layers, inputs, ones, list(wanted.values()))
    except Exception as error:
        # As everywhere in a passport: what cannot be computed is reported with its reason.
        return dict.fromkeys(wanted, Unknown(why(error)))
    return {name: (gradient[0],) for name, gradient in zip(wanted, found, strict=True)}


def _reading(result: Tensor, expected: Callable[[float], float], precision: str) -> Reading:
    """The width whose constant this is, within two roundings of the output."""
    # Several elements share one answer; the one furthest from it tells the width.
    values = result.double().flatten()
    value = float(values[(values - expected(TERMS)).abs().nan_to_num(math.inf).argmax()])
    tolerance = 2.0 * 2.0 ** -SIGNIFICANT_BITS[precision]
    details = {"returned": number(value), "right": expected(TERMS)}

    def is_result_of(count: float) -> bool:
        return abs(value - expected(count)) <= tolerance * abs(expected(count))

    if is_result_of(TERMS):
        return Reading(verdict="wide", details=details)
    for bits in range(4, 12):
        if is_result_of(2.0**bits):
            return Reading(verdict=f"{bits}-bit accumulator", details=details)
    return Reading(verdict="neither right nor a narrow sum's constant", details=details)


def overflows(subject: Subject, precision: str) -> Readings:
    """fp16 sums that leave its range although the result lies in it: mean, cancelling sum, norm of large terms."""
    large = torch.full((4, WIDTH), LARGE, dtype=STORAGE[precision])
    outcomes = subject.ask_all(LARGE_TERMS, large)
    lost = [
        name
        for name, found in outcomes.items()
        if not isinstance(found, Unknown) and not bool(found[0].isfinite().all())
    ]
    details = {
        name: found.reason if isinstance(found, Unknown) else number(float(found[0].flatten()[0]))
        for name, found in outcomes.items()
    }
    verdict = f"overflow on the way: {', '.join(lost)}" if lost else "wider range than the format"
    return {"range of sums": Reading(verdict=verdict, details=details)}


NAMES = (
    *(each.name for each in ROWWISE),
    *("attention", "index_add", "embedding gradient", "linear weight gradient", "linear bias gradient"),
)

INSTRUMENTS: list[Instrument] = [
    Instrument(group="reduction accumulators", names=NAMES, precisions=SIXTEEN_BIT, measure=accumulators),
    Instrument(group="reduction accumulators", names=("range of sums",), precisions=("fp16",), measure=overflows),
]
