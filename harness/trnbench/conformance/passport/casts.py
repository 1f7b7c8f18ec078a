"""Casts to narrow formats: which model of rounding and overflow explains every result, and how codes are read back.

A cast is described by the one model with no mismatch over all values of both 16-bit formats, random float32 values and
every boundary between neighbours. Tables of 8-bit codes come from ml_dtypes.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import ml_dtypes
import msgspec
import numpy as np
import torch

from trnbench.conformance.inputs import generator
from trnbench.conformance.passport.instrument import Instrument, Reading, Readings
from trnbench.conformance.passport.subject import Outcomes, Question, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

    Floats = NDArray[np.float64]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A format with `bits` significant bits, least normal number 2^`least`, and largest number `largest`."""

    name: str
    dtype: torch.dtype
    bits: int
    least: int
    largest: float


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(name="bf16", dtype=torch.bfloat16, bits=8, least=-126, largest=float(torch.finfo(torch.bfloat16).max)),
        Target(name="fp16", dtype=torch.float16, bits=11, least=-14, largest=65504.0),
        Target(name="e4m3fn", dtype=torch.float8_e4m3fn, bits=4, least=-6, largest=448.0),
        Target(name="e5m2", dtype=torch.float8_e5m2, bits=3, least=-14, largest=57344.0),
        Target(name="e4m3fnuz", dtype=torch.float8_e4m3fnuz, bits=4, least=-7, largest=240.0),
        Target(name="e5m2fnuz", dtype=torch.float8_e5m2fnuz, bits=3, least=-15, largest=57344.0),
    )
}
EIGHT_BIT: dict[str, type] = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}

ROUNDINGS: dict[str, Callable[[Floats], Floats]] = {
    "to nearest even": np.rint,
    "toward zero": np.trunc,
    "to nearest, ties away from zero": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}
DETOURS = ("", "fp16", "bf16")


def rounded_to(values: Floats, target: Target, direction: str) -> Floats:
    """Finite values rounded to multiples of the target's ulp, its subnormals included; overflow is not handled."""
    _, exponents = np.frexp(values)
    steps = np.exp2((np.maximum(exponents - 1, target.least) - (target.bits - 1)).astype(np.float64))
    rounded: Floats = ROUNDINGS[direction](values / steps) * steps
    return rounded


def _to(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    def cast(values: Tensor) -> Tensor:
        return values.to(dtype)

    return cast


def _read(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    def decode(codes: Tensor) -> Tensor:
        return codes.to(torch.float32)

    return decode


def inputs_for(target: Target) -> Floats:
    """float32 values, both signs: all 16-bit values, random ones, and the neighbours of every rounding boundary."""
    rng = generator("casts", 0)
    all_values = [all_codes(torch.bfloat16), all_codes(torch.float16)]
    random = rng.standard_normal(32768) * np.exp2(rng.integers(-20, 18, 32768))
    steps = target.least - target.bits + 1 + np.arange(24)
    halves = np.arange(1, 2**target.bits) + 0.5
    boundaries = (halves[:, None] * np.exp2(steps.astype(np.float64))).ravel()
    ends = target.largest * np.array([1.0, 1.0 + 2.0**-20, 1.0 + 2.0 ** -(target.bits + 1), 1.25, 2.0])
    values = np.concatenate([*all_values, random, boundaries, boundaries * (1 + 2.0**-20), boundaries * (1 - 2.0**-20)])
    with np.errstate(over="ignore"):
        both = np.concatenate([values, -values, ends, -ends]).astype(np.float32).astype(np.float64)
    return np.unique(both[np.isfinite(both)])


def all_codes(dtype: torch.dtype) -> Floats:
    """Every finite value of a 16-bit format."""
    values = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype).double()
    finite: Floats = values[values.isfinite()].numpy()
    return finite


def casts(subject: Subject, precision: str) -> Readings:
    """A reading for every cast from `precision` ("fp32" or "bf16") to a narrower format."""
    source = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    values = {name: torch.from_numpy(inputs_for(TARGETS[name])).to(source) for name in _narrower(precision)}
    if precision == "bf16":
        values = dict.fromkeys(values, torch.from_numpy(all_codes(source)).to(source))
    extremes = {name: _extremes(TARGETS[name]).to(source) for name in values}
    questions = [
        Question(name=name, function=_to(TARGETS[name].dtype), inputs=(torch.cat([values[name], extremes[name]]),))
        for name in values
    ]
    outcomes = subject.ask(questions)
    readings: dict[str, Reading | Unknown] = {}
    for name in values:
        outcome = outcomes[name]
        readings[cast_name(precision, name)] = (
            outcome if isinstance(outcome, Unknown) else _reading(TARGETS[name], values[name], decoded(outcome[0]))
        )
    return readings


def _narrower(precision: str) -> list[str]:
    return [name for name in TARGETS if precision == "fp32" or name in EIGHT_BIT]


def cast_name(source: str, target: str) -> str:
    """How a cast is called in the passport."""
    return f"{source} to {target}"


def _extremes(target: Target) -> Tensor:
    """Twice the largest number, and infinity: what overflow and infinity become."""
    return torch.tensor([min(2.0 * target.largest, torch.finfo(torch.float32).max), math.inf], dtype=torch.float64)


def decoded(result: Tensor) -> Floats:
    """Values of a host tensor, 8-bit codes by ml_dtypes' tables."""
    names = {target.dtype: name for name, target in TARGETS.items()}
    name = names.get(result.dtype, "")
    if name in EIGHT_BIT:
        return result.view(torch.uint8).numpy().view(EIGHT_BIT[name]).astype(np.float64)
    return result.double().numpy()


def _reading(target: Target, values: Tensor, got: Floats) -> Reading:
    x = values.double().numpy()
    inside = np.abs(x) <= target.largest
    rounding, mismatches = best_model(target, x[inside], got[: len(x)][inside])
    overflow, infinity = (_extreme_word(float(value), target) for value in got[len(x) :])
    verdict = f"rounds {rounding}" if mismatches == 0 else f"nearest model: {rounding} ({mismatches} mismatches)"
    details: dict[str, Scalar] = {"values": int(inside.sum()), "mismatches": mismatches, "model": rounding}
    return Reading(
        verdict=f"{verdict}; overflow gives {overflow}, infinity {infinity}",
        details={**details, "overflow gives": overflow, "infinity gives": infinity},
    )


def best_model(target: Target, values: Floats, got: Floats) -> tuple[str, int]:
    """The first model without mismatch, else the one with the fewest, and their number."""
    best, fewest = "", len(values) + 1
    for detour, flush, direction in itertools.product(DETOURS, (False, True), ROUNDINGS):
        if detour and TARGETS[detour].bits <= target.bits:
            continue
        start = rounded_to(values, TARGETS[detour], "to nearest even") if detour else values
        model = rounded_to(start, target, direction)
        if flush:
            model = np.where(np.abs(model) < 2.0**target.least, 0.0, model)
        if detour:
            # What the detour's own range cannot hold would overflow there; only the rounding is compared.
            model = np.where(np.abs(start) > TARGETS[detour].largest, got, model)
        mismatches = int((model != got).sum())
        if mismatches < fewest:
            words = f"{direction}{f' by way of {detour}' if detour else ''}{', flushing subnormals' if flush else ''}"
            best, fewest = words, mismatches
        if mismatches == 0:
            break
    return best, fewest


def _extreme_word(value: float, target: Target) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity"
    return "the largest number" if value == target.largest else f"{value:g}"


def decoding(subject: Subject, precision: str) -> Readings:
    """Whether every 8-bit code is read as the value that its format's table says."""
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    questions = [
        Question(name=name, function=_read(TARGETS[name].dtype), inputs=(codes.view(TARGETS[name].dtype),))
        for name in EIGHT_BIT
    ]
    outcomes: Outcomes = subject.ask(questions)
    readings: dict[str, Reading | Unknown] = {}
    for name, outcome in outcomes.items():
        if isinstance(outcome, Unknown):
            readings[f"{name} to fp32"] = outcome
            continue
        table = np.arange(256, dtype=np.uint8).view(EIGHT_BIT[name]).astype(np.float32)
        got = outcome[0].numpy()
        wrong = int(
            (~((got == table) & (np.signbit(got) == np.signbit(table)) | np.isnan(got) & np.isnan(table))).sum()
        )
        verdict = "all codes right" if wrong == 0 else f"{wrong} of 256 codes wrong"
        readings[f"{name} to fp32"] = Reading(verdict=verdict, details={"wrong": wrong})
    return readings


def double_rounding(subject: Subject, precision: str) -> Readings:
    """Whether float64 is rounded once: a tie plus 2^-40, which a stop at float32 loses, rounds up only if so."""
    questions = []
    for name, target in TARGETS.items():
        value = torch.full((16,), 1.0 + 2.0**-target.bits + 2.0**-40, dtype=torch.float64)
        questions.append(Question(name=name, function=_to(target.dtype), inputs=(value,)))
    readings: dict[str, Reading | Unknown] = {}
    for name, outcome in subject.ask(questions).items():
        if isinstance(outcome, Unknown):
            readings[f"fp64 to {name}"] = outcome
            continue
        got = float(decoded(outcome[0])[0])
        words = {1.0: "rounds twice", 1.0 + 2.0 ** (1 - TARGETS[name].bits): "rounds once"}
        readings[f"fp64 to {name}"] = Reading(verdict=words.get(got, f"gives {got:g}"), details={"returned": got})
    return readings


def _cast_instrument(precision: str) -> Instrument:
    names = tuple(cast_name(precision, name) for name in _narrower(precision))
    return Instrument(group="casts", names=names, precisions=(precision,), measure=casts)


INSTRUMENTS: list[Instrument] = [
    _cast_instrument("fp32"),
    _cast_instrument("bf16"),
    Instrument(
        group="casts", names=tuple(f"{name} to fp32" for name in EIGHT_BIT), precisions=("fp32",), measure=decoding
    ),
    Instrument(
        group="casts", names=tuple(f"fp64 to {name}" for name in TARGETS), precisions=("fp32",), measure=double_rounding
    ),
]
