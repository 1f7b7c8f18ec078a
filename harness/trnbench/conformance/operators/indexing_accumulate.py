"""Adding at indices that repeat: index_add over rows, scatter_add over elements, and gather, whose gradient is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

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

SHAPES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "one": ((16, 8, 4096),),
    "several": ((16, 8, 4096), (100, 33, 257)),
    "all": ((16, 8, 4096), (100, 33, 257), (4096, 64, 8192), (2, 1, 1)),
}
"""Rows of the target, width, values added to each column."""

GENERATORS = ("gaussian", "positive", "wide range", "cancelling", "subnormal")

NARROW = "sum accumulated in 16 bits"
DROPPED = "repeated indices dropped"


def whole_row(index: Tensor, width: int) -> Tensor:
    """int64 [N, width]: the element index that means the same as row index [N]."""
    return index[:, None].expand(-1, width).contiguous()


def flat(index: Tensor, width: int) -> Tensor:
    """int64 [N * width]: positions in a flattened [rows, width] of a scatter along axis 0 with `index` [N, width]."""
    return (index * width + torch.arange(width)).reshape(-1)


def scattered(index: Tensor, values: Tensor, rows: int) -> Tensor:
    """float64 [rows, width]: element (r, c) is the sum of values[n, c] over all n with index[n, c] = r."""
    width = values.shape[1]
    return summed_rows(flat(index, width), values.reshape(-1, 1), rows * width).reshape(rows, width)


def scatter_bound(
    index: Tensor, values: Tensor, rows: int, arithmetic: Arithmetic, start: Tensor | None = None
) -> Tensor:
    """`row_sum_bound` for each element by itself."""
    width = values.shape[1]
    first = None if start is None else start.reshape(-1, 1)
    allowed = row_sum_bound(flat(index, width), values.reshape(-1, 1), rows * width, arithmetic, first)
    return allowed.reshape(rows, width)


def _element_indices(rows: int, width: int, length: int, seed: int) -> Tensor:
    """int64 [length, width]: every column has token indices of its own."""
    return torch.stack([token_indices(rows, length, seed * 1009 + column) for column in range(width)], dim=1)


def _samples(by_element: bool) -> Callable[[str, Plan], Iterator[Sample]]:
    """Inputs (start, index, values) of index_add, or of scatter_add where the index is one `by_element`."""

    def samples(precision: str, plan: Plan) -> Iterator[Sample]:
        dtype = STORAGE[precision]
        for rows, width, length in SHAPES[plan.shapes]:
            for seed in plan.seeds:
                index = _element_indices(rows, width, length, seed) if by_element else token_indices(rows, length, seed)
                for name in plan.inputs or GENERATORS:
                    yield Sample(
                        input=name,
                        shape=f"{length} onto {rows} rows of {width}",
                        inputs=(
                            make(name, (rows, width), dtype, seed, "start"),
                            index,
                            many_rows(name, length, width, dtype, seed=seed, part="values"),
                        ),
                        cotangents=(make(name, (rows, width), dtype, seed, "gradient"),),
                        seed=seed,
                    )

    return samples


def _exact(by_element: bool) -> Callable[[str, Plan], Iterator[ExactSample]]:
    def exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
        rows, width, length = SHAPES["one"][0]
        dtype = STORAGE[precision]
        shape = f"{length} onto {rows} rows of {width}"
        zeros, ones = torch.zeros(rows, width, dtype=dtype), torch.ones(length, width, dtype=dtype)
        right = zeros.clone()
        right[1] = length
        names = {DROPPED: 1.0, "sum accumulated in bf16" if precision == "fp32" else NARROW: saturated("bf16")}
        if precision == "fp16":
            names[NARROW] = saturated("fp16")
        index = torch.ones(length, dtype=torch.int64)
        yield ExactSample(
            input="one index every time",
            shape=shape,
            inputs=(zeros, whole_row(index, width) if by_element else index, ones),
            expected=(right,),
            signatures={name: (torch.where(right > 0, value, right).to(dtype),) for name, value in names.items()},
        )
        index = even_indices(rows, length, 0)
        # 256 values a row, of which at most 64 differ from zero and are 1 or -1: all partial sums stay below 128.
        values = torch.zeros(length, width, dtype=dtype)
        signs = generator("small values", 0).integers(0, 2, (length // 4, width)) * 2 - 1
        values[torch.argsort(index, stable=True)[::4]] = torch.from_numpy(signs).to(dtype)
        start = (torch.arange(rows * width).reshape(rows, width) % 63).to(dtype)
        cotangent = (torch.arange(rows * width).reshape(rows, width) % 120).to(dtype)
        yield ExactSample(
            input="small integers",
            shape=shape,
            inputs=(start, whole_row(index, width) if by_element else index, values),
            cotangents=(cotangent,),
            expected=((start.double() + summed_rows(index, values, rows)).to(dtype),),
            gradients=(cotangent, cotangent[index]),
        )

    return exact


def _add_oracle(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    by_element = whole_row(index, values.shape[1]) if index.dim() == 1 else index
    return start.double() + scattered(by_element, values, start.shape[0])


def _add_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """The start is one more term of each sum: see `row_sum_bound`."""
    start, index, values = inputs
    by_element = whole_row(index, values.shape[1]) if index.dim() == 1 else index
    return (scatter_bound(by_element, values, start.shape[0], arithmetic, start),)


def _add_gradients(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """Of the start the cotangent itself, of each value the cotangent of where it went."""
    index, cotangent = inputs[1], cotangents[0].double()
    return cotangent, cotangent[index] if index.dim() == 1 else cotangent.gather(0, index)


def _add_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """Both are copies: see `copy_bound`."""
    return copy_bound(inputs[0], arithmetic), copy_bound(inputs[2], arithmetic)


def index_add(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """start [rows, width] with values [N, width] added to the rows in index [N]."""
    return start.index_add(0, index, values)


def scatter_add(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """start [rows, width] with each of values [N, width] added to the row that index [N, width] says for it."""
    return start.scatter_add(0, index, values)


def gather(source: Tensor, index: Tensor) -> Tensor:
    """[N, width]: element (n, c) is source[index[n, c], c]; its backward pass is scatter_add."""
    return source.gather(0, index)


def accumulated_in_order(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """index_add or scatter_add on the host in float32, value after value, rounded once at the end."""
    by_element = whole_row(index, values.shape[1]) if index.dim() == 1 else index
    return start.float().scatter_add(0, by_element, values.float()).to(start.dtype)


def accumulated_by_masks(start: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """The same as sums over all values of which those that go elsewhere are masked to zero, in the order of `sum`."""
    by_element = whole_row(index, values.shape[1]) if index.dim() == 1 else index
    rows = [
        torch.where(by_element == row, values.float(), 0.0).sum(0) + start[row].float() for row in range(len(start))
    ]
    return torch.stack(rows).to(start.dtype)


def _gather_samples(precision: str, plan: Plan) -> Iterator[Sample]:
    dtype = STORAGE[precision]
    for rows, width, length in SHAPES[plan.shapes]:
        for seed in plan.seeds:
            index = _element_indices(rows, width, length, seed)
            for name in plan.inputs or GENERATORS:
                yield Sample(
                    input=name,
                    shape=f"{length} from {rows} rows of {width}",
                    inputs=(make(name, (rows, width), dtype, seed), index),
                    cotangents=(many_rows(name, length, width, dtype, seed=seed, part="gradient"),),
                    seed=seed,
                )


def _gather_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    rows, width, length = SHAPES["one"][0]
    dtype = STORAGE[precision]
    source = (torch.arange(rows * width).reshape(rows, width) % 127).to(dtype)
    right = torch.zeros(rows, width, dtype=dtype)
    right[1] = length
    names = {DROPPED: 1.0, "sum accumulated in bf16" if precision == "fp32" else NARROW: saturated("bf16")}
    if precision == "fp16":
        names[NARROW] = saturated("fp16")
    index = whole_row(torch.ones(length, dtype=torch.int64), width)
    yield ExactSample(
        input="one index every time",
        shape=f"{length} from {rows} rows of {width}",
        inputs=(source, index),
        cotangents=(torch.ones(length, width, dtype=dtype),),
        expected=(source[1].expand(length, width).contiguous(),),
        gradients=(right,),
        signatures={name: (torch.where(right > 0, value, right).to(dtype),) for name, value in names.items()},
    )


def _gather_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """A copy: see `copy_bound`."""
    return (copy_bound(inputs[1], arithmetic),)


def _gather_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """Each element's gradient is the sum over its look-ups: see `row_sum_bound`."""
    source, index = inputs
    return (scatter_bound(index, cotangents[0], source.shape[0], arithmetic),)


def _adding(name: str, function: Callable[[Tensor, Tensor, Tensor], Tensor], by_element: bool) -> Operator:
    return Operator(
        name=name,
        family="indexing",
        function=function,
        samples=_samples(by_element),
        oracle=_add_oracle,
        bound=_add_bound,
        gradient=Gradient(wrt=(0, 2), oracle=_add_gradients, bound=_add_gradient_bound),
        exact=_exact(by_element),
        permitted={"in order": accumulated_in_order, "masked sums": accumulated_by_masks},
    )


ACCUMULATE: list[Operator] = [
    _adding("index add", index_add, by_element=False),
    _adding("scatter add", scatter_add, by_element=True),
    Operator(
        name="gather",
        family="indexing",
        function=gather,
        samples=_gather_samples,
        oracle=lambda source, index: source.double().gather(0, index),
        bound=_gather_bound,
        gradient=Gradient(
            wrt=(0,),
            oracle=lambda inputs, cotangents: (scattered(inputs[1], cotangents[0], inputs[0].shape[0]),),
            bound=_gather_gradient_bound,
        ),
        exact=_gather_exact,
    ),
]
