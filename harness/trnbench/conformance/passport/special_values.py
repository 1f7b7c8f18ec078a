"""Infinities, NaN and signed zeros through every operator, beside what IEEE 754 and PyTorch's documents say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.passport.instrument import Instrument, Reading, listed, single
from trnbench.conformance.passport.products import EVERY
from trnbench.conformance.passport.subject import Question, Unknown

if TYPE_CHECKING:
    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

INF, NAN = math.inf, math.nan
REPEATS = 16
"""Elementwise cases fill whole vector registers, since vector and scalar code differ."""


class SpecialCase(msgspec.Struct, frozen=True, kw_only=True):
    """`expected` per output element; None where no document says what is right, so the value is only shown."""

    name: str
    function: Callable[..., Tensor]
    inputs: tuple[tuple[float, ...], ...]
    expected: tuple[float | None, ...]
    elementwise: bool = True


def _each(
    name: str, function: Callable[..., Tensor], values: tuple[float, ...], *expected: float | None
) -> SpecialCase:
    return SpecialCase(name=name, function=function, inputs=(values,), expected=expected)


def _whole(
    name: str, function: Callable[..., Tensor], values: tuple[float, ...], *expected: float | None
) -> SpecialCase:
    return SpecialCase(name=name, function=function, inputs=(values,), expected=expected, elementwise=False)


CASES: list[SpecialCase] = [
    _each("exp(-inf, inf, nan)", torch.exp, (-INF, INF, NAN), 0.0, INF, NAN),
    _each("log(0, -1, inf)", torch.log, (0.0, -1.0, INF), -INF, NAN, INF),
    _each("sqrt(-0, -1)", torch.sqrt, (-0.0, -1.0), -0.0, NAN),
    _each("rsqrt(0, -0, inf)", torch.rsqrt, (0.0, -0.0, INF), INF, -INF, 0.0),
    _each("reciprocal(0, -0)", torch.reciprocal, (0.0, -0.0), INF, -INF),
    _each("relu(nan, -inf)", torch.relu, (NAN, -INF), NAN, 0.0),
    _each("clamp(nan)", lambda x: x.clamp(0, 1), (NAN,), NAN),
    SpecialCase(name="maximum(1, nan)", function=torch.maximum, inputs=((1.0, NAN), (NAN, 1.0)), expected=(NAN, NAN)),
    SpecialCase(name="minimum(1, nan)", function=torch.minimum, inputs=((1.0, NAN), (NAN, 1.0)), expected=(NAN, NAN)),
    _each("gelu(inf)", functional.gelu, (INF,), INF),
    _each("gelu(-inf)", functional.gelu, (-INF,), None),
    _each("gelu tanh(inf)", lambda x: functional.gelu(x, approximate="tanh"), (INF,), INF),
    _each("silu(inf)", functional.silu, (INF,), INF),
    _each("silu(-inf)", functional.silu, (-INF,), None),
    _each("tanh(inf, -inf)", torch.tanh, (INF, -INF), 1.0, -1.0),
    _each("erf(inf, -inf)", torch.erf, (INF, -INF), 1.0, -1.0),
    _each("sigmoid(-1e4, inf)", torch.sigmoid, (-1e4, INF), 0.0, 1.0),
    _each("softplus(8192)", functional.softplus, (8192.0,), 8192.0),
    _each("pow(0, 0)", lambda x: x**0.0, (0.0,), 1.0),
    _each("sign(-inf, nan)", torch.sign, (-INF, NAN), -1.0, None),
    _each("round half to even", torch.round, (0.5, 1.5, 2.5, -0.5), 0.0, 2.0, 2.0, -0.0),
    _each("where(nan > 0)", lambda x: torch.where(x > 0, x, torch.zeros_like(x)), (NAN, 1.0), 0.0, 1.0),
    _whole("max(nan)", lambda x: x.max(), (1.0, NAN, 2.0), NAN),
    _whole("min(nan)", lambda x: x.min(), (1.0, NAN, 2.0), NAN),
    _whole("amax(nan)", lambda x: x.amax(-1), (1.0, NAN, 2.0), NAN),
    _whole("argmax(nan)", lambda x: x.argmax().float(), (1.0, NAN, 2.0), 1.0),
    _whole("argmax of ties", lambda x: x.argmax().float(), (1.0, 3.0, 3.0, 3.0), None),
    _whole("topk with nan", lambda x: x.topk(2)[0], (1.0, NAN, 2.0), NAN, 2.0),
    _whole("sort with nan", lambda x: x.sort()[0], (2.0, NAN, 1.0), 1.0, 2.0, NAN),
    _whole("sum(inf, -inf)", lambda x: x.sum(), (INF, -INF), NAN),
    _whole("softmax of -inf", lambda x: x.softmax(-1), (-INF, -INF, -INF), NAN, NAN, NAN),
    _whole("softmax(inf, 0)", lambda x: x.softmax(-1), (INF, 0.0, 0.0), NAN, NAN, NAN),
    _whole("softmax(1e4, 0)", lambda x: x.softmax(-1), (1e4, 0.0), 1.0, 0.0),
    _whole("logsumexp of -inf", lambda x: x.logsumexp(-1), (-INF, -INF), -INF),
    _whole("log_softmax(-inf, 0)", lambda x: x.log_softmax(-1), (-INF, 0.0), -INF, 0.0),
]
"""softmax of infinities is NaN by its definition, exp(x - max x), where inf - inf is NaN (IEEE 754-2019, 7.2)."""


def special_values(subject: Subject, precision: str) -> Reading:
    """Every case, as one graph where the device compiles; the verdict names those that deviate."""
    dtype = STORAGE[precision]
    questions = [
        Question(
            name=case.name,
            function=case.function,
            inputs=tuple(
                torch.tensor(values, dtype=torch.float64).repeat(REPEATS if case.elementwise else 1).to(dtype)
                for values in case.inputs
            ),
        )
        for case in CASES
    ]
    outcomes = subject.ask(questions)
    details: dict[str, Scalar] = {}
    deviating: list[str] = []
    for case in CASES:
        outcome = outcomes[case.name]
        if isinstance(outcome, Unknown):
            details[case.name] = outcome.reason
            continue
        right, details[case.name] = _compared(case, outcome[0])
        if not right:
            deviating.append(case.name)
    verdict = f"deviates: {listed(deviating)}" if deviating else "as documented"
    return Reading(verdict=verdict, details=details)


def _compared(case: SpecialCase, output: Tensor) -> tuple[bool, str]:
    """Whether every repetition is as expected, and the values in words."""
    table = output.double().reshape(-1, len(case.expected)).tolist()
    right = all(
        expected is None or _same(value, expected)
        for row in table
        for value, expected in zip(row, case.expected, strict=True)
    )
    rows = list(dict.fromkeys(listed(row) for row in table))
    return right, " or ".join(rows)


def _same(value: float, expected: float) -> bool:
    """Equal, NaN to NaN and zeros by sign."""
    if math.isnan(expected):
        return math.isnan(value)
    return value == expected and math.copysign(1.0, value) == math.copysign(1.0, expected)


INSTRUMENTS: list[Instrument] = [single("special values", "operators", EVERY, special_values)]
