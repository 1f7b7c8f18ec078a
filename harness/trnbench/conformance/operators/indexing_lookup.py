"""Looking rows up: embedding with and without a padding row, index_select and advanced indexing.

The forward pass copies, so every bit must be right. The backward pass adds the gradients of rows that were looked up
several times: a sum of as many terms as the token is frequent, which 16 bits cannot hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import generator, make
from trnbench.conformance.operators.base import ExactSample, Gradient, Operator, Plan, Sample
from trnbench.conformance.operators.indexing_sums import (
    copy_bound,
    even_indices,
    many_rows,
    row_sum_bound,
    saturated,
    summed_rows,
    token_indices,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors

PADDING_ROW = 3
"""`padding_idx` of the operator that has one."""

REPEATED_ROW = 5
"""The row that the saturating samples look up every time."""

SHAPES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "one": ((64, 16, 4096),),
    "several": ((64, 16, 4096), (1000, 33, 257)),
    "all": ((64, 16, 4096), (1000, 33, 257), (32_000, 64, 8192), (2, 1, 1)),
}
"""Rows, width, look-ups."""

GENERATORS = ("gaussian", "positive", "wide range", "cancelling", "outlier channels", "subnormal")


def _samples(precision: str, plan: Plan) -> Iterator[Sample]:
    dtype = STORAGE[precision]
    for rows, width, length in SHAPES[plan.shapes]:
        for seed in plan.seeds:
            for name in plan.inputs or GENERATORS:
                yield Sample(
                    input=name,
                    shape=f"{length} of {rows} rows of {width}",
                    inputs=(make(name, (rows, width), dtype, seed), token_indices(rows, length, seed)),
                    cotangents=(many_rows(name, length, width, dtype, seed=seed, part="gradient"),),
                    seed=seed,
                )


def _lookup_exactly(padding: int | None) -> Callable[[str, Plan], Iterator[ExactSample]]:
    def exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
        rows, width, length = SHAPES["one"][0]
        dtype = STORAGE[precision]
        shape = f"{length} of {rows} rows of {width}"
        # Every row and channel differs from its neighbours, and all are integers below 128.
        weight = ((torch.arange(rows)[:, None] * 3 + torch.arange(width) * 5) % 127).to(dtype)

        def gradient(index: Tensor, cotangent: Tensor) -> Tensor:
            sums = summed_rows(index, cotangent, rows)
            if padding is not None:
                sums[padding] = 0.0
            return sums.to(dtype)

        index = torch.full((length,), REPEATED_ROW)
        ones = torch.ones(length, width, dtype=dtype)
        right = gradient(index, ones)
        yield ExactSample(
            input="one row every time",
            shape=shape,
            inputs=(weight, index),
            cotangents=(ones,),
            expected=(weight[index],),
            gradients=(right,),
            signatures=_saturated_signatures(right, precision, length),
        )
        index = even_indices(rows, length, 0)
        # 64 look-ups a row of at most 2 each: no partial sum passes 128, so that 8 bits hold all of them.
        small = torch.from_numpy(generator("small gradient", 0).integers(-2, 3, (length, width))).to(dtype)
        yield ExactSample(
            input="small integers",
            shape=shape,
            inputs=(weight, index),
            cotangents=(small,),
            expected=(weight[index],),
            gradients=(gradient(index, small),),
        )
        facts = torch.finfo(dtype)
        special = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 0.0, facts.max, -facts.max], dtype=dtype)
        weight = weight.clone()
        weight[: len(special)] = special[:, None]
        yield ExactSample(
            input="non-finite rows beside finite ones",
            shape=shape,
            inputs=(weight, index),
            expected=(weight[index],),
            signatures={"rows looked up by a product": (torch.full_like(weight[index], torch.nan),)},
            special=True,
        )

    return exact


def _saturated_signatures(right: Tensor, precision: str, length: int) -> dict[str, Tensors]:
    """What narrow accumulators and lost repetitions make of a gradient of `length` ones."""
    names = {"last write wins": 1.0, "gradient accumulated in bf16": saturated("bf16")}
    if precision != "fp32":
        names["gradient accumulated in 16 bits"] = saturated(precision)
        if precision == "bf16":
            del names["gradient accumulated in bf16"]
    else:
        names["gradient accumulated in fp16"] = saturated("fp16")
    return {name: (torch.where(right == float(length), value, right).to(right.dtype),) for name, value in names.items()}


def _lookup(weight: Tensor, index: Tensor) -> Tensor:
    return weight.double()[index]


def _forward_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """A copy: see `copy_bound`."""
    weight, index = inputs
    return (copy_bound(weight[index], arithmetic),)


def _gradient(padding: int | None) -> Gradient:
    def oracle(inputs: Tensors, cotangents: Tensors) -> Tensors:
        weight, index = inputs
        sums = summed_rows(index, cotangents[0], weight.shape[0])
        if padding is not None:
            sums[padding] = 0.0
        return (sums,)

    def bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
        """Row r of the gradient is the sum of the cotangents of its look-ups: see `row_sum_bound`. Padding is zero."""
        weight, index = inputs
        allowed = row_sum_bound(index, cotangents[0], weight.shape[0], arithmetic)
        if padding is not None:
            allowed[padding] = 0.0
        return (allowed,)

    return Gradient(wrt=(0,), oracle=oracle, bound=bound)


def _operator(name: str, function: Callable[[Tensor, Tensor], Tensor], padding: int | None = None) -> Operator:
    """One way of looking up: inputs are the weight [rows, width] and an int64 index [N]; output [N, width]."""
    return Operator(
        name=name,
        family="indexing",
        function=function,
        samples=_samples,
        oracle=_lookup,
        bound=_forward_bound,
        gradient=_gradient(padding),
        exact=_lookup_exactly(padding),
    )


def embedding(weight: Tensor, index: Tensor) -> Tensor:
    """torch.nn.functional.embedding, as the decoder uses it."""
    return functional.embedding(index, weight)


def padded_embedding(weight: Tensor, index: Tensor) -> Tensor:
    """With `padding_idx`: that row is looked up as any other, and its gradient is zero."""
    return functional.embedding(index, weight, padding_idx=PADDING_ROW)


def index_select(weight: Tensor, index: Tensor) -> Tensor:
    """torch.index_select; its backward pass is index_add."""
    return weight.index_select(0, index)


def advanced_indexing(weight: Tensor, index: Tensor) -> Tensor:
    """weight[index]; its backward pass is index_put with accumulation."""
    return weight[index]


LOOKUPS: list[Operator] = [
    _operator("embedding", embedding),
    _operator("embedding with padding row", padded_embedding, PADDING_ROW),
    _operator("index select", index_select),
    _operator("advanced indexing", advanced_indexing),
]
