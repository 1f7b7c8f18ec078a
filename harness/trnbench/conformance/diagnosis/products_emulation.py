"""Matrix products as faulty hardware would compute them, in float64 with every rounding made by hand.

`left` is [..., M, K] and `right` [..., K, N], both float64 and already in the precision's own format.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.diagnosis.generic import significant

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST = 2304
"""Steps up to which a sum is emulated one by one; longer ones would take minutes and show no more than short ones."""

MOST_TERMS = 2**21
"""Products whose terms are all held at once, 8 bytes each."""

TILE = 128
"""Terms whose sum is kept before it is added elsewhere."""


def cut(values: Tensor, bits: int) -> Tensor:
    """Truncated to `bits` significant bits, whatever the exponent."""
    fraction, exponent = torch.frexp(values)
    return torch.ldexp(torch.trunc(torch.ldexp(fraction, torch.tensor(bits))), exponent - bits)


def to_8_bits(values: Tensor) -> Tensor:
    """A bfloat16 accumulator, but for the ends of its range."""
    return significant(values, 8)


def as_bfloat16(values: Tensor) -> Tensor:
    """Rounded to nearest even through float32, which holds every operand that occurs."""
    return values.to(torch.float32).to(torch.bfloat16).double()


def as_float16(values: Tensor) -> Tensor:
    """Rounded to nearest even; beyond 65504 infinite, below 2^-24 zero."""
    return values.to(torch.float32).to(torch.float16).double()


def as_e4m3(values: Tensor) -> Tensor:
    """float8 e4m3fn, saturating at 448 as quantisers do."""
    return values.clamp(-448.0, 448.0).to(torch.float32).to(torch.float8_e4m3fn).double()


def product(left: Tensor, right: Tensor) -> Tensor:
    """Without any error but float64's."""
    return left @ right


def in_three(left: Tensor, right: Tensor) -> Tensor:
    """Each operand as a sum of two bfloat16 numbers, the product of the two small parts left out."""
    a, b = as_bfloat16(left), as_bfloat16(right)
    rest_a, rest_b = as_bfloat16(left - a), as_bfloat16(right - b)
    return a @ b + a @ rest_b + rest_a @ b


def narrow_products(left: Tensor, right: Tensor) -> Tensor | None:
    """Every product rounded to bfloat16, sums exact. (Products of float32 numbers are rounded to float32 before.)"""
    if left.shape[-1] * left.shape[-2] * right.shape[-1] > MOST_TERMS:
        return None
    terms = left.float().unsqueeze(-1) * right.float().unsqueeze(-3)
    return terms.bfloat16().double().sum(-2)


def serial_sums(dtype: torch.dtype) -> Callable[[Tensor, Tensor], Tensor | None]:
    """One term after the other, each sum rounded to float32 and then to `dtype`."""

    def emulate(left: Tensor, right: Tensor) -> Tensor | None:
        if left.shape[-1] > LONGEST:
            return None
        a, b = left.float(), right.float()
        total = torch.zeros(a.shape[:-1] + b.shape[-1:], dtype=dtype)
        for k in range(a.shape[-1]):
            total = torch.addcmul(total.float(), a[..., k, None], b[..., k, None, :]).to(dtype)
        return total.double()

    return emulate


def narrow_sums(rounding: Callable[[Tensor], Tensor], at_once: int) -> Callable[[Tensor, Tensor], Tensor | None]:
    """Sums rounded after every `at_once` exact terms, in the order of K."""

    def emulate(left: Tensor, right: Tensor) -> Tensor | None:
        if left.shape[-1] > LONGEST * at_once:
            return None
        total = torch.zeros(left.shape[:-1] + right.shape[-1:], dtype=torch.float64)
        for start in range(0, left.shape[-1], at_once):
            step = slice(start, start + at_once)
            total = rounding(total + left[..., step] @ right[..., step, :])
        return total

    return emulate


def split(parts: int) -> Callable[[Tensor, Tensor], Tensor | None]:
    """K cut into equal parts; each part's sum is rounded to bfloat16 before they are added exactly."""

    def emulate(left: Tensor, right: Tensor) -> Tensor | None:
        terms = left.shape[-1]
        if terms < 2 * parts:
            return None
        size = math.ceil(terms / parts)
        pieces = [slice(start, start + size) for start in range(0, terms, size)]
        return torch.stack([to_8_bits(left[..., one] @ right[..., one, :]) for one in pieces]).sum(0)

    return emulate


def without_tail(multiple: int, always: bool) -> Callable[[Tensor, Tensor], Tensor | None]:
    """Only whole multiples of K are summed; if `always`, the last is left out even where K is a multiple."""

    def emulate(left: Tensor, right: Tensor) -> Tensor:
        kept = (left.shape[-1] - (1 if always else 0)) // multiple * multiple
        return left[..., :kept] @ right[..., :kept, :]

    return emulate
