"""Element by element: subnormals, contraction into fused multiply-adds, excess precision, division and square root."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import generator
from trnbench.conformance.passport.instrument import Instrument, Reading, Readings, listed, number, single
from trnbench.conformance.passport.products import EVERY
from trnbench.conformance.passport.subject import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

LENGTH = 64
"""Elements of every vector: enough for the vector units, whose functions differ from the scalar ones."""

SUBNORMAL: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "copy": lambda tiny, least, one, logarithm: tiny.clone(),
    "times one": lambda tiny, least, one, logarithm: tiny * one,
    "plus zero": lambda tiny, least, one, logarithm: tiny + (one - one),
    "half of the least normal": lambda tiny, least, one, logarithm: least * 0.5,
    "sum of two": lambda tiny, least, one, logarithm: tiny + tiny,
    "times 16": lambda tiny, least, one, logarithm: tiny * 16.0,
    "greater than zero": lambda tiny, least, one, logarithm: (tiny > 0).to(torch.float32),
    "clamp": lambda tiny, least, one, logarithm: tiny.clamp(min=0),
    "abs": lambda tiny, least, one, logarithm: tiny.abs(),
    "sum over elements": lambda tiny, least, one, logarithm: tiny.sum()[None],
    "exp": lambda tiny, least, one, logarithm: torch.exp(logarithm),
}


def subnormals(subject: Subject, precision: str) -> Reading:
    """Which operators turn a subnormal into zero, taking it in or giving it out."""
    lost, details = flushed(subject, precision)
    verdict = f"flushes subnormals: {listed(lost)}" if lost else "gradual underflow"
    return Reading(verdict=verdict, details=details)


def flushed(subject: Subject, precision: str) -> tuple[list[str], dict[str, Scalar]]:
    """Names of operators that flush, and for every operator whether it keeps subnormals or why that is unknown."""
    dtype = STORAGE[precision]
    least = torch.finfo(dtype).tiny
    inputs = [
        torch.full((LENGTH,), value, dtype=torch.float64).to(dtype)
        for value in (least / 8.0, least, 1.0, math.log(least / 8.0))
    ]
    details: dict[str, Scalar] = {}
    for name, outcome in subject.ask_all(SUBNORMAL, *inputs).items():
        details[name] = outcome.reason if isinstance(outcome, Unknown) else bool((outcome[0] != 0).all())
    return [name for name, kept in details.items() if kept is False], details


def multiply_add(left: Tensor, right: Tensor, addend: Tensor) -> Tensor:
    """Two operators that a compiler may contract into one."""
    return left * right + addend


def addcmul(left: Tensor, right: Tensor, addend: Tensor) -> Tensor:
    """The same as one operator."""
    return torch.addcmul(addend, left, right)


def contraction(subject: Subject, precision: str) -> Reading:
    """x * x - round(x * x) is zero unless the product enters the addition unrounded."""
    value = torch.full((LENGTH,), 1.0 + 2.0**-12)
    minus = torch.full((LENGTH,), -(1.0 + 2.0**-11))
    outcomes = subject.ask_all({"x * y + z": multiply_add, "addcmul": addcmul}, value, value.clone(), minus)
    words = {True: "fused multiply-add", False: "multiplies, rounds, adds"}
    details = {
        name: outcome.reason if isinstance(outcome, Unknown) else words[bool((outcome[0] != 0).any())]
        for name, outcome in outcomes.items()
    }
    return Reading(verdict=str(details["x * y + z"]), details=dict(details))


def chain(wide: Tensor, one: Tensor, start: Tensor) -> Tensor:
    """(256 + 1) + 1 in bf16: 256 where each sum is rounded, 258 where the chain is carried in float32."""
    return (start + one) + one


def long_chain(wide: Tensor, one: Tensor, start: Tensor) -> Tensor:
    """One added 16 times."""
    value = start
    for _ in range(16):
        value = value + one
    return value


def through_bf16(wide: Tensor, one: Tensor, start: Tensor) -> Tensor:
    """Down to bf16 and back: a rounding that compilers take for nothing."""
    return wide.to(torch.bfloat16).to(torch.float32)


def through_fp16(wide: Tensor, one: Tensor, start: Tensor) -> Tensor:
    """Down to fp16 and back."""
    return wide.to(torch.float16).to(torch.float32)


def scaled_by_constant(wide: Tensor, one: Tensor, start: Tensor) -> Tensor:
    """A bf16 tensor over a Python constant, which must not be rounded to bf16 first (pytorch/xla issue 8372)."""
    return one / math.sqrt(128.0)


KEPT_ROUNDINGS = {
    "bf16 chain": (chain, 256.0),
    "long bf16 chain": (long_chain, 256.0),
    "float32 to bf16 and back": (through_bf16, 1.0),
    "float32 to fp16 and back": (through_fp16, 1.0),
    "bf16 over a constant": (scaled_by_constant, float(torch.tensor(1.0 / math.sqrt(128.0)).to(torch.bfloat16))),
}


def excess_precision(subject: Subject, precision: str) -> Readings:
    """Whether roundings that the program asks for take place: a compiler that drops them changes what it computes."""
    wide = torch.full((LENGTH,), 1.0 + 2.0**-20)
    one = torch.ones(LENGTH, dtype=torch.bfloat16)
    start = torch.full((LENGTH,), 256.0, dtype=torch.bfloat16)
    outcomes = subject.ask_all({name: function for name, (function, _) in KEPT_ROUNDINGS.items()}, wide, one, start)
    readings: dict[str, Reading | Unknown] = {}
    for name, outcome in outcomes.items():
        if isinstance(outcome, Unknown):
            readings[name] = outcome
            continue
        expected = KEPT_ROUNDINGS[name][1]
        got = float(outcome[0].double()[0])
        verdict = "rounded as written" if got == expected else "rounding left out"
        readings[name] = Reading(verdict=verdict, details={"returned": number(got), "rounded as written": expected})
    return readings


DIVISIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "division": lambda left, right: left / right,
    "division by a constant": lambda left, right: left / 10.0,
    "square root": lambda left, right: torch.sqrt(left),
    "reciprocal": lambda left, right: torch.reciprocal(left),
}
EXACT: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "division": lambda left, right: left / right,
    "division by a constant": lambda left, right: left / 10.0,
    "square root": lambda left, right: np.sqrt(left),
    "reciprocal": lambda left, right: 1.0 / left,
}


def correct_rounding(subject: Subject, precision: str) -> Readings:
    """Share of results that IEEE 754 would give: the exact value rounded once, for values in [1, 2) and [1, 4).

    Computed in float64 and rounded to float32, which gives the correctly rounded result of these operations (Figueroa,
    "When is double rounding innocuous?", 1995: 53 bits suffice for 24).
    """
    rng = generator("correct rounding", 0)
    left = (rng.random(65536) * 3.0 + 1.0).astype(np.float32)
    right = (rng.random(65536) + 1.0).astype(np.float32)
    outcomes = subject.ask_all(DIVISIONS, torch.from_numpy(left), torch.from_numpy(right))
    readings: dict[str, Reading | Unknown] = {}
    for name, outcome in outcomes.items():
        if isinstance(outcome, Unknown):
            readings[name] = outcome
            continue
        exact = EXACT[name](left.astype(np.float64), right.astype(np.float64)).astype(np.float32)
        wrong = int((outcome[0].numpy() != exact).sum())
        share = 100.0 * (1.0 - wrong / len(exact))
        verdict = "correctly rounded" if wrong == 0 else f"{share:.1f} % correctly rounded"
        readings[name] = Reading(verdict=verdict, details={"wrong": wrong, "tried": len(exact)})
    return readings


INSTRUMENTS: list[Instrument] = [
    single("elementwise", "subnormals", EVERY, subnormals),
    single("elementwise", "contraction", ("fp32",), contraction),
    Instrument(group="excess precision", names=tuple(KEPT_ROUNDINGS), precisions=("bf16",), measure=excess_precision),
    Instrument(group="correct rounding", names=tuple(DIVISIONS), precisions=("fp32",), measure=correct_rounding),
]
