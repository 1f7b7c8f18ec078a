"""Comparing tensors without tolerance constants: form, non-finite values, bits, and errors over their own bounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.arithmetic import STORAGE

if TYPE_CHECKING:
    from trnbench.conformance.implementation import Tensors


class Worst(msgspec.Struct, frozen=True, kw_only=True):
    """The element with the largest error over its bound; `ratio` is None where a bound of zero was exceeded."""

    ratio: float | None
    passes: bool
    where: str


class Odd(msgspec.Struct, frozen=True, kw_only=True):
    """A non-finite value where none belongs, or (`finite`) a finite one where infinity is right."""

    finite: bool
    words: str

    def __str__(self) -> str:
        return self.words


def form_mismatch(outputs: Tensors, expected: Tensors, precision: str | None = None) -> str | None:
    """What is wrong with number, shape or dtype of the outputs; None where all are right.

    With `precision`, floating-point outputs must have its dtype; without, exactly that of `expected`.
    """
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs where {len(expected)} are right"
    for index, (output, right) in enumerate(zip(outputs, expected, strict=True)):
        floating = right.is_floating_point()
        dtype = STORAGE[precision] if precision is not None and floating else right.dtype
        if output.shape != right.shape:
            return f"output {index} has shape {list(output.shape)}, {list(right.shape)} is right"
        if output.dtype != dtype:
            return f"output {index} is {_name(output.dtype)}, {_name(dtype)} is right"
    return None


def exact_mismatch(outputs: Tensors, expected: Tensors) -> str | None:
    """Count and first place of elements that differ in any bit; NaN equals NaN of any payload. None where none does."""
    for output, right in zip(outputs, expected, strict=True):
        same = output == right
        if right.is_floating_point():
            # Through float32: signbit and isnan are missing for some 8-bit types, and every value survives the way.
            wide_output, wide_right = (x if x.dtype == torch.float64 else x.float() for x in (output, right))
            same = (wide_output == wide_right) & (torch.signbit(wide_output) == torch.signbit(wide_right))
            same |= wide_output.isnan() & wide_right.isnan()
        if not bool(same.all()):
            index = first_index(~same)
            return (
                f"{int((~same).sum())} of {same.numel()} values are wrong, first {_value(output[index])} where "
                f"{_value(right[index])} is right, at {list(index)}"
            )
    return None


def nonfinite_mismatch(outputs: Tensors, expected: Tensors, bounds: Tensors, precision: str) -> Odd | None:
    """The first value that is NaN or infinite without cause, or finite though the exact result overflows.

    Results within their bound of the overflow threshold (largest finite number plus half an ulp) may be either.
    """
    for output, right, bound in zip(outputs, expected, bounds, strict=True):
        if not right.is_floating_point():
            continue
        facts = torch.finfo(STORAGE[precision])
        threshold = facts.max * (1.0 + facts.eps / 4.0)
        wide, slack = output.double(), torch.nan_to_num(bound, nan=0.0, posinf=math.inf)
        must_be_nan = right.isnan()
        must_be_infinite = (right.abs() - slack >= threshold) & ~must_be_nan | right.isinf()
        must_be_finite = right.abs() + slack < threshold
        bad = must_be_finite & ~torch.isfinite(wide)
        bad |= must_be_nan & ~wide.isnan()
        bad |= ~must_be_nan & wide.isnan()
        bad |= wide.isinf() & (torch.sign(wide) != torch.sign(right)) & ~must_be_nan
        if bool(bad.any()):
            index = first_index(bad)
            count = f"{int(bad.sum())} of {bad.numel()} values"
            words = f"{count} are not what the exact result says, first {_value(wide[index])} at {list(index)}"
            return Odd(finite=False, words=f"{words}, {_value(right[index])} is right")
        saturated = must_be_infinite & torch.isfinite(wide)
        if bool(saturated.any()):
            index = first_index(saturated)
            return Odd(
                finite=True, words=f"saturated at {_value(wide[index])} where infinity is right, at {list(index)}"
            )
    return None


def largest_ratio(outputs: Tensors, expected: Tensors, bounds: Tensors) -> Worst:
    """Largest |output - expected| / bound over the finite values; those not finite `nonfinite_mismatch` has judged.

    Integers must be equal.
    """
    worst = Worst(ratio=0.0, passes=True, where="no error")
    for number, (output, right, bound) in enumerate(zip(outputs, expected, bounds, strict=True)):
        if output.numel() == 0:
            continue
        if not right.is_floating_point():
            wrong = exact_mismatch((output,), (right,))
            if wrong:
                return Worst(ratio=None, passes=False, where=wrong)
            continue
        wide = output.double()
        error = torch.where(torch.isfinite(wide), (wide - right).abs(), torch.zeros_like(right))
        ratio = torch.where(error > 0.0, error / bound, torch.zeros_like(error))
        # An infinite bound promises nothing, and infinity over infinity is no error then.
        ratio = torch.where(bound.isinf(), torch.zeros_like(ratio), ratio)
        index = first_index(ratio == ratio.max())
        largest = float(ratio[index])
        if largest > (worst.ratio or 0.0):
            place = f"worst at {list(index)}" + (f" of output {number}" if len(outputs) > 1 else "")
            where = f"{place}: {_value(wide[index])}, exactly {_value(right[index])}, bound {float(bound[index]):.3g}"
            finite = math.isfinite(largest)
            worst = Worst(ratio=largest if finite else None, passes=largest <= 1.0, where=where)
            if not finite:
                return worst
    return worst


def first_index(mask: Tensor) -> tuple[int, ...]:
    """Position of the first true element, in row-major order."""
    flat = int(torch.argmax(mask.reshape(-1).to(torch.uint8)))
    return tuple(int(axis) for axis in torch.unravel_index(torch.tensor(flat), mask.shape))


def _value(value: Tensor) -> str:
    number = value.item()
    return f"{number:.6g}" if isinstance(number, float) else str(number)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
