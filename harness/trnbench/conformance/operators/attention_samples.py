"""Inputs of attention: sizes, random inputs that each show another fault, and padded batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import make
from trnbench.conformance.operators.base import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.base import Plan


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one attention: query [batch, heads, queries, depth], key and value [batch, kv_heads, keys, depth]."""

    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    queries: int = 128
    keys: int = 128
    depth: int = 64

    @property
    def query_shape(self) -> tuple[int, int, int, int]:
        """Of the query, the output and its cotangent."""
        return self.batch, self.heads, self.queries, self.depth

    @property
    def key_shape(self) -> tuple[int, int, int, int]:
        """Of key and value."""
        return self.batch, self.kv_heads, self.keys, self.depth

    @property
    def words(self) -> str:
        """`batch 1, 4 heads on 2, 128 queries, 128 keys, head dimension 64`."""
        heads = f"{self.heads} heads" + (f" on {self.kv_heads}" if self.kv_heads != self.heads else "")
        sizes = f"{self.queries} queries, {self.keys} keys, head dimension {self.depth}"
        return f"batch {self.batch}, {heads}, {sizes}"


def square(length: int, depth: int, *, batch: int = 1, heads: int = 2, kv_heads: int | None = None) -> Layout:
    """As many queries as keys."""
    kv = heads if kv_heads is None else kv_heads
    return Layout(batch=batch, heads=heads, kv_heads=kv, queries=length, keys=length, depth=depth)


RANDOM_INPUTS = (
    "gaussian",
    "positive",
    "wide range values",
    "cancelling values",
    "subnormal values",
    "huge logits",
    "outlier channel in keys",
    "offset values",
)
"""What each is for: operands and scores; narrow accumulators; elementwise bounds; rounded partial sums; the bottom of
the range; the maximum and scores of 16 bits; scores with one dominant product; the difference dP - delta."""


def random_inputs(name: str, layout: Layout, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of the input `name`, one of `RANDOM_INPUTS`."""

    def part(generator: str, which: str, shape: tuple[int, ...]) -> Tensor:
        return make(generator, shape, dtype, seed, f"{which} of {name}")

    if name == "positive":
        return (
            part("positive", "query", layout.query_shape),
            part("positive", "key", layout.key_shape),
            part("positive", "value", layout.key_shape),
        )
    query = part("huge" if name == "huge logits" else "gaussian", "query", layout.query_shape)
    key = part("outlier channels" if name == "outlier channel in keys" else "gaussian", "key", layout.key_shape)
    kinds = {"wide range values": "wide range", "subnormal values": "subnormal", "offset values": "offset"}
    if name == "cancelling values":
        # Nearly equal weights, so that pairs of values along the axis of keys cancel.
        batch, heads, keys, depth = layout.key_shape
        value = part("cancelling", "value", (batch, heads, depth, keys)).transpose(-1, -2).contiguous()
        return query * 2.0**-6, key, value
    return query, key, part(kinds.get(name, "gaussian"), "value", layout.key_shape)


def padded(layout: Layout) -> Tensor:
    """Boolean mask [batch, 1, queries, keys] of a causal batch padded on the left; odd items are the shorter ones.

    The first rows of a shorter item, its padding, see no key at all. Padding ends away from tile edges.
    """
    rows, columns = torch.arange(layout.queries)[:, None], torch.arange(layout.keys)[None, :]
    paddings = [(3 * layout.keys) // 8 + 1 if item % 2 else 0 for item in range(layout.batch)]
    return torch.stack([(columns <= rows) & (columns >= padding) for padding in paddings])[:, None]


def additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where visible, the least number of `dtype` elsewhere: float32's would become -inf in 16 bits."""
    return torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, torch.finfo(dtype).min)


def mask_inputs(kind: str, layout: Layout, dtype: torch.dtype) -> Tensors:
    """The fourth input: a boolean mask for "boolean", an additive one for "additive", none for ""."""
    if kind == "boolean":
        return (padded(layout),)
    return (additive(padded(layout), dtype),) if kind == "additive" else ()


def random_samples(
    layouts: tuple[Layout, ...], mask: str, precision: str, plan: Plan, *, backward: bool = True
) -> Iterator[Sample]:
    """Every random input on the first layout; gaussian ones on the others, or all inputs where `plan` says so."""
    dtype = STORAGE[precision]
    shown = layouts[:1] if plan.shapes == "one" else layouts
    for layout in shown:
        names = RANDOM_INPUTS if layout is layouts[0] or plan.shapes == "all" else RANDOM_INPUTS[:1]
        for name in names if not plan.inputs else [name for name in names if name in plan.inputs]:
            for seed in plan.seeds:
                cotangent = make("gaussian", layout.query_shape, dtype, seed, f"cotangent of {name}")
                yield Sample(
                    input=name,
                    shape=layout.words,
                    inputs=(*random_inputs(name, layout, dtype, seed), *mask_inputs(mask, layout, dtype)),
                    cotangents=(cotangent,) if backward else None,
                    seed=seed,
                )
