"""The arithmetic of a device as the bounds take it: the few probes of the passport that select their constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.conformance.arithmetic import SIGNIFICANT_BITS, USUAL_FUNCTION_ERROR, Arithmetic
from trnbench.conformance.passport import accumulator, elementwise, epilogue, functions, products, randomness
from trnbench.conformance.passport.subject import DeviceSubject, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.backends.base import Backend
    from trnbench.conformance.passport.subject import Subject

FLOAT32_FUNCTION = 2.0 ** -SIGNIFICANT_BITS["tf32"]
"""Relative error from which a function is not a float32 one: the unit of tf32 and fp16, the next narrower formats."""

NARROW = ("bf16", "fp16")
SAMPLE = 4096


def measure_arithmetic(backend: Backend, mode: str, precision: str) -> Arithmetic:
    """Probe the open backend and return the arithmetic that its operators are judged by; see `arithmetic_of`.

    Raises nothing that a probe raises: what cannot be measured keeps IEEE's value, the strictest.
    """
    with backend.numerics(precision):
        return arithmetic_of(DeviceSubject(backend, mode), precision)


def arithmetic_of(subject: Subject, precision: str) -> Arithmetic:
    """IEEE arithmetic, replaced where a device is built otherwise without being wrong.

    What the passport may excuse, because documented hardware is made so and every result stays within a bound that is
    known beforehand:

    * accumulators that round toward zero, or up or down (NVIDIA's tensor cores and AMD's CDNA3: Fasi et al. 2021;
      MMA-Sim, arXiv 2511.10909): the unit of every sum doubles, and sums lose the mean-zero argument of tier T2;
    * subnormals flushed to zero: absolute errors up to the least normal number;
    * a linear layer that rounds its product before it adds the bias (R = 2 of facts on epilogues: XLA's CPU);
    * stochastic rounding: a whole ulp instead of half of one;
    * an elementary function less exact than usual, as long as it still is a float32 function.

    What it never excuses: an accumulator of fewer than 24 bits, operands that lose bits, a function with an error of
    2^-11 or more, overflow inside a sum. Those are findings, and the checks must fail where they show.
    """
    stochastic = precision in NARROW and _true(lambda: randomness.is_stochastic(subject, precision))
    return Arithmetic(
        precision=precision,
        accumulates_toward_zero=_true(lambda: _is_directed(subject, precision)),
        flushes_subnormals=_true(lambda: _flushes(subject, precision)),
        epilogue_roundings=2 if precision in NARROW and _true(lambda: _rounds_twice(subject, precision)) else 1,
        stochastic_rounding=stochastic,
        function_error=_function_errors(subject),
    )


def _true(measure: Callable[[], bool]) -> bool:
    """The measurement, or False, IEEE's answer, where the probe does not run on this device."""
    try:
        return measure()
    except Exception:
        # A runtime may raise anything for an operator it lacks; the operator's own check will say so.
        return False


def _is_directed(subject: Subject, precision: str) -> bool:
    """True where sums are rounded otherwise than to nearest."""
    direction, _, _ = accumulator.rounding_direction(subject, precision, accumulator.FLOAT32_BITS)
    return direction in accumulator.DIRECTED


def _flushes(subject: Subject, precision: str) -> bool:
    """True where matrix products or elementwise operators lose subnormals."""
    kept = products.kept_subnormals(subject, precision)
    return not all(kept.values()) or bool(elementwise.flushed(subject, precision)[0])


def _rounds_twice(subject: Subject, precision: str) -> bool:
    return epilogue.roundings(subject, precision, "linear") == epilogue.SEPARATE


def _function_errors(subject: Subject) -> dict[str, float]:
    """Relative errors of float32 functions that exceed the usual, and still are errors of float32 functions."""
    chosen = [functions.BY_NAME[name] for name in USUAL_FUNCTION_ERROR]
    found = functions.measured(subject, chosen, _arguments())
    return {
        name: each.relative
        for name, each in found.items()
        if not isinstance(each, Unknown)
        and each.relative is not None
        and USUAL_FUNCTION_ERROR[name] * torch.finfo(torch.float32).eps < each.relative < FLOAT32_FUNCTION
    }


def _arguments() -> torch.Tensor:
    """Where transformers use functions: magnitudes from 2^-20 to 2^6, both signs, evenly by exponent."""
    magnitudes = torch.exp2(torch.linspace(-20.0, 6.0, SAMPLE, dtype=torch.float64)).to(torch.float32)
    return torch.cat([magnitudes, -magnitudes])
