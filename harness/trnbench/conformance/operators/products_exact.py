"""Products whose answer is known to the last bit, whatever the order of summation, and what known faults return.

All partial sums are integers that float32 holds, or single terms, and every result is a number of the output dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch
from torch import Tensor

from trnbench.conformance.arithmetic import SIGNIFICANT_BITS, STORAGE
from trnbench.conformance.inputs import generator
from trnbench.conformance.operators.base import ExactSample, Plan
from trnbench.conformance.operators.products_samples import ONE, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.products_views import View

ACCUMULATORS: dict[str, int] = {"bf16 accumulator": 8, "fp16 accumulator": 11, "14-bit accumulator": 14}
"""Significant bits of accumulators that are too narrow; the last is that of Hopper's FP8 products."""

LARGE = {"ones beside 2^9": 9, "ones beside 2^12": 12, "ones beside 2^15": 15}
"""A one added to 2^e is lost in an accumulator of fewer than e + 1 bits, a tie that rounds to even included."""

COUNTED = 256
"""Ones beside the large term: the most that bfloat16 still counts."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Matrices [M, K] and [K, N] of one exact sample and their product, all in float64; `wrong` by fault."""

    input: str
    left: Tensor
    right: Tensor
    expected: Tensor
    wrong: dict[str, Tensor] = {}
    special: bool = False


def cases(precision: str, rows: int, terms: int, columns: int) -> Iterator[Case]:
    """All exact products of one size; `terms` is even and more than 7 * 256, `rows` at least 8."""
    yield _integers(precision, rows, terms, columns)
    yield _ones(rows, terms, columns)
    yield from _beside_large(rows, terms, columns)
    yield from _operand_bits(precision, rows, terms, columns)
    if precision != "fp16":
        yield _operand_range(rows, terms, columns)
    yield _sums_in_range(precision, rows, terms, columns)
    yield _special(precision, rows, terms, columns)


def _integers(precision: str, rows: int, terms: int, columns: int) -> Case:
    """Integers, few enough that the sum of magnitudes stays within 2^p: no order and no tile can lose a bit.

    The last term is among them, so that a kernel which leaves out the tail of K is wrong in every element.
    """
    bits = SIGNIFICANT_BITS["fp32" if precision == "tf32" else precision]
    largest = {8: 1, 11: 3, 24: 63}[bits]
    rng = generator("small integers", 0)
    count = min(terms, 2**bits // largest**2, 200)
    places = np.append(rng.choice(terms - 1, count - 1, replace=False), terms - 1)
    left = np.zeros((rows, terms))
    left[:, places] = rng.integers(1, largest + 1, (rows, count)) * rng.choice((-1, 1), (rows, count))
    right = (rng.integers(1, largest + 1, (terms, columns)) * rng.choice((-1, 1), (terms, columns))).astype(float)
    one, other = torch.from_numpy(left), torch.from_numpy(right)
    return Case(input="small integers", left=one, right=other, expected=one @ other)


def _ones(rows: int, terms: int, columns: int) -> Case:
    """A sum of ones stops at 2^p in an accumulator of p bits: there 2^p + 1 is a tie that rounds to even."""
    left, right = _filled(rows, terms, 1.0), _filled(terms, columns, 1.0)
    wrong = {name: _filled(rows, columns, float(2**bits)) for name, bits in ACCUMULATORS.items() if 2**bits < terms}
    return Case(input="sum of ones", left=left, right=right, expected=_filled(rows, columns, terms), wrong=wrong)


def _beside_large(rows: int, terms: int, columns: int) -> Iterator[Case]:
    """2^e first, ones between, -2^e last: an accumulator that is too narrow forgets the ones."""
    for name, exponent in LARGE.items():
        left = torch.zeros((rows, terms), dtype=torch.float64)
        # An odd step: both of two chains, over even and odd terms, have ones.
        left[:, 1 : terms - 1 : 7][:, :COUNTED] = 1.0
        left[:, 0], left[:, -1] = 2.0**exponent, -(2.0**exponent)
        expected = _filled(rows, columns, COUNTED)
        wrong = {fault: torch.zeros_like(expected) for fault, bits in ACCUMULATORS.items() if bits <= exponent}
        yield Case(input=name, left=left, right=_filled(terms, columns, 1.0), expected=expected, wrong=wrong)


def _operand_bits(precision: str, rows: int, terms: int, columns: int) -> Iterator[Case]:
    """1 + 2^-k times 1, one k a row or column: an operand of p bits keeps it for k < p, and a tie at p rounds to 1."""
    bits = SIGNIFICANT_BITS[precision]
    narrower = {"TF32 operands": 11, "fp16 operands": 11, "bf16 operands": 8, "fp8 e4m3 operands": 4}
    narrower = {name: kept for name, kept in narrower.items() if kept < bits}
    single = {"TF32 operands": "{} operand in TF32", "bf16 operands": "{} operand in bf16"}
    for side, count in (("first", rows), ("second", columns)):
        finest = torch.arange(count, dtype=torch.float64) % (bits - 1) + 1.0
        # The finest first: those that any narrower format loses.
        values = 1.0 + torch.exp2(-(bits - finest))
        left, right = torch.zeros((rows, terms), dtype=torch.float64), _filled(terms, columns, 1.0)
        left[:, 0] = 1.0
        if side == "first":
            left[:, 0] = values
        else:
            right[0] = values
        wrong = {}
        for name, kept in narrower.items():
            rounded = torch.where(bits - finest >= kept, torch.ones_like(values), values)
            lost = rounded[:, None].expand(rows, columns) if side == "first" else rounded.expand(rows, columns)
            wrong[name] = lost.clone()
            if name in single:
                wrong[single[name].format(side)] = lost.clone()
        yield Case(input=f"bits of the {side} operand", left=left, right=right, expected=left @ right, wrong=wrong)


def _operand_range(rows: int, terms: int, columns: int) -> Case:
    """2^20 and 2^-30 as operands: infinity and zero in float16."""
    left, right = torch.zeros((rows, terms), dtype=torch.float64), _filled(terms, columns, 1.0)
    left[0::2, 0], left[1::2, 0] = 2.0**20, 2.0**-30
    expected = left @ right
    wrong = {"fp16 operands": torch.where(expected > 1.0, torch.inf, 0.0)}
    return Case(input="range of the operands", left=left, right=right, expected=expected, wrong=wrong)


def _sums_in_range(precision: str, rows: int, terms: int, columns: int) -> Case:
    """x + x - x - x with x near the largest number of the output, which float32 holds on the way if x is float16's.

    For the other precisions x is 2^100: only a narrower exponent overflows, since whether max + max - max - max is
    zero or infinite in float32 depends on order and on guard bits, and neither is wrong.
    """
    largest = 2.0**15 if precision == "fp16" else 2.0**100
    left, right = torch.zeros((rows, terms), dtype=torch.float64), _filled(terms, columns, 1.0)
    left[:, 0:2], left[:, 2:4], left[:, 4] = largest, -largest, 0.0
    wrong = {"fp16 accumulator": torch.full((rows, columns), torch.inf, dtype=torch.float64)}
    expected = torch.zeros((rows, columns), dtype=torch.float64)
    return Case(input="sums in range", left=left, right=right, expected=expected, wrong=wrong)


def _special(precision: str, rows: int, terms: int, columns: int) -> Case:
    """Infinities and NaN stay in their row, 0 * inf and inf - inf are NaN, and a sum beyond the range is infinite.

    IEEE 754-2019, sections 6.1, 6.2 and 7.2 (invalid operations), 7.4 (overflow under round to nearest).
    """
    left, right = torch.zeros((rows, terms), dtype=torch.float64), _filled(terms, columns, 1.0)
    right[5, 0] = 0.0
    left[0, 1], left[1, 1], left[3, 7] = torch.inf, -torch.inf, torch.nan
    left[2, 2], left[2, terms - 3] = torch.inf, -torch.inf
    left[4, 5] = torch.inf
    left[6, 8], left[6, 11] = (torch.finfo(STORAGE[precision]).max,) * 2
    left[7, terms - 1] = 3.0
    expected = left @ right
    expected[6] = torch.inf
    saturated = expected.clone()
    saturated[6] = torch.finfo(STORAGE[precision]).max
    return Case(
        input="infinities and NaN",
        left=left,
        right=right,
        expected=expected,
        wrong={"saturated where infinity is right": saturated},
        special=True,
    )


def _filled(rows: int, columns: int, value: float) -> Tensor:
    return torch.full((rows, columns), float(value), dtype=torch.float64)


def view_exact(view: View, precision: str, plan: Plan) -> Iterator[ExactSample]:
    """The exact samples of a product without bias; a batch repeats the same matrices."""
    size = ONE[view.name]
    batch, rows, terms, columns = size
    dtype = STORAGE[precision]

    def repeated(matrix: Tensor) -> Tensor:
        return matrix.to(dtype).expand(*batch, *matrix.shape)

    for case in cases(precision, rows, terms, columns):
        cotangents, gradients = None, None
        if case.input == "small integers":
            given = _signs(rows, columns)
            cotangents = (repeated(given).contiguous(),)
            gradients = tuple(
                part.contiguous()
                for part in (
                    view.store_left(repeated(given @ case.right.mT)),
                    view.store_right(repeated(case.left.mT @ given)),
                )
            )
        yield ExactSample(
            input=case.input,
            shape=words(size),
            inputs=view.stored(repeated(case.left), repeated(case.right)),
            cotangents=cotangents,
            expected=(repeated(case.expected).contiguous(),),
            gradients=gradients,
            signatures={name: (repeated(wrong).contiguous(),) for name, wrong in case.wrong.items()},
            special=case.special,
        )


def linear_exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """The same with a bias: of small integers where the product is one, else zero."""
    size = ONE["linear"]
    batch, rows, terms, columns = size
    dtype = STORAGE[precision]
    flat = int(np.prod(batch)) * rows

    def shaped(matrix: Tensor) -> Tensor:
        return matrix.to(dtype).reshape(*batch, rows, -1).contiguous()

    for case in cases(precision, flat, terms, columns):
        integers = case.input == "small integers"
        bias = torch.arange(columns, dtype=torch.float64) - columns // 2 if integers else torch.zeros(columns).double()
        signatures = {name: (shaped(wrong),) for name, wrong in case.wrong.items()}
        cotangents: Tensors | None = None
        gradients: Tensors | None = None
        if integers:
            signatures["bias dropped"] = (shaped(case.expected),)
            signatures["bias added twice"] = (shaped(case.expected + 2.0 * bias),)
            given = _signs(flat, columns)
            cotangents = (shaped(given),)
            gradients = (
                shaped(given @ case.right.mT),
                (given.mT @ case.left).to(dtype),
                given.sum(0).to(dtype),
            )
        yield ExactSample(
            input=case.input,
            shape=f"{words(size)}, bias",
            inputs=(shaped(case.left), case.right.mT.to(dtype).contiguous(), bias.to(dtype)),
            cotangents=cotangents,
            expected=(shaped(case.expected + bias),),
            gradients=gradients,
            signatures=signatures,
            special=case.special,
        )


def _signs(rows: int, columns: int) -> Tensor:
    """Cotangents of 1 and -1: sums over rows and columns stay small integers."""
    return torch.from_numpy(generator("signs", 0).choice((-1.0, 1.0), (rows, columns)))
