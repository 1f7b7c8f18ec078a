"""Look-ups, scatters and integer arithmetic that are broken on purpose, and correct ones in other orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.mutants.base import Mutant

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.implementation import Implementation, Tensors


def _made(
    forward: Callable[..., object], backward: Callable[[Tensors, Tensors], Tensors] | None = None
) -> Callable[[], Implementation]:
    return lambda: HostImplementation(forward, backward)


def _embed(weight: Tensor, index: Tensor) -> Tensor:
    return functional.embedding(index, weight)


def _embed_next_row(weight: Tensor, index: Tensor) -> Tensor:
    return torch.cat([weight[1:], weight[:1]]).index_select(0, index)


def _embed_by_product(weight: Tensor, index: Tensor) -> Tensor:
    hot = (index[:, None] == torch.arange(weight.shape[0])).to(weight.dtype)
    return hot @ weight


def _in_turns(index: Tensor, values: Tensor, rows: int) -> Tensor:
    """[turns, rows, D]: turn t holds the value number t that goes to each row, NaN where a row has fewer."""
    hits = index[:, None] == torch.arange(rows)
    turns = (hits.cumsum(0) - 1)[torch.arange(len(index)), index]
    placed = torch.full((int(turns.max()) + 1, rows, values.shape[1]), torch.nan, dtype=values.dtype)
    placed[turns, index] = values
    return placed


def _gradient_assigned(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """index_put without accumulation: each look-up overwrites what the one before it left."""
    weight, index = inputs
    assigned = torch.zeros_like(weight)
    for values in _in_turns(index, cotangents[0], weight.shape[0]):
        assigned = torch.where(values.isnan(), assigned, values)
    return (assigned,)


def _gradient_backwards(dtype: torch.dtype) -> Callable[[Tensors, Tensors], Tensors]:
    """From the last look-up to the first, every partial sum rounded to `dtype`."""

    def backward(inputs: Tensors, cotangents: Tensors) -> Tensors:
        weight, index = inputs
        sums = torch.zeros(weight.shape, dtype=dtype)
        for values in _in_turns(index, cotangents[0], weight.shape[0]).flip(0):
            sums += values.nan_to_num(0.0).to(dtype)
        return (sums.to(weight.dtype),)

    return backward


def _gradient_by_product(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """One-hot matrix times cotangents, in float32."""
    weight, index = inputs
    hot = (index[None, :] == torch.arange(weight.shape[0])[:, None]).float()
    return ((hot @ cotangents[0].float()).to(weight.dtype),)


def _gradient_in_tiles(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """Tiles of 128 look-ups, each summed in float32, and their sums added from the last to the first."""
    weight, index = inputs
    given = cotangents[0].float()
    sums = torch.zeros(weight.shape)
    for start in reversed(range(0, len(index), 128)):
        tile = slice(start, start + 128)
        sums += torch.zeros(weight.shape).index_add(0, index[tile], given[tile])
    return (sums.to(weight.dtype),)


def _add_assigned(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """`target[index] += values`, which keeps one of several values for the same row."""
    target = start.clone()
    target[index] += values
    return target


def _scatter_backwards_narrow(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    columns = torch.arange(start.shape[1])
    target = start.numpy().copy()
    for rows, added in zip(index.flip(0).numpy(), values.flip(0).numpy(), strict=True):
        target[rows, columns] += added
    return torch.from_numpy(target)


def _scatter_gradients(inputs: Tensors, cotangents: Tensors) -> Tensors:
    return cotangents[0], cotangents[0].gather(0, inputs[1])


def _add_in_halves(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Two halves of the values into accumulators of their own, as two cores would."""
    half = len(index) // 2
    first, second = torch.zeros(start.shape), torch.zeros(start.shape)
    first.index_add_(0, index[:half].flip(0), values[:half].float().flip(0))
    second.index_add_(0, index[half:], values[half:].float())
    return (first + second + start.float()).to(start.dtype)


def _arithmetic_in_32_bits(x: Tensor, y: Tensor) -> Tensors:
    def narrow(value: Tensor) -> Tensor:
        return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000

    if x.dtype != torch.int64:
        return x + y, x - y, x * y
    return narrow(x + y), narrow(x - y), narrow(narrow(x) * narrow(y))


def _product_in_float32(x: Tensor, y: Tensor) -> Tensors:
    left, right = x.reshape(8, 8).float(), y.reshape(8, 8).float()
    return (torch.einsum("ik,kj->ij", left, right).to(x.dtype),)


def _divide_truncating(x: Tensor, y: Tensor) -> Tensors:
    quotient = torch.sign(x) * torch.sign(y) * torch.div(x.abs(), y.abs(), rounding_mode="floor")
    return quotient, torch.remainder(x, y), quotient.clone()


def _divide_off_by_one(x: Tensor, y: Tensor) -> Tensors:
    """Division through a float32 quotient."""
    quotient = x.to(torch.float32) / y.to(torch.float32)
    floor, truncated = torch.floor(quotient), torch.trunc(quotient)
    return _whole(floor, x.dtype), torch.remainder(x, y), _whole(truncated, x.dtype)


def _whole(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Saturating, as a converter in hardware is."""
    limits = torch.iinfo(dtype)
    listed = [min(max(int(value), limits.min), limits.max) for value in values.tolist()]
    return torch.tensor(listed, dtype=dtype)


def _divide_correctly(x: Tensor, y: Tensor) -> Tensors:
    truncated = torch.div(x, y, rounding_mode="trunc")
    rest = x - truncated * y
    lower = (rest != 0) & ((rest < 0) != (y < 0))
    return truncated - lower.to(x.dtype), rest + torch.where(lower, y, 0), truncated


def _shift_as_division(x: Tensor) -> Tensors:
    return torch.div(x, 2, rounding_mode="trunc"), torch.div(x, 8, rounding_mode="trunc"), x * 4


def _order_in_float32(x: Tensor, y: Tensor) -> Tensors:
    ordered, places = torch.sort(x.float(), stable=True)
    return places, ordered.to(x.dtype), torch.searchsorted(ordered, y.float())


def _rounded_to_integer(x: Tensor) -> Tensors:
    nearest = torch.floor(x.double() + 0.5)
    halves = (x.double() + 0.5 == nearest) & (nearest % 2 != 0)
    nearest = torch.where(halves, nearest - 1.0, nearest)
    return nearest.to(torch.int32), nearest.to(torch.int64)


def _mutant(name: str, operator: str, precision: str, make: Callable[[], Implementation], *looks_like: str) -> Mutant:
    return Mutant(name=name, operator=operator, precision=precision, make=make, looks_like=looks_like)


MUTANTS: list[Mutant] = [
    _mutant("embedding of the next row", "embedding", "fp32", _made(_embed_next_row), "rows off by one"),
    _mutant(
        "embedding by a one-hot product", "embedding", "fp32", _made(_embed_by_product), "rows looked up by a product"
    ),
    _mutant(
        "embedding gradient overwritten", "embedding", "fp32", _made(_embed, _gradient_assigned), "last write wins"
    ),
    _mutant(
        "embedding gradient in bf16",
        "embedding",
        "bf16",
        _made(_embed, _gradient_backwards(torch.bfloat16)),
        "gradient accumulated in 16 bits",
    ),
    _mutant(
        "fp32 embedding gradient in bf16",
        "embedding",
        "fp32",
        _made(_embed, _gradient_backwards(torch.bfloat16)),
        "gradient accumulated in bf16",
    ),
    _mutant(
        "padding row trained",
        "embedding with padding row",
        "fp32",
        _made(_embed, _gradient_by_product),
        "padding row receives gradient",
    ),
    _mutant("index add by assignment", "index add", "fp32", _made(_add_assigned), "repeated indices dropped"),
    _mutant(
        "scatter add in fp16",
        "scatter add",
        "fp16",
        _made(_scatter_backwards_narrow, _scatter_gradients),
        "sum accumulated in 16 bits",
    ),
    _mutant(
        "int64 kept in 32 bits",
        "integer arithmetic",
        "fp32",
        _made(_arithmetic_in_32_bits),
        "int64 truncated to int32",
    ),
    _mutant(
        "integer product in float32",
        "integer matrix product",
        "fp32",
        _made(_product_in_float32),
        "integers computed in fp32",
    ),
    _mutant(
        "integers sorted in float32",
        "integer order",
        "fp32",
        _made(_order_in_float32),
        "integers computed in fp32",
    ),
    _mutant(
        "floor division toward zero", "integer division", "fp32", _made(_divide_truncating), "floor division truncates"
    ),
    _mutant(
        "division through float32",
        "integer division",
        "fp32",
        _made(_divide_off_by_one),
        "integer division computed in fp32",
    ),
    _mutant("shift by dividing", "integer shift", "fp32", _made(_shift_as_division), "shift as division"),
    _mutant(
        "conversion rounding to nearest",
        "conversion to integer",
        "fp32",
        _made(_rounded_to_integer),
        "rounded to nearest instead of truncated",
    ),
    _mutant("embedding gradient by a product", "embedding", "bf16", _made(_embed, _gradient_by_product)),
    _mutant("embedding gradient in tiles of 128", "embedding", "fp16", _made(_embed, _gradient_in_tiles)),
    _mutant("index add in two halves", "index add", "bf16", _made(_add_in_halves)),
    _mutant("floor division from truncation", "integer division", "fp32", _made(_divide_correctly)),
]
