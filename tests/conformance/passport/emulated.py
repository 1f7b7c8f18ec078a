"""A device of known character: host functions with one planted property, behind the interface that probes know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.passport.subject import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    Floats = NDArray[np.float64]


class EmulatedSubject(Subject):
    """Runs functions on the host, some of them replaced by others."""

    def __init__(self, replaced: Mapping[Callable, Callable] | None = None) -> None:
        self.replaced = dict(replaced or {})
        self.calls = 0

    def run(self, function: Callable, *inputs: Tensor) -> tuple[Tensor, ...]:
        self.calls += 1
        return HostImplementation(self.replaced.get(function, function)).forward(inputs)

    def gradient(
        self, function: Callable, inputs: tuple[Tensor, ...], cotangents: tuple[Tensor, ...], wrt: Sequence[int]
    ) -> tuple[Tensor, ...]:
        return HostImplementation(self.replaced.get(function, function)).backward(inputs, cotangents, wrt)


def shortened(values: Floats, bits: int, direction: str = "nearest") -> Floats:
    """float64 values with `bits` significant bits, rounded to nearest even, toward zero, or down."""
    mantissas, exponents = np.frexp(values)
    scaled = np.ldexp(mantissas, bits)
    rounding = {"nearest": np.rint, "zero": np.trunc, "down": np.floor}[direction]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.isfinite(values), np.ldexp(rounding(scaled), exponents - bits), values)


def product(
    *,
    accumulator_bits: int = 24,
    direction: str = "nearest",
    operand_bits: int | None = None,
    operand_direction: str = "nearest",
    product_bits: int | None = None,
    chains: int = 1,
    block: int | None = None,
    flush: bool = False,
    narrow_from_rows: int = 1,
    spread_nan: bool = False,
) -> Callable[[Tensor, Tensor], Tensor]:
    """A matrix product: `chains` running sums over strided terms, or sums of blocks, in `accumulator_bits` bits.

    Operands lose bits only from `narrow_from_rows` rows on.
    """

    def matmul(left: Tensor, right: Tensor) -> Tensor:
        dtype = left.dtype
        a, b = left.double().numpy(), right.double().numpy()
        if operand_bits is not None and len(a) >= narrow_from_rows:
            a, b = (shortened(each, operand_bits, operand_direction) for each in (a, b))
        if flush:
            tiny = torch.finfo(dtype).tiny
            a, b = (np.where(np.abs(each) < tiny, 0.0, each) for each in (a, b))
        terms = a.shape[1]
        groups = (
            [range(start, min(start + block, terms)) for start in range(0, terms, block)]
            if block is not None
            else [range(start, terms, chains) for start in range(chains)]
        )

        def rounded(values: Floats) -> Floats:
            short = shortened(values, accumulator_bits, direction)
            return np.where(np.abs(short) > torch.finfo(torch.float32).max, np.copysign(np.inf, short), short)

        with np.errstate(over="ignore", invalid="ignore"):
            total = None
            for group in groups:
                partial = np.zeros((a.shape[0], b.shape[1]))
                for term in group:
                    exact = a[:, term, None] * b[None, term, :]
                    partial = rounded(partial + (exact if product_bits is None else shortened(exact, product_bits)))
                total = partial if total is None else rounded(total + partial)
        result = torch.from_numpy(total).to(dtype)
        if flush:
            result = torch.where(result.double().abs() < torch.finfo(dtype).tiny, torch.zeros_like(result), result)
        if spread_nan and bool(result.isnan().any()):
            result = torch.full_like(result, float("nan"))
        return result

    return matmul


def bias_after_rounding(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer that rounds its product first."""
    return (inputs.float() @ weight.float().t()).to(inputs.dtype) + bias


def running_sum(values: Tensor) -> Tensor:
    """Sum along the last axis, one after another, each step rounded to the format."""
    total = torch.zeros_like(values[..., 0])
    for term in values.unbind(-1):
        total = total + term
    return total
