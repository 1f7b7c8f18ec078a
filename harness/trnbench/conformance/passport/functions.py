"""Error of elementary functions in units in the last place: every 16-bit value, and a sample of all float32 binades.

The exact value is float64's, whose library errs by less than 2^-50 of it; expressions that cancel (gelu, silu,
softplus) are written so that they do not. An ulp is the distance of the format's numbers at the exact value (Muller et
al., Handbook of Floating-Point Arithmetic, 2nd ed., section 2.6): 0.5 is correctly rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import generator
from trnbench.conformance.passport.instrument import Instrument, Reading, Readings
from trnbench.conformance.passport.products import EVERY
from trnbench.conformance.passport.subject import Unknown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

    Floats = NDArray[np.float64]

LONGEST_ANGLE = 131072.0
"""Angles up to here count as usual for sine and cosine: the longest position that rotary embeddings are used at."""

PER_BINADE = 96
DENSE = 32768


class ElementaryFunction(msgspec.Struct, frozen=True, kw_only=True):
    """`exact` takes and returns float64. `scale` "input": errors count in ulps of the argument, not of the result.

    So for gelu, whose left tail is a difference of nearly equal numbers in every float32 implementation: an error
    relative to the result says nothing there.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    exact: Callable[[Tensor], Tensor]
    scale: Literal["result", "input"] = "result"
    largest: float = math.inf
    """Arguments beyond are reported apart."""


def _gelu(x: Tensor) -> Tensor:
    return 0.5 * x * torch.erfc(-x / math.sqrt(2.0))


def _gelu_tanh(x: Tensor) -> Tensor:
    # 1 + tanh(z) is 2 sigmoid(2 z), which does not cancel.
    return x * torch.sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))


def _softplus(x: Tensor) -> Tensor:
    return x.clamp(min=0.0) + torch.log1p(torch.exp(-x.abs()))


def _plain(name: str, function: Callable[[Tensor], Tensor], largest: float = math.inf) -> ElementaryFunction:
    return ElementaryFunction(name=name, function=function, exact=function, largest=largest)


FUNCTIONS: list[ElementaryFunction] = [
    _plain("exp", torch.exp),
    _plain("exp2", torch.exp2),
    _plain("expm1", torch.expm1),
    _plain("log", torch.log),
    _plain("log1p", torch.log1p),
    _plain("tanh", torch.tanh),
    _plain("sigmoid", torch.sigmoid),
    _plain("erf", torch.erf),
    _plain("sin", torch.sin, LONGEST_ANGLE),
    _plain("cos", torch.cos, LONGEST_ANGLE),
    _plain("rsqrt", torch.rsqrt),
    _plain("sqrt", torch.sqrt),
    _plain("reciprocal", torch.reciprocal),
    ElementaryFunction(name="gelu", function=functional.gelu, exact=_gelu, scale="input"),
    ElementaryFunction(
        name="gelu tanh", function=lambda x: functional.gelu(x, approximate="tanh"), exact=_gelu_tanh, scale="input"
    ),
    ElementaryFunction(name="silu", function=functional.silu, exact=lambda x: x * torch.sigmoid(x)),
    ElementaryFunction(name="softplus", function=functional.softplus, exact=_softplus),
]

BY_NAME = {each.name: each for each in FUNCTIONS}


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """Largest and mean error in ulps over results that are normal numbers; None where no result is.

    `relative` is the largest error over the exact value, `wrong_special` counts results that are NaN or infinite where
    the exact one is not, or the other way round, and `flushes` says that subnormal results came out as zero.
    """

    largest: float | None
    mean: float | None
    relative: float | None
    worst_at: float | None
    beyond: float | None
    wrong_special: int
    flushes: bool


def arguments(precision: str) -> Tensor:
    """Every value of a 16-bit format; in float32 both signs of every binade, and more where functions are steep."""
    dtype = STORAGE[precision]
    if dtype != torch.float32:
        return torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
    rng = generator("elementary functions", 0)
    binades = np.repeat(np.arange(-126, 128), PER_BINADE)
    wide = np.exp2(binades) * (1.0 + rng.random(binades.shape))
    steep = np.exp2(rng.random(DENSE) * 27.0 - 10.0)
    magnitudes = np.minimum(np.concatenate([wide, steep]), torch.finfo(dtype).max)
    return torch.from_numpy(np.concatenate([magnitudes, -magnitudes])).to(dtype)


def ulp(values: Floats, dtype: torch.dtype) -> Floats:
    """Distance of neighbouring numbers of `dtype` at each value."""
    facts = torch.finfo(dtype)
    _, exponents = np.frexp(np.maximum(np.abs(values), facts.tiny))
    # frexp's mantissa lies in [0.5, 1): the value's own exponent is one less.
    return np.exp2(exponents - 1.0) * facts.eps


def errors(function: ElementaryFunction, inputs: Tensor, outputs: Tensor) -> Errors:
    """Compare `outputs`, the device's, with the exact function of `inputs`.

    Subnormal arguments are left out, since a device may take them as zero (a property of its own), and so are
    arguments that are not finite (special values).
    """
    dtype = inputs.dtype
    facts = torch.finfo(dtype)
    x = inputs.double()
    exact = function.exact(x).numpy()
    got, arguments_ = outputs.double().numpy(), x.numpy()
    with np.errstate(invalid="ignore", over="ignore"):
        usable = np.isfinite(arguments_) & ((np.abs(arguments_) >= facts.tiny) | (arguments_ == 0))
        normal = np.isfinite(exact) & (np.abs(exact) >= facts.tiny) & (np.abs(exact) <= facts.max) & usable
        error = np.abs(got - exact)
        ulps = error / ulp(arguments_ if function.scale == "input" else exact, dtype)
        relative = error / np.abs(exact)
    counted = normal & np.isfinite(got) & (np.abs(arguments_) <= function.largest)
    beyond = normal & np.isfinite(got) & (np.abs(arguments_) > function.largest)
    in_range = usable & (np.isnan(exact) | (np.abs(exact) <= facts.max))
    wrong = in_range & (np.isnan(got) != np.isnan(exact)) | (normal & np.isinf(got))
    subnormal = usable & (np.abs(exact) < facts.tiny) & (np.abs(exact) >= 0.5 * facts.tiny)
    worst = int(np.argmax(np.where(counted, ulps, -1.0)))
    return Errors(
        largest=float(ulps[worst]) if counted.any() else None,
        mean=float(ulps[counted].mean()) if counted.any() else None,
        relative=float(relative[counted].max()) if counted.any() else None,
        worst_at=float(arguments_[worst]) if counted.any() else None,
        beyond=float(ulps[beyond].max()) if beyond.any() else None,
        wrong_special=int(wrong.sum()),
        flushes=bool(subnormal.any() and (got[subnormal] == 0).all()),
    )


def measured(subject: Subject, functions: list[ElementaryFunction], inputs: Tensor) -> dict[str, Errors | Unknown]:
    """Errors of several functions at the same arguments, as one graph where the device compiles."""
    outcomes = subject.ask_all({each.name: each.function for each in functions}, inputs)
    return {
        name: outcome if isinstance(outcome, Unknown) else errors(BY_NAME[name], inputs, outcome[0])
        for name, outcome in outcomes.items()
    }


def function_errors(subject: Subject, precision: str) -> Readings:
    """A reading for every function."""
    found = measured(subject, FUNCTIONS, arguments(precision))
    return {name: each if isinstance(each, Unknown) else _reading(each, name) for name, each in found.items()}


def _reading(found: Errors, name: str) -> Reading | Unknown:
    if found.largest is None or found.mean is None or found.worst_at is None:
        return Unknown("no result is a normal number")
    unit = "ulp of the input" if BY_NAME[name].scale == "input" else "ulp"
    verdict = f"{_short(found.largest)} {unit}"
    if found.wrong_special:
        verdict += f", {found.wrong_special} wrong non-finite results"
    if found.flushes:
        verdict += ", flushes subnormal results"
    details: dict[str, Scalar] = {
        "largest": found.largest,
        "mean": found.mean,
        "worst at": found.worst_at,
        "wrong non-finite results": found.wrong_special,
        "flushes subnormal results": found.flushes,
    }
    if found.beyond is not None:
        details[f"largest beyond {BY_NAME[name].largest:g}"] = found.beyond
    return Reading(verdict=verdict, details=details)


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.3g}"


INSTRUMENTS: list[Instrument] = [
    Instrument(
        group="function error", names=tuple(each.name for each in FUNCTIONS), precisions=EVERY, measure=function_errors
    )
]
