"""Sum, mean and cumulative sum: along rows, along columns, and over all elements, in one graph each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from trnbench.conformance.inputs import generator, make, rounded
from trnbench.conformance.operators import reductions_inputs as inputs_of
from trnbench.conformance.operators.base import ExactSample, Gradient, Operator, Plan, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Tensors


def three_ways(reduce: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`reduce`, which takes the last axis away, applied to rows, to columns, and to all elements in row-major order."""
    return reduce(x), reduce(x.transpose(0, 1)), reduce(x.reshape(-1))


def sums(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of rows, of columns, and of all."""
    return x.sum(-1), x.sum(0), x.sum()


def means(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means of rows, of columns, and of all."""
    return x.mean(-1), x.mean(0), x.mean()


def cumulative_sums(x: Tensor) -> tuple[Tensor, Tensor]:
    """Running sums along rows and along columns."""
    return x.cumsum(-1), x.cumsum(0)


def sums_oracle(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In float64."""
    return sums(x.double())


def means_oracle(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In float64."""
    return means(x.double())


def cumulative_oracle(x: Tensor) -> tuple[Tensor, Tensor]:
    """In float64."""
    return cumulative_sums(x.double())


def _lengths(x: Tensor) -> tuple[int, int, int]:
    return x.shape[-1], x.shape[0], x.numel()


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
        for exact, size, length in zip(sums_oracle(x), magnitudes, _lengths(x), strict=True)
    )


def _flushed(terms: int, arithmetic: Arithmetic) -> float:
    """What underflow may cost a sum of `terms`: every term where subnormals are flushed, else the result's rounding."""
    return arithmetic.smallest * (terms + 1 if arithmetic.flushes_subnormals else 1)


def means_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """u_o |y| + (1 + u_o) (c(n) + 2 u_a) sum |x| / n + s: the sum's bound, and 1 / n with its product."""
    (x,) = inputs
    magnitudes = means_oracle(x.abs())
    unit = arithmetic.output_unit
    relative = [arithmetic.growth(length) + 2.0 * arithmetic.accumulator_unit for length in _lengths(x)]
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
    row, column, whole = _lengths(x)
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


def sums_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """Sums that no order of summation can get wrong in float32: equal terms, small integers, cancelled overflow."""
    equal = inputs_of.equal_terms(precision)
    yield _exact("equal terms", equal, sums_oracle(equal), _stopped(equal))
    for seed in plan.seeds[:1]:
        integers = inputs_of.small_integers(precision, seed)
        yield _exact("small integers", integers, sums_oracle(integers))
        if precision == "fp32":
            integers = inputs_of.integers_up_to_2_to_24(seed)
            yield _exact("integers up to 2^24", integers, sums_oracle(integers))
    if precision == "fp16":
        opposite = inputs_of.cancelling_overflow()
        yield _exact("cancelling 60000s", opposite, sums_oracle(opposite))


def means_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """Means of equal numbers, whose sums stop, or overflow, in a 16-bit accumulator."""
    equal = inputs_of.equal_terms(precision)
    stopped = {
        name: tuple(
            (total.double() / length).to(equal.dtype) for total, length in zip(outputs, _lengths(equal), strict=True)
        )
        for name, outputs in _stopped(equal).items()
    }
    yield _exact("equal terms", equal, means_oracle(equal), stopped)
    if precision == "fp16":
        large = torch.full_like(equal, 60000.0)
        infinite = tuple(torch.full_like(one, torch.inf) for one in means(large))
        yield _exact("mean of 60000s", large, means_oracle(large), {"fp16 accumulator overflow": infinite})


def cumulative_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """A one before zeros, and ones of alternating sign like a chessboard: each prefix is 0 or 1 (or -1)."""
    first = torch.zeros_like(inputs_of.equal_terms(precision))
    first[0, 0] = 1.0
    yield _exact("one before zeros", first, cumulative_oracle(first))
    rows, columns = first.shape
    signs = 1.0 - 2.0 * ((torch.arange(rows)[:, None] + torch.arange(columns)) % 2)
    alternating = signs.to(first.dtype)
    yield _exact("alternating ones", alternating, cumulative_oracle(alternating))


def _stopped(equal: Tensor) -> dict[str, Tensors]:
    """Where a running sum of equal terms t stops: at 2^p t in p bits, the next sum rounding back to it."""
    term = float(equal.reshape(-1)[0])
    found = {}
    for name, bits in (("bf16 accumulator", 8), ("fp16 accumulator", 11)):
        found[name] = tuple(
            torch.full_like(right, min(2.0**bits, length) * term, dtype=equal.dtype)
            for right, length in zip(sums_oracle(equal), _lengths(equal), strict=True)
        )
    return found


def _exact(name: str, values: Tensor, expected: Tensors, signatures: dict[str, Tensors] | None = None) -> ExactSample:
    return ExactSample(
        input=name,
        shape=inputs_of.words(values),
        inputs=(values,),
        expected=tuple(one.to(values.dtype) for one in expected),
        signatures=signatures or {},
    )


def special_sums(
    sample: Callable[[str, Plan], Iterator[ExactSample]], reduce: Callable[[Tensor], Tensors]
) -> Callable[[str, Plan], Iterator[ExactSample]]:
    """`sample`, and sums with an infinity, with both infinities (NaN) and with NaN, by IEEE 754."""

    def exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
        yield from sample(precision, plan)
        for name, values in (
            ("infinity", (torch.inf,)),
            ("infinities", (torch.inf, -torch.inf)),
            ("NaN", (torch.nan,)),
        ):
            x = torch.zeros_like(inputs_of.equal_terms(precision))
            x[0, : len(values)] = torch.tensor(values, dtype=x.dtype)
            found = _exact(name, x, reduce(x.double()))
            yield ExactSample(input=name, shape=found.shape, inputs=found.inputs, expected=found.expected, special=True)

    return exact


def pairwise(values: Tensor) -> Tensor:
    """Sum of the last axis in float32 by halves, in the format of `values`."""
    wide = values.float()
    while wide.shape[-1] > 1:
        half = wide.shape[-1] // 2
        rest = wide[..., 2 * half :]
        wide = torch.cat([wide[..., :half] + wide[..., half : 2 * half], rest], dim=-1)
    return wide[..., 0].to(values.dtype)


def serial(values: Tensor) -> Tensor:
    """Sum of the last axis in float32, first to last."""
    wide = values.float()
    total = torch.zeros_like(wide[..., 0])
    for place in range(wide.shape[-1]):
        total = total + wide[..., place]
    return total.to(values.dtype)


def tiled(values: Tensor) -> Tensor:
    """Sum of the last axis in float32, in tiles of 128 whose sums are then added first to last."""
    wide = values.float()
    total = torch.zeros_like(wide[..., 0])
    for start in range(0, wide.shape[-1], 128):
        total = total + pairwise(wide[..., start : start + 128])
    return total.to(values.dtype)


def _mean(reduce: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda values: (reduce(values.float()) / values.shape[-1]).to(values.dtype)


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {"pairwise": pairwise, "serial": serial, "tiles of 128": tiled}
"""Of rows only: the floor is taken from the first output."""

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
        permitted={name: _mean(order) for name, order in ORDERS.items()},
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
