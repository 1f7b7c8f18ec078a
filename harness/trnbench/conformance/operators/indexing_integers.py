"""Integer arithmetic as indices, counters and positions need it: exact, or wrong.

Checked are values beyond 2^24, where float32 ends, 2^31, where int32 ends, and 2^53, where float64 ends. Addresses
beyond 2^31 elements are not: a tensor of that many elements does not fit the memory of the machines on which these
checks must run, so it is the arithmetic on such indices that is tested here, not a look-up with one.

Integers have no precision: these operators are checked once, with those of fp32. Public failures behind them: an
integer index read as pairs of 32 bits (aws-neuron-sdk#937), int64 exported as int32 with twice the length (#785),
reciprocals of integers (#650), cumsum (#767), an integer division off by one (release notes 2.29 to 2.32), argsort
through bfloat16 (tt-xla#5105), integer products through float32 (neuronx-cc, --implicit-integer-downcast).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
import torch

from trnbench.conformance.implementation import Implementation, Tensors, as_tuple
from trnbench.conformance.operators.base import ExactSample, Finding, Operator, Plan
from trnbench.conformance.operators.indexing_integer_arithmetic import ARITHMETIC
from trnbench.conformance.operators.indexing_integer_movement import MOVEMENT, accumulate, convert_to_integer, look_up
from trnbench.conformance.operators.indexing_integer_values import INT32, INT64, Case, whole

if TYPE_CHECKING:
    from trnbench.conformance.arithmetic import Arithmetic

TO_INT32, TO_FLOAT32 = "int64 truncated to int32", "integers computed in fp32"


def in_int32(function: Callable[..., Tensors], inputs: Tensors) -> Tensors | None:
    """What a device returns that keeps int64 in 32 bits. None where the inputs have no int64 to lose."""
    if not any(tensor.dtype == INT64 for tensor in inputs):
        return None
    right = as_tuple(function(*inputs))
    narrow = as_tuple(function(*(tensor.to(INT32) if tensor.dtype == INT64 else tensor for tensor in inputs)))
    return tuple(
        out.to(INT32).to(good.dtype) if good.dtype == INT64 else out.to(good.dtype)
        for out, good in zip(narrow, right, strict=True)
    )


def in_float32(function: Callable[..., Tensors], inputs: Tensors) -> Tensors | None:
    """What a device returns that computes integers in float32. None where the function takes no floats, or no integers
    come in."""
    if any(tensor.is_floating_point() for tensor in inputs):
        return None
    right = as_tuple(function(*inputs))
    index = function in (look_up, accumulate)
    floats = tuple(tensor if index and number == 1 else tensor.float() for number, tensor in enumerate(inputs))
    try:
        wide = as_tuple(function(*floats))
    except (RuntimeError, NotImplementedError):
        return None
    return tuple(whole(out, good.dtype) for out, good in zip(wide, right, strict=True))


Emulation = Callable[[Callable[..., Tensors], Tensors], Tensors | None]


class Wrong(msgspec.Struct, frozen=True):
    """A known wrong way of computing, by name, for the signatures."""

    name: str
    emulate: Emulation


WRONG = (Wrong(TO_INT32, in_int32), Wrong(TO_FLOAT32, in_float32))


def _exact(case: Case) -> Callable[[str, Plan], Iterator[ExactSample]]:
    def exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
        widths = (torch.int64,) if plan.shapes == "one" else case.dtypes
        for dtype in widths:
            for name, inputs in case.inputs(dtype, plan):
                expected = case.exact(*inputs)
                signatures: dict[str, Tensors] = dict(case.signatures(expected, *inputs)) if case.signatures else {}
                for wrong in WRONG:
                    outputs = wrong.emulate(case.function, inputs)
                    if outputs is not None and not _same(outputs, expected):
                        signatures[wrong.name] = outputs
                yield ExactSample(
                    input=f"{name} ({str(dtype).removeprefix('torch.')})",
                    shape=" and ".join("x".join(str(size) for size in tensor.shape) for tensor in inputs),
                    inputs=inputs,
                    expected=expected,
                    signatures=signatures,
                )

    return exact


def _same(left: Tensors, right: Tensors) -> bool:
    return all(bool(torch.equal(a.nan_to_num(), b.nan_to_num())) for a, b in zip(left, right, strict=True))


OUT_OF_RANGE = (3e9, -3e9, 1e20, -1e20, float("inf"), float("-inf"), float("nan"))


def _out_of_range(
    implementation: Implementation, precision: str, plan: Plan, arithmetic: Arithmetic
) -> Iterator[Finding]:
    """What float32 beyond int32 and int64 becomes. PyTorch leaves it undefined (Tensor.to): told, and never failed."""
    outputs = implementation.forward((torch.tensor(OUT_OF_RANGE).repeat(10)[:64],))
    limits = torch.iinfo(torch.int32)
    narrow = outputs[0][: len(OUT_OF_RANGE)].tolist()
    saturates = narrow[0] == limits.max and narrow[1] == limits.min
    pairs = ", ".join(f"{value:g} -> {found}" for value, found in zip(OUT_OF_RANGE, narrow, strict=True))
    yield Finding(
        operator="conversion to integer",
        direction="forward",
        input="out of range (undefined)",
        tier="T0",
        verdict="pass",
        value=None,
        where=f"undefined by PyTorch, not judged; int32 {'saturates' if saturates else 'does not saturate'}: {pairs}",
    )


def _operator(case: Case) -> Operator:
    return Operator(
        name=case.name,
        family="indexing",
        function=case.function,
        precisions=("fp32",),
        exact=_exact(case),
        statistics=_out_of_range if case.function is convert_to_integer else None,
    )


INTEGERS: list[Operator] = [_operator(case) for case in (*ARITHMETIC, *MOVEMENT)]
