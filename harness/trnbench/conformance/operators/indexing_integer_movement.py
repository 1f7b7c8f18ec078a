"""Integers added up, sorted, looked up, scattered and converted: as PyTorch, and in Python's own integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from trnbench.conformance.inputs import generator
from trnbench.conformance.operators.indexing_integer_values import (
    EDGES,
    INT32,
    INT64,
    LENGTH,
    Case,
    NamedInputs,
    filled,
    random_integers,
    random_pairs,
    wrapped,
)

if TYPE_CHECKING:
    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.base import Plan


def add_up(x: Tensor, y: Tensor) -> Tensors:
    """Sum of x, running sum of y (int64, whatever the type), and the number of non-zeros in y."""
    return x.sum(), y.cumsum(0), (y != 0).sum()


def _exact_add_up(x: Tensor, y: Tensor) -> Tensors:
    running = list(np.cumsum(np.array(y.tolist(), dtype=object)))
    count = sum(value != 0 for value in y.tolist())
    return wrapped([sum(x.tolist())], INT64)[0], wrapped(running, INT64), torch.tensor(count)


def _sums(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    yield "beyond 2^24", (filled((2**24 + 1, 2**24, 1, 1), dtype), filled((2**24, 1, 1, 1), dtype))
    yield "counting up", (torch.arange(LENGTH, dtype=dtype), torch.arange(LENGTH, dtype=dtype))
    if dtype == INT64:
        yield "beyond 2^31 and 2^53", (filled((2**31 - 1, 2**31, 3), dtype), filled((2**52 + 1, 1), dtype))
    bits = 24 if dtype == INT32 else 52
    for x, y in random_pairs(dtype, plan, bits, bits):
        yield "random integers", (x, y)


def product(x: Tensor, y: Tensor) -> Tensors:
    """Matrix product of x and y, both taken as 8x8."""
    return (x.reshape(8, 8) @ y.reshape(8, 8),)


def _exact_product(x: Tensor, y: Tensor) -> Tensors:
    left, right = (np.array(t.reshape(8, 8).tolist(), dtype=object) for t in (x, y))
    return (wrapped(list((left @ right).reshape(-1)), x.dtype).reshape(8, 8),)


def _products(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    yield "beyond 2^24", (filled((2**24, 1, 3, 2**12), dtype), filled((1,), dtype))
    if dtype == INT64:
        yield "beyond 2^31", (filled((2**31, 1, 3, 2**40), dtype), filled((1,), dtype))
    for x, y in random_pairs(dtype, plan, 16, 11):
        yield "random integers", (x, y)


def order(x: Tensor, y: Tensor) -> Tensors:
    """Positions that sort x, x sorted, and where each of y belongs in it."""
    ordered, places = torch.sort(x, stable=True)
    return places, ordered, torch.searchsorted(ordered, y)


def _exact_order(x: Tensor, y: Tensor) -> Tensors:
    listed = x.tolist()
    places = sorted(range(len(listed)), key=listed.__getitem__)
    ordered = [listed[place] for place in places]
    below = [sum(value < wanted for value in ordered) for wanted in y.tolist()]
    return torch.tensor(places), torch.tensor(ordered, dtype=x.dtype), torch.tensor(below)


def _orders(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    rng = generator("order", 0)
    offsets = [(0, "beyond 8 bits", 1000), (1, "beyond 24 bits", 2**24)]
    if dtype == INT64:
        offsets += [(2, "beyond 31 bits", 2**31), (3, "beyond 53 bits", 2**53)]
    for _, name, offset in offsets:
        values = torch.from_numpy(rng.permutation(LENGTH)).to(dtype) + offset
        yield name, (values, values + 1)


def look_up(x: Tensor, y: Tensor) -> Tensors:
    """x at indices y in two ways, y as one-hot rows, and y placed behind a counter that starts beyond 2^40."""
    counter = torch.arange(2**40 + 1, 2**40 + 1 + 3 * LENGTH, 3, device=x.device)
    return x[y], x.index_select(0, y), functional.one_hot(y.to(INT64), LENGTH), counter + y


def _exact_look_up(x: Tensor, y: Tensor) -> Tensors:
    values, places = x.tolist(), y.tolist()
    found = torch.tensor([values[place] for place in places], dtype=x.dtype)
    hot = [[int(place == column) for column in range(LENGTH)] for place in places]
    counted = [2**40 + 1 + 3 * number + place for number, place in enumerate(places)]
    return found, found.clone(), torch.tensor(hot), torch.tensor(counted)


def _look_ups(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    backwards = torch.arange(LENGTH - 1, -1, -1)
    yield "small values", (filled((5, 5, 6, 7), dtype), backwards)
    yield "values beyond 2^24 and 2^31", (filled(EDGES[dtype], dtype), backwards)


def accumulate(x: Tensor, y: Tensor) -> Tensors:
    """Zeros of x's type with x added at places y, many of them repeated."""
    return (torch.zeros_like(x).scatter_add(0, y, x),)


def _exact_accumulate(x: Tensor, y: Tensor) -> Tensors:
    sums = [0] * LENGTH
    for value, place in zip(x.tolist(), y.tolist(), strict=True):
        sums[place] += value
    return (wrapped(sums, x.dtype),)


def _accumulations(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    places = torch.arange(LENGTH) % 5
    yield "beyond 2^24", (filled((2**24, 1, 1, 3), dtype), places)
    if dtype == INT64:
        yield "beyond 2^31 and 2^53", (filled((2**31, 2**53, 1), dtype), places)


def _accumulate_signatures(expected: Tensors, x: Tensor, y: Tensor) -> dict[str, Tensors]:
    last = torch.zeros_like(x)
    for value, place in zip(x.tolist(), y.tolist(), strict=True):
        last[place] = value
    return {"repeated indices dropped": (last,)}


def convert_to_float(x: Tensor) -> Tensors:
    """Integers as float32, rounded to nearest even."""
    return (x.to(torch.float32),)


def _exact_convert_to_float(x: Tensor) -> Tensors:
    return (torch.from_numpy(np.array([_nearest_float32(value) for value in x.tolist()], dtype=np.float32)),)


def _nearest_float32(value: int) -> float:
    """`value` rounded to 24 significant bits, ties to even, in integer arithmetic."""
    size = abs(value)
    excess = max(0, size.bit_length() - 24)
    kept, rest = size >> excess, size & ((1 << excess) - 1)
    half = 1 << excess >> 1
    if excess and (rest > half or (rest == half and kept & 1)):
        kept += 1
    return float(kept << excess) * (-1.0 if value < 0 else 1.0)


def _to_floats(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    ties = (2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**25 + 2, 2**25 + 6, 2**24 - 1)
    yield "halfway cases", (filled(ties, dtype),)
    yield "ends of fp32, int32 and fp64", (filled(EDGES[dtype], dtype),)
    for values in random_integers(dtype, plan, "float", 30 if dtype == INT32 else 62):
        yield "random integers", (values,)


def convert_to_integer(x: Tensor) -> Tensors:
    """float32 to int32 and to int64, toward zero."""
    return x.to(INT32), x.to(INT64)


def _exact_convert_to_integer(x: Tensor) -> Tensors:
    whole = [int(value) for value in x.tolist()]
    return torch.tensor(whole, dtype=INT32), torch.tensor(whole)


def _to_integers(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    values = (2.7, -2.7, 0.999999, -0.5, 1.5, 2.5, -1.5, 2.0**30, -(2.0**31), 2.0**24 - 1, 123456.75, -0.0)
    yield "toward zero", (torch.tensor([values[place % len(values)] for place in range(LENGTH)]),)


def _round_signatures(expected: Tensors, x: Tensor) -> dict[str, Tensors]:
    nearest, down = x.double().round(), x.double().floor()
    return {
        "rounded to nearest instead of truncated": (nearest.to(INT32), nearest.to(INT64)),
        "rounded down instead of truncated": (down.to(INT32), down.to(INT64)),
    }


MOVEMENT: tuple[Case, ...] = (
    Case(name="integer sum", function=add_up, exact=_exact_add_up, inputs=_sums),
    Case(name="integer matrix product", function=product, exact=_exact_product, inputs=_products),
    Case(name="integer order", function=order, exact=_exact_order, inputs=_orders),
    Case(name="integer look-up", function=look_up, exact=_exact_look_up, inputs=_look_ups),
    Case(
        name="integer scatter add",
        function=accumulate,
        exact=_exact_accumulate,
        inputs=_accumulations,
        signatures=_accumulate_signatures,
    ),
    Case(name="conversion to float", function=convert_to_float, exact=_exact_convert_to_float, inputs=_to_floats),
    Case(
        name="conversion to integer",
        function=convert_to_integer,
        exact=_exact_convert_to_integer,
        inputs=_to_integers,
        dtypes=(INT64,),
        signatures=_round_signatures,
    ),
)
