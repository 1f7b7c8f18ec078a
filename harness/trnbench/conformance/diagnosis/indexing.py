"""Ways in which look-ups, sums at repeated indices and integers go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.diagnosis.base import Hypothesis
from trnbench.conformance.operators.indexing_accumulate import DROPPED, NARROW, flat, whole_row
from trnbench.conformance.operators.indexing_integers import INTEGERS, TO_FLOAT32, TO_INT32, in_float32, in_int32
from trnbench.conformance.operators.indexing_lookup import PADDING_ROW
from trnbench.conformance.operators.indexing_sums import summed_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.implementation import Tensors

NARROW_GRADIENT = "gradient accumulated in 16 bits"


def accumulated(index: Tensor, values: Tensor, start: Tensor, dtype: torch.dtype) -> Tensor:
    """start [rows, D] with values [N, D] added to rows index [N], one after another, each sum rounded to `dtype`."""
    rows = start.shape[0]
    counts = torch.bincount(index, minlength=rows)
    busiest_first = torch.argsort(counts, descending=True, stable=True)
    rank = torch.argsort(busiest_first)
    by_row = torch.argsort(index, stable=True)
    turn = torch.arange(len(index)) - (counts.cumsum(0) - counts)[index[by_row]]
    # In turn t every row with more than t values takes one: those are the first rows by rank.
    by_turn = torch.argsort(turn * rows + rank[index[by_row]])
    ordered = values[by_row[by_turn]].float()
    sums = start[busiest_first].to(dtype)
    place = 0
    for active in torch.bincount(turn).tolist():
        sums[:active] = (sums[:active].float() + ordered[place : place + active]).to(dtype)
        place += active
    return sums[rank]


def last_values(index: Tensor, values: Tensor, rows: int) -> Tensor:
    """[rows, D]: of each row the last of values [N, D] with that index [N], zero where there is none."""
    places = torch.full((rows,), -1).scatter_reduce(0, index, torch.arange(len(index)), "amax")
    return torch.where(places[:, None] >= 0, values[places.clamp(min=0)], 0)


def _rows_shifted(by: int) -> Callable[[Tensors, str], Tensors]:
    def emulate(inputs: Tensors, precision: str) -> Tensors:
        weight, index = inputs
        return (weight[(index + by) % weight.shape[0]],)

    return emulate


def _gradient_rows_shifted(by: int) -> Callable[[Tensors, Tensors, str], Tensors]:
    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        weight, index = inputs
        return (summed_rows((index + by) % weight.shape[0], cotangents[0], weight.shape[0]),)

    return gradient


def _by_product(inputs: Tensors, precision: str) -> Tensors:
    weight, index = inputs
    hot = torch.nn.functional.one_hot(index, weight.shape[0]).double()
    return (hot @ weight.double(),)


def _last_wins(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
    weight, index = inputs
    return (last_values(index, cotangents[0], weight.shape[0]),)


def _narrow(dtype: torch.dtype | None, padding: int | None) -> Callable[[Tensors, Tensors, str], Tensors | None]:
    """In `dtype`, or in the precision's own: that is no fault in fp32."""

    def gradient(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors | None:
        if (dtype is None) == (precision == "fp32"):
            return None
        weight, index = inputs
        narrow = accumulated(index, cotangents[0], torch.zeros(weight.shape), dtype or STORAGE[precision])
        if padding is not None:
            narrow[padding] = 0.0
        return (narrow,)

    return gradient


def _padding_ignored(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
    weight, index = inputs
    return (summed_rows(index, cotangents[0], weight.shape[0]),)


def _look_up(padding: int | None) -> list[Hypothesis]:
    found = [
        Hypothesis(name="rows off by one", emulate=_rows_shifted(1), gradient=_gradient_rows_shifted(1)),
        Hypothesis(name="rows off by one", emulate=_rows_shifted(-1), gradient=_gradient_rows_shifted(-1)),
        Hypothesis(name="rows looked up by a product", emulate=_by_product),
        Hypothesis(name="last write wins", gradient=_last_wins),
        Hypothesis(name=NARROW_GRADIENT, gradient=_narrow(None, padding)),
        Hypothesis(name="gradient accumulated in bf16", gradient=_narrow(torch.bfloat16, padding)),
        Hypothesis(name="gradient accumulated in fp16", gradient=_narrow(torch.float16, padding)),
    ]
    if padding is not None:
        found.append(Hypothesis(name="padding row receives gradient", gradient=_padding_ignored))
    return found


def _flattened(inputs: Tensors) -> Tensors:
    """Start, index and values of either scatter as columns of one."""
    start, index, values = inputs
    by_element = whole_row(index, values.shape[1]) if index.dim() == 1 else index
    return start.reshape(-1, 1), flat(by_element, values.shape[1]), values.reshape(-1, 1)


def _duplicates_dropped(inputs: Tensors, precision: str) -> Tensors:
    """Every target keeps its start plus the last value that went there."""
    start, index, values = _flattened(inputs)
    sums = start.double() + last_values(index, values.double(), len(start))
    return (sums.reshape(inputs[0].shape),)


def _sum_narrow(dtype: torch.dtype | None) -> Callable[[Tensors, str], Tensors | None]:
    def emulate(inputs: Tensors, precision: str) -> Tensors | None:
        if (dtype is None) == (precision == "fp32"):
            return None
        start, index, values = _flattened(inputs)
        sums = accumulated(index, values, start, dtype or STORAGE[precision])
        return (sums.reshape(inputs[0].shape),)

    return emulate


def _gather_dropped(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
    start = torch.zeros(inputs[0].shape, dtype=cotangents[0].dtype)
    return _duplicates_dropped((start, inputs[1], cotangents[0]), precision)


def _gather_narrow(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors | None:
    start = torch.zeros(inputs[0].shape, dtype=cotangents[0].dtype)
    return _sum_narrow(None)((start, inputs[1], cotangents[0]), precision)


SCATTER = [
    Hypothesis(name=DROPPED, emulate=_duplicates_dropped),
    Hypothesis(name=NARROW, emulate=_sum_narrow(None)),
    Hypothesis(name="sum accumulated in bf16", emulate=_sum_narrow(torch.bfloat16)),
]


def _integers(function: Callable[..., Tensors]) -> list[Hypothesis]:
    return [
        Hypothesis(name=TO_INT32, emulate=lambda inputs, precision: in_int32(function, inputs)),
        Hypothesis(name=TO_FLOAT32, emulate=lambda inputs, precision: in_float32(function, inputs)),
    ]


HYPOTHESES: dict[str, list[Hypothesis]] = {
    "embedding": _look_up(None),
    "embedding with padding row": _look_up(PADDING_ROW),
    "index select": _look_up(None),
    "advanced indexing": _look_up(None),
    "index add": SCATTER,
    "scatter add": SCATTER,
    "gather": [
        Hypothesis(name=DROPPED, gradient=_gather_dropped),
        Hypothesis(name=NARROW, gradient=_gather_narrow),
    ],
    **{operator.name: _integers(operator.function) for operator in INTEGERS},
}
