"""Sum, mean and cumulative sum: along rows, along columns, and over all elements, in one graph each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from trnbench.conformance.inputs import generator, make, rounded
from trnbench.conformance.operators import reductions_inputs as inputs_of
from trnbench.conformance.operators.base import Gradient, Operator, Plan, Sample
from trnbench.conformance.operators.reductions_exact import (
    cumulative_exact,
    cumulative_oracle,
    cumulative_sums,
    lengths,
    means,
    means_exact,
    means_oracle,
    special_sums,
    sums,
    sums_exact,
    sums_oracle,
)
from trnbench.conformance.operators.reductions_orders import ORDERS, mean_by, means_under, sums_under

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors


def sums_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """u_o |y| + (1 + u_o) c(n) sum |x| + n s, c(n) from `Arithmetic.growth`: any order (Higham 2002, section 4.2).

    The sum of n numbers is an inner product with ones, whose products are exact. Sums of floating-point numbers never
    underflow to something inexact, so s counts only where subnormal terms are flushed, each of the n by at most s, and
    the result once.
    """
    (x,) = inputs
    magnitudes = sums_oracle(x.abs())
    unit = arithmetic.output_unit
    return tuple(
        unit * exact.abs() + (1.0 + unit) * arithmetic.growth(length) * size + _flushed(length, arithmetic)
        for exact, size, length in zip(sums_oracle(x), magnitudes, lengths(x), strict=True)
    )


def _flushed(terms: int, arithmetic: Arithmetic) -> float:
    """What underflow may cost a sum of `terms`: every term where subnormals are flushed, else the result's rounding."""
    return arithmetic.smallest * (terms + 1 if arithmetic.flushes_subnormals else 1)


def means_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """u_o |y| + (1 + u_o) (c(n) + 2 u_a) sum |x| / n + s: the sum's bound, and 1 / n with its product."""
    (x,) = inputs
    magnitudes = means_oracle(x.abs())
    unit = arithmetic.output_unit
    relative = [arithmetic.growth(length) + 2.0 * arithmetic.accumulator_unit for length in lengths(x)]
    return tuple(
        unit * exact.abs() + (1.0 + unit) * one * size + 2.0 * arithmetic.smallest
        for exact, size, one in zip(means_oracle(x), magnitudes, relative, strict=True)
    )


def cumulative_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """Each prefix has its own: u_o |y_k| + (1 + u_o) c(k) (|x_1| + ... + |x_k|) + s.

    However a parallel scan is arranged, the k-th result is a sum of the first k numbers along some tree; a scan that
    used later numbers and took them away again would not be covered, and would be wrong for infinities.
    """
    (x,) = inputs
    return _running_bound(x, -1, arithmetic), _running_bound(x, 0, arithmetic)


def _running_bound(x: Tensor, axis: int, arithmetic: Arithmetic) -> Tensor:
    wide = x.double()
    growth, flushed = _growth_and_underflow(x.shape[axis], arithmetic)
    if axis == 0:
        growth, flushed = growth[:, None], flushed[:, None]
    unit = arithmetic.output_unit
    exact, size = wide.cumsum(axis), wide.abs().cumsum(axis)
    return unit * exact.abs() + (1.0 + unit) * growth * size + flushed


def _growth_and_underflow(length: int, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
    """`Arithmetic.growth` and `_flushed` of 1 to `length` terms."""
    numbers = range(1, length + 1)
    growth = torch.tensor([arithmetic.growth(terms) for terms in numbers], dtype=torch.float64)
    return growth, torch.tensor([_flushed(terms, arithmetic) for terms in numbers], dtype=torch.float64)


def _spread(cotangents: Tensors, weights: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Tensor:
    """a_i / n + b_j / m + c / (n m) in float64: what three reductions send back to element (i, j)."""
    rows, columns, whole = (cotangent.double() * weight for cotangent, weight in zip(cotangents, weights, strict=True))
    return rows[:, None] + columns[None, :] + whole


def sums_gradient(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """a_i + b_j + c."""
    return (_spread(cotangents),)


def sums_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """((1 + u_o)^2 - 1) (|a| + |b| + |c|) + s: the three gradients are copies, added up in the output format."""
    unit = arithmetic.output_unit
    return (((1.0 + unit) ** 2 - 1.0) * _spread(_sizes(cotangents)) + arithmetic.smallest,)


def _sizes(tensors: Tensors) -> Tensors:
    return tuple(tensor.double().abs() for tensor in tensors)


def means_gradient(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """a_i / n + b_j / m + c / (n m)."""
    return (_spread(cotangents, _reciprocals(inputs[0])),)


def _reciprocals(x: Tensor) -> tuple[float, float, float]:
    row, column, whole = lengths(x)
    return 1.0 / row, 1.0 / column, 1.0 / whole


def means_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """((1 + u_o)^3 (1 + 2 u_a) - 1) (|a| / n + |b| / m + |c| / (n m)) + 3 s.

    Each is divided in float32, perhaps by way of a rounded reciprocal (2 u_a), and rounded to the output format; the
    sum of the three rounds twice more.
    """
    factor = (1.0 + arithmetic.output_unit) ** 3 * (1.0 + 2.0 * arithmetic.accumulator_unit) - 1.0
    return (factor * _spread(_sizes(cotangents), _reciprocals(inputs[0])) + 3.0 * arithmetic.smallest,)


def cumulative_gradient(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """The gradient of a running sum is the running sum from the other end."""
    along_rows, along_columns = (cotangent.double() for cotangent in cotangents)
    return (_reversed(along_rows, -1) + _reversed(along_columns, 0),)


def _reversed(wide: Tensor, axis: int) -> Tensor:
    return wide.flip(axis).cumsum(axis).flip(axis)


def cumulative_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """u_o |y| for the addition of two gradients, and for each of the two its own bound as a running sum."""
    unit = arithmetic.output_unit
    parts = [
        _running_bound(cotangent.flip(axis), axis, arithmetic).flip(axis)
        for cotangent, axis in zip(cotangents, (-1, 0), strict=True)
    ]
    exact = cumulative_gradient(inputs, cotangents)[0].abs()
    return (unit * exact + (1.0 + unit) * (parts[0] + parts[1]) + arithmetic.smallest,)


def _samples(
    cotangents: Callable[[Tensor, int], Tensors], *more: tuple[int, int]
) -> Callable[[str, Plan], Iterator[Sample]]:
    """Both directions in the first shape, and forward in the further ones and in `more`."""

    def samples(precision: str, plan: Plan) -> Iterator[Sample]:
        for seed in plan.seeds:
            for name, x in inputs_of.named(precision, seed):
                words = inputs_of.words(x)
                yield Sample(input=name, shape=words, inputs=(x,), cotangents=cotangents(x, seed), seed=seed)
            for name, x in inputs_of.shaped(precision, plan, seed, *more):
                yield Sample(input=name, shape=inputs_of.words(x), inputs=(x,), seed=seed)

    return samples


def _three_cotangents(values: Tensor, seed: int) -> Tensors:
    """Normal, shaped as the outputs of `sums`."""
    rows, columns = values.shape
    rng = generator("reduction cotangents", seed)
    drawn = [np.asarray(rng.standard_normal(shape)) for shape in ((rows,), (columns,), ())]
    return tuple(rounded(one, values.dtype).reshape(one.shape) for one in drawn)


def _two_cotangents(values: Tensor, seed: int) -> Tensors:
    """Normal, shaped as the input, once an output."""
    shape, dtype = tuple(values.shape), values.dtype
    return make("gaussian", shape, dtype, seed, "rows"), make("gaussian", shape, dtype, seed, "columns")


OPERATORS: list[Operator] = [
    Operator(
        name="sum",
        family="reductions",
        function=sums,
        samples=_samples(_three_cotangents, inputs_of.LONG),
        oracle=sums_oracle,
        bound=sums_bound,
        gradient=Gradient(wrt=(0,), oracle=sums_gradient, bound=sums_gradient_bound),
        exact=special_sums(sums_exact, sums),
        permitted=ORDERS,
        permitted_under=sums_under,
    ),
    Operator(
        name="mean",
        family="reductions",
        function=means,
        samples=_samples(_three_cotangents, inputs_of.LONG),
        oracle=means_oracle,
        bound=means_bound,
        gradient=Gradient(wrt=(0,), oracle=means_gradient, bound=means_gradient_bound),
        exact=special_sums(means_exact, means),
        permitted={name: mean_by(order) for name, order in ORDERS.items()},
        permitted_under=means_under,
    ),
    Operator(
        name="cumsum",
        family="reductions",
        function=cumulative_sums,
        samples=_samples(_two_cotangents),
        oracle=cumulative_oracle,
        bound=cumulative_bound,
        gradient=Gradient(wrt=(0,), oracle=cumulative_gradient, bound=cumulative_gradient_bound),
        exact=special_sums(cumulative_exact, cumulative_sums),
    ),
]
