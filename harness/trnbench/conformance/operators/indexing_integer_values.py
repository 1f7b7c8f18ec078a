"""What all integer checks share: values at the ends of formats, and arithmetic in Python's own integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.implementation import Tensors
from trnbench.conformance.inputs import generator
from trnbench.conformance.operators.base import Plan

LENGTH = 64
"""Elements of every input, so that a compiling backend compiles each operator once."""

INT64, INT32 = torch.int64, torch.int32

NamedInputs = Iterator[tuple[str, Tensors]]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """`function` runs on the device, `exact` says what is right; `inputs(dtype, plan)` gives named inputs."""

    name: str
    function: Callable[..., Tensors]
    exact: Callable[..., Tensors]
    inputs: Callable[[torch.dtype, Plan], NamedInputs]
    dtypes: tuple[torch.dtype, ...] = (INT64, INT32)
    signatures: Callable[..., dict[str, Tensors]] | None = None


def filled(values: Iterable[int], dtype: torch.dtype) -> Tensor:
    """The values as often as they fit into `LENGTH` elements."""
    listed = list(values)
    return torch.tensor([listed[place % len(listed)] for place in range(LENGTH)], dtype=INT64).to(dtype)


def wrapped(values: Iterable[int], dtype: torch.dtype) -> Tensor:
    """Python integers reduced to `dtype` by two's complement, as PyTorch's arithmetic wraps."""
    bits = torch.iinfo(dtype).bits
    half = 1 << (bits - 1)
    return torch.tensor([(value + half) % (1 << bits) - half for value in values], dtype=dtype)


def pairs(function: Callable[[int, int], int], x: Tensor, y: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    both = zip(x.reshape(-1).tolist(), y.reshape(-1).tolist(), strict=True)
    return wrapped([function(a, b) for a, b in both], dtype or x.dtype).reshape(x.shape)


def random_pairs(dtype: torch.dtype, plan: Plan, bits: int, other_bits: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Two such tensors a seed, below 2^bits and 2^other_bits."""
    yield from zip(random_integers(dtype, plan, "x", bits), random_integers(dtype, plan, "y", other_bits), strict=True)


def random_integers(dtype: torch.dtype, plan: Plan, part: str, bits: int) -> Iterator[Tensor]:
    """Of every seed `LENGTH` integers below 2^bits in size, as often of few bits as of many."""
    for seed in plan.seeds:
        rng = generator(f"integers {part}", seed)
        sizes = rng.integers(1, bits + 1, LENGTH)
        values = [int(rng.integers(-(1 << int(size)), 1 << int(size))) for size in sizes]
        yield torch.tensor(values, dtype=INT64).to(dtype)


EDGES: dict[torch.dtype, tuple[int, ...]] = {
    INT64: (2**24 + 1, 2**31 - 1, 2**31 + 1, -(2**31) - 1, 2**32 + 7, 2**40 + 1, 2**53 + 1, -(2**53) - 1, 2**62 + 3),
    INT32: (2**24 + 1, -(2**24) - 1, 2**24 + 3, 2**30 + 1, 2**31 - 2, -(2**31) + 1),
}
OTHERS: tuple[int, ...] = (1, -1, 3, 0, 7, -5, 2, 11)


def two_numbers(dtype: torch.dtype, plan: Plan) -> NamedInputs:
    yield "ends of fp32, int32 and fp64", (filled(EDGES[dtype], dtype), filled(OTHERS, dtype))
    bits = 30 if dtype == INT32 else 62
    for x, y in random_pairs(dtype, plan, bits, 12):
        yield "random integers", (x, y)


def toward_zero(dividend: int, divisor: int) -> int:
    size = abs(dividend) // abs(divisor)
    return size if (dividend < 0) == (divisor < 0) else -size


def whole(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Floats as `dtype`; integers beyond it saturate, as they do in hardware."""
    if not values.is_floating_point() or dtype.is_floating_point:
        return values.to(dtype)
    limits = torch.iinfo(dtype)
    wide = values.double().nan_to_num()
    inside = wide.clamp(float(limits.min), float(limits.max) - (1024.0 if dtype == INT64 else 0.0)).to(dtype)
    return torch.where(wide >= float(limits.max), torch.full_like(inside, limits.max), inside)
