"""Maximum, its index, and the k largest: exact in every format, so tier T0 and bounds of zero.

Ties: which index is returned PyTorch leaves open for argmax and topk, so any index of a maximum is right, and is judged
as such (tier T3, though nothing is random). Gradients of amax it documents: evenly distributed between equal values.
NaN counts as the largest value (documentation of `torch.amax` by way of `torch.max`, and of `torch.sort`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.inputs import generator, rounded
from trnbench.conformance.operators import reductions_inputs as inputs_of
from trnbench.conformance.operators.base import ExactSample, Finding, Gradient, Operator, Plan, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Implementation, Tensors

COUNT = 8
"""The k of top-k, as samplers and mixtures of experts use it."""


def maxima(x: Tensor) -> tuple[Tensor, Tensor]:
    """Largest of each row and of each column."""
    return x.amax(-1), x.amax(0)


def maximum_of_all(x: Tensor) -> Tensor:
    """Largest of all, by `amax` without dimensions, an operator of its own in some backends."""
    return x.amax()


def places(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Index of the largest of each row, of each column, and of all in row-major order."""
    return x.argmax(-1), x.argmax(0), x.argmax()


def largest(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The 8 largest of each row and of each column in falling order, and their indices."""
    return (*x.topk(COUNT, dim=-1), *x.topk(COUNT, dim=0))


def maxima_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """0: a maximum is one of its arguments. Where subnormals are flushed, arguments that small are all alike."""
    return tuple(torch.full_like(one, _alike(arithmetic), dtype=torch.float64) for one in maxima(inputs[0]))


def maximum_of_all_bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """0, as `maxima_bound`."""
    return (torch.full((), _alike(arithmetic), dtype=torch.float64),)


def _alike(arithmetic: Arithmetic) -> float:
    """How far two numbers may be apart that compare as equal: twice the least normal number, where it is the limit."""
    return 2.0 * arithmetic.smallest if arithmetic.flushes_subnormals else 0.0


def _share(x: Tensor, cotangent: Tensor, axis: int) -> Tensor:
    """Incoming gradient of one maximum, divided evenly between the elements equal to it, in float64."""
    wide = x.double()
    equal = wide == wide.amax(axis, keepdim=True)
    return equal * cotangent.double().unsqueeze(axis) / equal.sum(axis, keepdim=True)


def maxima_gradient(inputs: Tensors, cotangents: Tensors) -> Tensors:
    """The shares of each row's and each column's gradient."""
    (x,) = inputs
    return (_share(x, cotangents[0], -1) + _share(x, cotangents[1], 0),)


def maxima_gradient_bound(inputs: Tensors, cotangents: Tensors, arithmetic: Arithmetic) -> Tensors:
    """((1 + u_o)^3 - 1) (|share of row| + |share of column|) + 2 s, and 0 where both are 0.

    A count of equals is rounded to the output format, the quotient too (s if it is subnormal), and the sum of two.
    Elements that are no maximum receive an exact zero. Where subnormals are flushed, those next to the maximum may be
    counted as equal.
    """
    (x,) = inputs
    rows, columns = _share(x, cotangents[0].abs(), -1), _share(x, cotangents[1].abs(), 0)
    return (_shares_bound(rows + columns, x, cotangents, arithmetic),)


def _shares_bound(size: Tensor, x: Tensor, cotangents: Tensors, arithmetic: Arithmetic) -> Tensor:
    bound = ((1.0 + arithmetic.output_unit) ** 3 - 1.0) * size + 2.0 * arithmetic.smallest * (size > 0.0)
    if arithmetic.flushes_subnormals and bool((x.abs() < torch.finfo(x.dtype).tiny).any()):
        return bound + sum(float(cotangent.double().abs().max()) for cotangent in cotangents)
    return bound


def _samples(precision: str, plan: Plan) -> Iterator[Sample]:
    """Every input, with normal cotangents for the maxima of rows and of columns."""
    for seed in plan.seeds:
        for name, x in inputs_of.named(precision, seed):
            rng = generator("maximum cotangents", seed)
            incoming = tuple(rounded(rng.standard_normal(length), x.dtype) for length in x.shape)
            yield Sample(input=name, shape=inputs_of.words(x), inputs=(x,), cotangents=incoming, seed=seed)
        for name, x in inputs_of.shaped(precision, plan, seed, inputs_of.LONG):
            yield Sample(input=name, shape=inputs_of.words(x), inputs=(x,), seed=seed)


def _exact(
    function: Callable[[Tensor], Tensor | tuple[Tensor, ...]],
) -> Callable[[str, Plan], Iterator[ExactSample]]:
    """Numbers that occur once, far apart and side by side; one NaN; infinities. PyTorch in float64 on the host agrees.

    Conversion to float64 keeps every number, order and NaN, so that only the index and value types are left to restore.
    """

    def sample(name: str, x: Tensor, seed: int, special: bool = False) -> ExactSample:
        outputs = function(x.double())
        several = (outputs,) if isinstance(outputs, Tensor) else outputs
        expected = tuple(one.to(x.dtype) if one.is_floating_point() else one for one in several)
        words = inputs_of.words(x)
        return ExactSample(input=name, shape=words, inputs=(x,), expected=expected, seed=seed, special=special)

    def exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
        for seed in plan.seeds:
            yield sample("distinct numbers", inputs_of.distinct(precision, seed), seed)
            yield sample("neighbouring numbers", inputs_of.distinct(precision, seed, close=True), seed)
            negative = -inputs_of.distinct(precision, seed, close=True)
            negative[0, 0] = -0.5
            yield sample("negative numbers", negative, seed)
            yield sample("one NaN", inputs_of.with_nan(precision, seed), seed, special=True)
            infinite = inputs_of.distinct(precision, seed)
            infinite[0, 0], infinite[-1, -1] = torch.inf, -torch.inf
            yield sample("infinities", infinite, seed, special=True)

    return exact


def places_statistics(
    implementation: Implementation, precision: str, plan: Plan, arithmetic: Arithmetic
) -> Iterator[Finding]:
    """argmax of tied numbers and of many NaN: the indexed element equals the maximum, whichever it is."""
    for name, x in _tied(precision, plan):
        rows, columns, whole = implementation.forward((x,))
        pairs = ((x, rows, -1), (x, columns, 0), (x.reshape(-1), whole, 0))
        wrong = [_wrong_places(values, index, axis) for values, index, axis in pairs]
        yield _finding("argmax", name, x, sum(wrong), _argmax_fault((rows, columns, whole), x))


def _wrong_places(values: Tensor, index: Tensor, axis: int) -> int:
    """How many indices do not point at a maximum along `axis`."""
    length = values.shape[axis]
    within = (index >= 0) & (index < length)
    found = values.gather(axis, index.clamp(0, length - 1).unsqueeze(axis)).squeeze(axis).double()
    right = values.double().amax(axis)
    return int((~(within & ((found == right) | (found.isnan() & right.isnan())))).sum())


def _argmax_fault(outputs: Tensors, x: Tensor) -> str:
    """The name of the fault that explains all outputs, or empty."""
    without = torch.nan_to_num(x, nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    pairs = ((-1, outputs[0]), (0, outputs[1]))
    if bool(x.isnan().any()) and sum(_wrong_places(without, index, axis) for axis, index in pairs) == 0:
        return "NaN ignored"
    if sum(_wrong_places(x, index - 1, axis) for axis, index in pairs) == 0:
        return "argmax off by one"
    return "index of no maximum"


def largest_statistics(
    implementation: Implementation, precision: str, plan: Plan, arithmetic: Arithmetic
) -> Iterator[Finding]:
    """top-k of tied numbers and of many NaN: values as a sort gives them; indices distinct, each of its value."""
    for name, x in _tied(precision, plan):
        outputs = implementation.forward((x,))
        wrong, fault = 0, ""
        for axis, values, index in ((-1, outputs[0], outputs[1]), (0, outputs[2], outputs[3])):
            right = x.double().sort(dim=axis, descending=True).values.narrow(axis, 0, COUNT)
            lost = int((~_same(values.double(), right)).sum())
            within = index.clamp(0, x.shape[axis] - 1)
            elsewhere = int((~_same(x.gather(axis, within).double(), values.double()) | (within != index)).sum())
            ordered = index.sort(dim=axis).values
            repeated = int((ordered.diff(dim=axis) == 0).sum())
            wrong += lost + elsewhere + repeated
            fault = fault or ("wrong values" if lost else "indices of other values" if elsewhere else "")
            fault = fault or ("one element twice" if repeated else "")
        yield _finding("top-k", name, x, wrong, fault)


def _same(values: Tensor, right: Tensor) -> Tensor:
    return (values == right) | (values.isnan() & right.isnan())


def _tied(precision: str, plan: Plan) -> Iterator[tuple[str, Tensor]]:
    """Few different numbers, one number, and a NaN in every second place."""
    tied = inputs_of.tied(precision, plan.seeds[0])
    yield "ties", tied
    yield "all equal", torch.ones_like(tied)
    half = tied.clone()
    half[:, ::2] = torch.nan
    yield "many NaN", half


def _finding(operator: str, name: str, x: Tensor, wrong: int, fault: str) -> Finding:
    return Finding(
        operator=operator,
        direction="forward",
        input=name,
        tier="T3",
        verdict="fail" if wrong else "pass",
        value=None if wrong else 0.0,
        where=f"{wrong} values or indices are wrong; {inputs_of.words(x)}",
        looks_like=fault if wrong else "",
    )


OPERATORS: list[Operator] = [
    Operator(
        name="amax",
        family="reductions",
        function=maxima,
        samples=_samples,
        oracle=lambda x: maxima(x.double()),
        bound=maxima_bound,
        gradient=Gradient(wrt=(0,), oracle=maxima_gradient, bound=maxima_gradient_bound),
        exact=_exact(maxima),
    ),
    Operator(
        # Forward only: where the result has a wrong shape no gradient can be asked for.
        name="amax of all",
        family="reductions",
        function=maximum_of_all,
        samples=_samples,
        oracle=lambda x: maximum_of_all(x.double()),
        bound=maximum_of_all_bound,
        exact=_exact(maximum_of_all),
    ),
    Operator(
        name="argmax",
        family="reductions",
        function=places,
        exact=_exact(places),
        statistics=places_statistics,
    ),
    Operator(
        name="top-k",
        family="reductions",
        function=largest,
        exact=_exact(largest),
        statistics=largest_statistics,
    ),
]
