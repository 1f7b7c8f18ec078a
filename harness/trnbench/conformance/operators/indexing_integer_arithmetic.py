"""Sums, products, comparisons, divisions and shifts of integers: as PyTorch, and in Python's own integers."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from trnbench.conformance.inputs import rounded
from trnbench.conformance.operators.indexing_integer_values import (
    EDGES,
    INT32,
    INT64,
    LENGTH,
    Case,
    NamedInputs,
    filled,
    pairs,
    random_integers,
    random_pairs,
    toward_zero,
    two_numbers,
    whole,
    wrapped,
)

if TYPE_CHECKING:
    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.base import Plan


def arithmetic(x: Tensor, y: Tensor) -> Tensors:
    """x + y, x - y, x * y, wrapping at the width of the type."""
    return x + y, x - y, x * y


def _exact_arithmetic(x: Tensor, y: Tensor) -> Tensors:
    return pairs(int.__add__, x, y), pairs(int.__sub__, x, y), pairs(int.__mul__, x, y)


def compare(x: Tensor, y: Tensor) -> Tensors:
    """x == y, x < y, x <= y, and whether each x is among all y."""
    return x == y, x < y, x <= y, torch.isin(x, y)


def _exact_compare(x: Tensor, y: Tensor) -> Tensors:
    left, right = x.tolist(), y.tolist()
    both = list(zip(left, right, strict=True))
    among = set(right)
    flags = ([a == b for a, b in both], [a < b for a, b in both], [a <= b for a, b in both], [a in among for a in left])
    return tuple(torch.tensor(flag) for flag in flags)


def neighbours(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    """Numbers that differ in their lowest bits only, and numbers that differ in their highest bits only."""
    high = (2**40 + 1, 1, 2**32, 0, 2**53 + 1, 2**53, 2**31, -(2**31)) if dtype == INT64 else (2**24 + 1, 2**24, 5, 6)
    x = filled(high, dtype)
    yield "alike in all but a few bits", (x, filled((*high[1:], high[0] + 2), dtype))
    for values in random_integers(dtype, plan, "compare", 30 if dtype == INT32 else 62):
        step = torch.arange(LENGTH, dtype=dtype) % 3 - 1
        yield "random integers", (values, values + step)


def divide(x: Tensor, y: Tensor) -> Tensors:
    """Quotient rounded down, remainder with the sign of the divisor, quotient rounded toward zero."""
    floor = torch.div(x, y, rounding_mode="floor")
    return floor, torch.remainder(x, y), torch.div(x, y, rounding_mode="trunc")


def _exact_divide(x: Tensor, y: Tensor) -> Tensors:
    return pairs(int.__floordiv__, x, y), pairs(int.__mod__, x, y), pairs(toward_zero, x, y)


def _divide_signatures(expected: Tensors, x: Tensor, y: Tensor) -> dict[str, Tensors]:
    floor, remainder, truncated = expected
    quotient = x.float() / y.float()
    through_float32 = tuple(whole(values, x.dtype) for values in (quotient.floor(), quotient.trunc()))
    return {
        "integer division computed in fp32": (through_float32[0], remainder, through_float32[1]),
        "floor division truncates": (truncated, remainder, truncated),
        "remainder has the sign of the dividend": (floor, x - truncated * y, truncated),
        "division and remainder truncate": (truncated, x - truncated * y, truncated),
    }


def _divisions(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    small = ((-5, 2), (7, -2), (-9, 3), (-9, 4), (5, -3), (-1, 7), (0, -3), (9, 3))
    yield "small negatives", (filled([a for a, _ in small], dtype), filled([b for _, b in small], dtype))
    yield (
        "ends of fp32, int32 and fp64",
        (filled([*EDGES[dtype], *(-edge for edge in EDGES[dtype])], dtype), filled((1, 3, 7, -10), dtype)),
    )
    bits = 30 if dtype == INT32 else 62
    for x, y in random_pairs(dtype, plan, bits, bits // 2):
        yield "random integers", (x, torch.where(y == 0, 1, y))


def true_divide(x: Tensor, y: Tensor) -> Tensors:
    """x / y of integers in the default dtype, float32."""
    return (x / y,)


def _exact_true_divide(x: Tensor, y: Tensor) -> Tensors:
    quotients = [float(Fraction(a, b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return (rounded(np.array(quotients), torch.float32),)


def _true_divisions(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    """Quotients that float32 holds exactly, of integers that it holds exactly: then nothing may be rounded."""
    yield "powers of two below", (filled((1, 1, 3, -5, 1023, 2**24 - 1, 7, -9), dtype), filled((2, 4, 8, -16), dtype))


def shift(x: Tensor) -> Tensors:
    """x >> 1 and x >> 3, which keep the sign and so round down, and x << 2."""
    return x >> 1, x >> 3, x << 2


def _shifted(x: Tensor, places: int) -> Tensor:
    return wrapped([value >> places for value in x.tolist()], x.dtype)


def _exact_shift(x: Tensor) -> Tensors:
    return _shifted(x, 1), _shifted(x, 3), wrapped([value << 2 for value in x.tolist()], x.dtype)


def _shift_signatures(expected: Tensors, x: Tensor) -> dict[str, Tensors]:
    divided = [wrapped([toward_zero(value, 1 << places) for value in x.tolist()], x.dtype) for places in (1, 3)]
    return {"shift as division": (*divided, expected[2])}


def shift_by_tensor(x: Tensor, y: Tensor) -> Tensors:
    """x >> y and x << y for counts y that lie on the device as well."""
    return x >> y, x << y


def _exact_shift_by_tensor(x: Tensor, y: Tensor) -> Tensors:
    return pairs(int.__rshift__, x, y), pairs(int.__lshift__, x, y)


def _shift_by_tensor_signatures(expected: Tensors, x: Tensor, y: Tensor) -> dict[str, Tensors]:
    return {
        "shift as division": (pairs(lambda a, b: toward_zero(a, 1 << b), x, y), expected[1]),
        "right shift by a tensor gives zero": (torch.zeros_like(x), expected[1]),
    }


def _single_shifts(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    for name, (x, _) in _shifts(dtype, plan):
        yield name, (x,)


def _shifts(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    yield "negatives", (filled((-5, -1, -7, -9, -1025, -3), dtype), filled((1, 1, 2, 3), dtype))
    yield "non-negatives", (filled((5, 1, 0, 2**24 + 3, *EDGES[dtype][:1], 2**30 + 1), dtype), filled((1, 2), dtype))
    if dtype == INT64:
        yield "beyond 32 bits", (filled((2**40 + 1, 2**53 + 1, 2**35 - 1), dtype), filled((1, 3, 8), dtype))


ARITHMETIC: tuple[Case, ...] = (
    Case(name="integer arithmetic", function=arithmetic, exact=_exact_arithmetic, inputs=two_numbers),
    Case(name="integer comparison", function=compare, exact=_exact_compare, inputs=neighbours),
    Case(
        name="integer division",
        function=divide,
        exact=_exact_divide,
        inputs=_divisions,
        signatures=_divide_signatures,
    ),
    Case(name="integer true division", function=true_divide, exact=_exact_true_divide, inputs=_true_divisions),
    Case(
        name="integer shift",
        function=shift,
        exact=_exact_shift,
        inputs=_single_shifts,
        signatures=_shift_signatures,
    ),
    Case(
        name="integer shift by a tensor",
        function=shift_by_tensor,
        exact=_exact_shift_by_tensor,
        inputs=_shifts,
        signatures=_shift_by_tensor_signatures,
    ),
)
