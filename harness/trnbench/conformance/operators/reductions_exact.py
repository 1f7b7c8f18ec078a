"""Sums, means and running sums as functions, their oracles, and inputs for which their results are known exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.conformance.operators import reductions_inputs as inputs_of
from trnbench.conformance.operators.base import ExactSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.base import Plan

SPECIAL: dict[str, tuple[float, ...]] = {
    "infinity": (torch.inf,),
    "infinities": (torch.inf, -torch.inf),
    "NaN": (torch.nan,),
}
"""What stands at the head of the first row, before zeros."""


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


def lengths(x: Tensor) -> tuple[int, int, int]:
    return x.shape[-1], x.shape[0], x.numel()


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
            (total.double() / length).to(equal.dtype) for total, length in zip(outputs, lengths(equal), strict=True)
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
            for right, length in zip(sums_oracle(equal), lengths(equal), strict=True)
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
