"""Ways in which reductions go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from trnbench.conformance.diagnosis.base import Hypothesis
from trnbench.conformance.inputs import rounded
from trnbench.conformance.operators.reductions_extremes import COUNT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from trnbench.conformance.implementation import Tensors

NARROW: dict[str, type] = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}
"""NumPy's 16-bit types; their running sums round after each addition."""


def _three(name: str, reduce: Callable[[Tensor], Tensor]) -> Hypothesis:
    """A fault of reducing the last axis, met along rows, along columns and over all."""

    def emulate(inputs: Tensors, precision: str) -> Tensors:
        (x,) = inputs
        return reduce(x), reduce(x.mT), reduce(x.reshape(-1))

    return Hypothesis(name=name, emulate=emulate)


def _two(name: str, scan: Callable[[Tensor], Tensor], gradient: bool = False) -> Hypothesis:
    """A fault of a running operation along the last axis, met along rows and along columns."""

    def back(inputs: Tensors, cotangents: Tensors, precision: str) -> Tensors:
        along_rows, along_columns = cotangents
        rows = scan(along_rows.flip(-1)).flip(-1)
        columns = scan(along_columns.flip(0).mT).mT.flip(0)
        return (rows.double() + columns.double(),)

    return Hypothesis(
        name=name,
        emulate=lambda inputs, precision: (scan(inputs[0]), scan(inputs[0].mT).mT),
        gradient=back if gradient else None,
    )


def running(x: Tensor, narrow: str) -> Tensor:
    """Running sum of the last axis, each step rounded to a 16-bit format; float64 out."""
    with np.errstate(over="ignore", invalid="ignore"):
        terms: NDArray[Any] = x.double().numpy().astype(NARROW[narrow])
        return torch.from_numpy(np.add.accumulate(terms, axis=-1).astype(np.float64))


def _narrow_sum(narrow: str) -> Callable[[Tensor], Tensor]:
    return lambda x: running(x, narrow)[..., -1]


def _narrow_mean(narrow: str) -> Callable[[Tensor], Tensor]:
    return lambda x: running(x, narrow)[..., -1] / x.shape[-1]


def _rounded_sum_mean(x: Tensor) -> Tensor:
    """The sum rounded to the output format before it is divided: overflows float16."""
    return _in_format(x.double().sum(-1), x.dtype) / x.shape[-1]


def _in_format(wide: Tensor, dtype: torch.dtype) -> Tensor:
    return rounded(wide.numpy(), dtype).reshape(wide.shape).double()


def _divided_first(x: Tensor) -> Tensor:
    return _in_format(x.double() / x.shape[-1], x.dtype).sum(-1)


def _unbiased(x: Tensor) -> Tensor:
    return x.double().sum(-1) / max(1, x.shape[-1] - 1)


def _exclusive(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[..., :1]).double(), x.double().cumsum(-1)[..., :-1]], dim=-1)


def _reset(x: Tensor) -> Tensor:
    """Begins anew every 128 elements."""
    return torch.cat([tile.double().cumsum(-1) for tile in torch.split(x, 128, dim=-1)], dim=-1)


def _without_nan(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), torch.full_like(x, -torch.inf), x)


def _bf16(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).to(x.dtype)


def _maxima(name: str, change: Callable[[Tensor], Tensor]) -> Hypothesis:
    def emulate(inputs: Tensors, precision: str) -> Tensors:
        x = change(inputs[0])
        return x.amax(-1), x.amax(0)

    return Hypothesis(name=name, emulate=emulate)


def _maximum_of_all(name: str, change: Callable[[Tensor], Tensor]) -> Hypothesis:
    return Hypothesis(name=name, emulate=lambda inputs, precision: (change(inputs[0]).amax(),))


def _first_place(x: Tensor) -> Tensor:
    """Index of the first maximum of the last axis."""
    length = x.shape[-1]
    numbers = torch.arange(length).expand(x.shape)
    return torch.where(x == x.amax(-1, keepdim=True), numbers, length).amin(-1)


def _last_place(x: Tensor) -> Tensor:
    numbers = torch.arange(x.shape[-1]).expand(x.shape)
    return torch.where(x == x.amax(-1, keepdim=True), numbers, -1).amax(-1)


def _nan_last(x: Tensor) -> Tensor:
    """The last index wherever a comparison met NaN."""
    return torch.where(x.isnan().any(-1), x.shape[-1] - 1, _without_nan(x).argmax(-1))


def _off_by(step: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.argmax(-1) + step


def _largest(
    name: str, ranked: Callable[[Tensor], Tensor], index_of: Callable[[Tensor], Tensor] = lambda index: index
) -> Hypothesis:
    """top-k of the numbers `ranked` makes of x, with the values of x; `index_of` alters the indices returned."""

    def emulate(inputs: Tensors, precision: str) -> Tensors:
        (x,) = inputs
        found: list[Tensor] = []
        for values, back in ((x, False), (x.mT, True)):
            order = ranked(values).argsort(dim=-1, descending=True, stable=True)[..., :COUNT]
            pair = values.gather(-1, order), index_of(order)
            found += [one.mT if back else one for one in pair]
        return tuple(found)

    return Hypothesis(name=name, emulate=emulate)


def _one_a_shard(x: Tensor) -> Tensor:
    """Ranks with all but the largest of each shard of 128 at the end, as one candidate a shard is kept."""
    tiles = [torch.where(tile == tile.amax(-1, keepdim=True), tile, -torch.inf) for tile in torch.split(x, 128, dim=-1)]
    return torch.cat(tiles, dim=-1)


def _best_lost(x: Tensor) -> Tensor:
    return torch.where(x == x.amax(-1, keepdim=True), torch.full_like(x, -torch.inf), x)


def _integer_sums(name: str, whole: Callable[[Tensor], Tensor], scan: bool) -> Hypothesis:
    if scan:
        return _two(name, whole)
    return _three(name, lambda x: whole(x)[..., -1])


def _float32_running(x: Tensor) -> Tensor:
    """Running sum of integers in float32, one after another."""
    return torch.from_numpy(np.add.accumulate(x.numpy().astype(np.float32), axis=-1)).long()


def _float64_running(x: Tensor) -> Tensor:
    return torch.from_numpy(np.add.accumulate(x.numpy().astype(np.float64), axis=-1)).long()


def _float32_result(x: Tensor) -> Tensor:
    """Exact sum, held in float32."""
    return x.long().cumsum(-1).float().long()


def _wrapped(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda x: x.long().cumsum(-1).to(dtype).long()


def _integers(scan: bool) -> list[Hypothesis]:
    return [
        _integer_sums("integers wrap at 32 bits", _wrapped(torch.int32), scan),
        _integer_sums("integers wrap at 8 bits", _wrapped(torch.uint8), scan),
        _integer_sums("integers through fp32", _float32_running, scan),
        _integer_sums("integers through fp32", _float32_result, scan),
        _integer_sums("integers through fp64", _float64_running, scan),
    ]


HYPOTHESES: dict[str, list[Hypothesis]] = {
    "sum": [
        _three("last element dropped", lambda x: x.double()[..., :-1].sum(-1)),
        _three("first element dropped", lambda x: x.double()[..., 1:].sum(-1)),
        _three("mean instead of sum", lambda x: x.double().mean(-1)),
        _three("bf16 accumulator", _narrow_sum("bf16")),
        _three("fp16 accumulator", _narrow_sum("fp16")),
    ],
    "mean": [
        _three("divided by n - 1", _unbiased),
        _three("sum instead of mean", lambda x: x.double().sum(-1)),
        _three("last element dropped", lambda x: x.double()[..., :-1].sum(-1) / x.shape[-1]),
        _three("sum rounded to the output format before division", _rounded_sum_mean),
        _three("terms divided before they are added", _divided_first),
        _three("bf16 accumulator", _narrow_mean("bf16")),
        _three("fp16 accumulator", _narrow_mean("fp16")),
    ],
    "cumsum": [
        _two("exclusive running sum", _exclusive, gradient=True),
        _two("running sum begins anew every 128 elements", _reset, gradient=True),
        _two("bf16 accumulator", lambda x: running(x, "bf16"), gradient=True),
        _two("fp16 accumulator", lambda x: running(x, "fp16"), gradient=True),
    ],
    "amax": [
        _maxima("NaN ignored", _without_nan),
        _maxima("maximum of absolute values", torch.abs),
        Hypothesis(
            name="minimum instead of maximum",
            emulate=lambda inputs, precision: (inputs[0].amin(-1), inputs[0].amin(0)),
        ),
        _maxima("computed on bf16-rounded values", _bf16),
    ],
    "amax of all": [
        Hypothesis(name="not reduced", emulate=lambda inputs, precision: inputs),
        _maximum_of_all("NaN ignored", _without_nan),
        _maximum_of_all("maximum of absolute values", torch.abs),
        _maximum_of_all("computed on bf16-rounded values", _bf16),
    ],
    "argmax": [
        _three("NaN ignored", lambda x: _without_nan(x).argmax(-1)),
        _three("last index of a row with NaN", _nan_last),
        _three("argmax off by one", _off_by(1)),
        _three("argmax off by one", _off_by(-1)),
        _three("index of the minimum", lambda x: x.argmin(-1)),
        _three("computed on bf16-rounded values", lambda x: _first_place(_bf16(x))),
        _three("computed on bf16-rounded values", lambda x: _last_place(_bf16(x))),
        _three("argmax of absolute values", lambda x: x.abs().argmax(-1)),
    ],
    "top-k": [
        _largest("best element lost", _best_lost),
        _largest("one candidate a shard of 128", _one_a_shard),
        _largest("computed on bf16-rounded values", _bf16),
        _largest("top-k indices off by one", lambda x: x, lambda index: index + 1),
        _largest("NaN ignored", _without_nan),
        _largest("smallest instead of largest", torch.neg),
    ],
    "sum of integers": _integers(scan=False),
    "cumsum of integers": _integers(scan=True),
}
