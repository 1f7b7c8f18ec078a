"""Faults that any operator can have, recognised from the failure itself.

`EMULATIONS` compute what the fault would have returned, from the oracle or by running the oracle on changed inputs;
`OUTCOMES` are statements about the wrong elements, and hold only where every wrong element is of that kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.inputs import rounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.judge import Failure


def flushed(tensor: Tensor) -> Tensor:
    """Subnormal numbers of the tensor's own dtype replaced by zeros of their sign."""
    if not tensor.is_floating_point():
        return tensor
    return torch.where(tensor.abs() < torch.finfo(tensor.dtype).tiny, tensor * 0.0, tensor)


def toward_zero(values: Tensor, dtype: torch.dtype) -> Tensor:
    """float64 `values` truncated to `dtype`; where the nearest number lies beyond a value, the one before it."""
    nearest = rounded(values.numpy(), dtype).reshape(values.shape)
    previous = torch.nextafter(nearest, torch.zeros_like(nearest))
    return torch.where((nearest.double().abs() > values.abs()) & ~values.isinf(), previous, nearest)


def _recomputed(failure: Failure, change: Callable[[Tensor], Tensor]) -> Tensors | None:
    """The oracle of inputs that `change` has altered; None if they all stay what they were."""
    inputs = tuple(change(tensor) for tensor in failure.sample.inputs)
    cotangents = failure.sample.cotangents
    oracle, gradient = failure.operator.oracle, failure.operator.gradient
    before = failure.sample.inputs
    if failure.direction == "forward":
        if oracle is None or all(torch.equal(one, other) for one, other in zip(inputs, before, strict=True)):
            return None
        outputs = oracle(*inputs)
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    if gradient is None or cotangents is None:
        return None
    changed = tuple(change(tensor) for tensor in cotangents)
    pairs = zip((*inputs, *changed), (*before, *cotangents), strict=True)
    if all(torch.equal(one, other) for one, other in pairs):
        return None
    return tuple(gradient.oracle(inputs, changed))


def _inputs_flushed(failure: Failure) -> Tensors | None:
    emulated = _recomputed(failure, flushed)
    return None if emulated is None else _results_flushed(failure, emulated)


def _results_flushed(failure: Failure, results: Tensors | None = None) -> Tensors | None:
    values = failure.expected if results is None else results
    if len(values) != len(failure.outputs):
        return None
    pairs = zip(values, failure.outputs, strict=True)
    return tuple(flushed(_as(value, output)) for value, output in pairs)


def _truncated(failure: Failure) -> Tensors | None:
    if len(failure.expected) != len(failure.outputs):
        return None
    return tuple(
        toward_zero(right.double(), output.dtype) if output.is_floating_point() else right
        for right, output in zip(failure.expected, failure.outputs, strict=True)
    )


def _narrowed(dtype: torch.dtype) -> Callable[[Failure], Tensors | None]:
    """The oracle rounded to a 16-bit format on its way to float32; None where the output is no float32."""

    def emulate(failure: Failure) -> Tensors | None:
        if any(output.dtype != torch.float32 for output in failure.outputs):
            return None
        return tuple(rounded(right.double().numpy(), dtype).reshape(right.shape).float() for right in failure.expected)

    return emulate


def _rounded_twice(failure: Failure) -> Tensors | None:
    """To bfloat16 through 11 bits, as float16 and TF32 have: ties of the second rounding go wrong."""
    if any(output.dtype != torch.bfloat16 for output in failure.outputs):
        return None
    return tuple(significant(right.double(), 11) for right in failure.expected)


def significant(values: Tensor, bits: int) -> Tensor:
    """float64 `values` rounded to nearest even to `bits` significant bits, whatever the exponent."""
    fraction, exponent = torch.frexp(values)
    return torch.ldexp(torch.round(torch.ldexp(fraction, torch.tensor(bits))), exponent - bits)


def _inputs_rounded(dtype: torch.dtype) -> Callable[[Failure], Tensors | None]:
    def emulate(failure: Failure) -> Tensors | None:
        return _recomputed(
            failure, lambda tensor: tensor.to(dtype).float() if tensor.dtype == torch.float32 else tensor
        )

    return emulate


EMULATIONS: dict[str, Callable[[Failure], Tensors | None]] = {
    "subnormals flushed": _inputs_flushed,
    "subnormal results flushed": _results_flushed,
    "truncated output": _truncated,
    "output rounded to bf16": _narrowed(torch.bfloat16),
    "output rounded to fp16": _narrowed(torch.float16),
    "output rounded twice": _rounded_twice,
    "inputs rounded to bf16": _inputs_rounded(torch.bfloat16),
    "inputs rounded to fp16": _inputs_rounded(torch.float16),
}
"""By name: what would have been returned; None where the fault cannot show in this sample."""

SIMPLEST: tuple[str, ...] = ("subnormals flushed", "subnormal results flushed")
"""Named before an operator's own faults where both fit: any narrow format loses subnormals, but not them alone."""


def _wrong(output: Tensor, right: Tensor, bound: Tensor | None) -> Tensor:
    """Elements that are not what they must be: outside the bound, or, without one, different in any bit."""
    same = (output == right) & (torch.signbit(output) == torch.signbit(right))
    same |= output.isnan() & right.isnan()
    if bound is None:
        return ~same
    within = (output - right).abs() <= bound
    return ~(same | within)


def _every_wrong_element(failure: Failure, kind: Callable[[Tensor, Tensor, torch.dtype], Tensor]) -> bool:
    """Whether some element of a floating-point output is wrong, and each such one is of `kind`."""
    if [output.shape for output in failure.outputs] != [right.shape for right in failure.expected]:
        return False
    some = False
    for place, (output, right) in enumerate(zip(failure.outputs, failure.expected, strict=True)):
        bound = None if failure.bounds is None else failure.bounds[place]
        wide, exact = output.double(), right.double()
        wrong = _wrong(wide, exact, bound)
        if bool(wrong.any()):
            some = True
            if not output.is_floating_point() or not bool(kind(wide, exact, output.dtype)[wrong].all()):
                return False
    return some


def _outcome(kind: Callable[[Tensor, Tensor, torch.dtype], Tensor]) -> Callable[[Failure], bool]:
    return lambda failure: _every_wrong_element(failure, kind)


def _saturated(output: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    largest = torch.finfo(dtype).max
    return (output.abs() == largest) & (right.abs() > largest) & (torch.sign(output) == torch.sign(right))


def _flushed_to_zero(output: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    return (output == 0.0) & (right != 0.0) & (right.abs() < torch.finfo(dtype).tiny)


def _other_form(failure: Failure) -> bool:
    if len(failure.outputs) != len(failure.expected):
        return True
    return any(output.shape != right.shape for output, right in zip(failure.outputs, failure.expected, strict=True))


def _all_zero(failure: Failure) -> bool:
    zero = all(bool((output == 0).all()) for output in failure.outputs)
    return zero and any(bool((right != 0).any()) for right in failure.expected)


def _all_nan(failure: Failure) -> bool:
    return all(bool(output.isnan().all()) for output in failure.outputs) and not all(
        bool(right.isnan().all()) for right in failure.expected
    )


OUTCOMES: dict[str, Callable[[Failure], bool]] = {
    "saturated where infinity is right": _outcome(_saturated),
    "subnormals flushed": _outcome(_flushed_to_zero),
    "NaN lost": _outcome(lambda output, right, dtype: right.isnan() & ~output.isnan()),
    "sign of zero lost": _outcome(lambda output, right, dtype: (output == 0.0) & (right == 0.0)),
    "output all zero": _all_zero,
    "output all NaN": _all_nan,
    "outputs of another shape": _other_form,
    "infinity where a finite value is right": _outcome(
        lambda output, right, dtype: output.isinf() & (right.abs() < torch.finfo(dtype).max)
    ),
    "NaN where a number is right": _outcome(lambda output, right, dtype: output.isnan() & ~right.isnan()),
}
"""By name: whether the failure is of that kind."""


def _as(values: Tensor, output: Tensor) -> Tensor:
    if values.dtype == output.dtype or not output.is_floating_point():
        return values.to(output.dtype)
    return rounded(values.double().numpy(), output.dtype).reshape(values.shape)
