"""Integers: how many bits an int64 has, and whether indices, counts and divisions are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

from trnbench.conformance.passport.instrument import Instrument, Reading, listed, single
from trnbench.conformance.passport.subject import Question, Unknown

if TYPE_CHECKING:
    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

WIDTHS = (24, 31, 53, 62)
"""2^p + 1 survives in p + 1 bits: float32 loses the first, int32 the second, float64 the third."""

LONG = 2**24


class IntegerCase(msgspec.Struct, frozen=True, kw_only=True):
    """An exact computation: `inputs` as tensors, and the list of values that is right."""

    name: str
    function: Callable[..., Tensor]
    inputs: tuple[Any, ...]
    expected: list[float]


def _int64(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def _int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _fp32(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def plus_zero(values: Tensor, zero: Tensor) -> Tensor:
    """A sum that changes nothing."""
    return values + zero


def int64_width(subject: Subject, precision: str) -> Reading:
    """The widest 2^p + 1 that survives an addition of zero and, apart, a multiplication by three."""
    values = _int64(*[2**power + 1 for power in WIDTHS])
    got = subject.run(plus_zero, values, _int64(0))[0].tolist()
    details: dict[str, Scalar] = {
        f"2^{power} + 1": value == wanted for power, value, wanted in zip(WIDTHS, got, values.tolist(), strict=True)
    }
    survived = [value == wanted for value, wanted in zip(got, values.tolist(), strict=True)]
    names = {0: "float32: 24 bits", 1: "int32: 32 bits", 2: "float64: 53 bits", 3: "54 to 62 bits", 4: "64 bits"}
    count = survived.index(False) if False in survived else len(survived)
    # 2^24 + 1 survives in int32 and wider; 2^31 + 1 only beyond it.
    return Reading(verdict=names[count], details=details)


def cases() -> list[IntegerCase]:
    """Index arithmetic, sums beyond 2^24, divisions of negative numbers, and conversions."""
    late = torch.zeros(LONG + 5, dtype=torch.float32)
    late[LONG + 3] = 1.0

    def case(name: str, function: Callable[..., Tensor], expected: list[float], *inputs: Tensor) -> IntegerCase:
        return IntegerCase(name=name, function=function, inputs=inputs, expected=expected)

    return [
        case("int64 product", lambda x, y: x * y, [3037000499 * 3], _int64(3037000499), _int64(3)),
        case("int32 above 2^24", lambda x, y: x + y, [2**24 + 2], _int32(2**24 + 1), _int32(1)),
        case("int32 wraps", lambda x, y: x + y, [-(2**31)], _int32(2**31 - 1), _int32(1)),
        case("int64 sum", lambda x: x.sum(), [2**25 + 1], _int64(2**24 + 1, 2**24)),
        case("int32 sum", lambda x: x.sum(), [2**25 + 1], _int32(2**24, 2**24, 1)),
        case("int64 cumsum", lambda x: x.cumsum(0), [2**24, 2**24 + 1, 2**24 + 2], _int64(2**24, 1, 1)),
        case("cumsum of a range", lambda x: x.cumsum(0), [0, 1, 3, 6, 10, 15, 21, 28, 36, 45], torch.arange(10)),
        case("int64 index", lambda x, i: x[i], [5] * 10, _int64(*[5] * 10), torch.arange(10)),
        case(
            "index_select",
            lambda x, i: x.index_select(0, i),
            list(range(9, -1, -1)),
            torch.arange(10),
            torch.arange(9, -1, -1),
        ),
        case(
            "floor division",
            lambda x, y: torch.div(x, y, rounding_mode="floor"),
            [-3, 3, -3],
            _int64(-5, 7, -9),
            _int64(2, 2, 3),
        ),
        case("remainder", lambda x, y: x % y, [1, -1], _int64(-5, 5), _int64(3, -3)),
        case("truncated division", lambda x, y: torch.div(x, y, rounding_mode="trunc"), [-2], _int64(-5), _int64(2)),
        case("right shift", lambda x: x >> 1, [-3], _int64(-5)),
        case("integer matrix product", lambda a, b: a @ b, [2**24 + 1], _int32(2**24, 1)[None], _int32(1, 1)[:, None]),
        case("true division", lambda a, b: a / b, [0.5, 0.25], _int32(1, 1), _int32(2, 4)),
        case("argsort above 256", lambda x: x.argsort(), [3, 1, 0, 2], _int64(1002, 1001, 1003, 1000)),
        case("topk of close floats", lambda x: x.topk(2)[1], [2, 1], _fp32(1000.0, 1001.0, 1002.0, 999.0)),
        case("float to int32", lambda x: x.to(torch.int32), [2, -2, 0], _fp32(2.7, -2.7, 0.999999)),
        case("float to int64", lambda x: x.to(torch.int64), [2**40], _fp32(2.0**40)),
        case("int64 to float", lambda x: x.to(torch.float32), [16777216.0, 16777220.0], _int64(2**24 + 1, 2**24 + 3)),
        case("sum of booleans", lambda x: x.sum(), [300], torch.ones(300, dtype=torch.bool)),
        case("sum of uint8", lambda x: x.sum(), [510], torch.tensor([255, 255], dtype=torch.uint8)),
        case(
            "scatter_add at one place",
            lambda o, i, s: o.scatter_add(0, i, s),
            [2.0, 1.0],
            torch.zeros(2),
            _int64(0, 0, 1),
            torch.ones(3),
        ),
        case("searchsorted", torch.searchsorted, [1, 2], _fp32(1.0, 2.0, 3.0), _fp32(1.5, 3.0)),
        case("argmax beyond 2^24", lambda x: x.argmax(), [LONG + 3], late),
        case("one_hot", lambda x: functional.one_hot(x, 4), [0, 0, 1, 0], _int64(2)),
        case("equality of high bits", lambda x, y: (x == y).int(), [0], _int64(2**40 + 1), _int64(1)),
    ]


def integer_operators(subject: Subject, precision: str) -> Reading:
    """All cases, as one graph where the device compiles; the verdict names those with a wrong value."""
    listing = cases()
    outcomes = subject.ask([Question(name=each.name, function=each.function, inputs=each.inputs) for each in listing])
    details: dict[str, Scalar] = {}
    wrong: list[str] = []
    for each in listing:
        outcome = outcomes[each.name]
        if isinstance(outcome, Unknown):
            details[each.name] = outcome.reason
            continue
        got = outcome[0].flatten().tolist()
        details[each.name] = "right" if got == each.expected else f"{listed(got)} instead of {listed(each.expected)}"
        if got != each.expected:
            wrong.append(each.name)
    return Reading(verdict=f"wrong: {listed(wrong)}" if wrong else "exact", details=details)


INSTRUMENTS: list[Instrument] = [
    single("integers", "int64 width", ("fp32",), int64_width),
    single("integers", "operators", ("fp32",), integer_operators),
]
