"""Cast model selection: which way of casting explains every single output of a device, and what that way is called.

A model is a rounding, an overflow behaviour, whether subnormal numbers are flushed, and a narrower format through which
the value went first. It is accepted with zero mismatches only; a wrong model differs on the boundary inputs.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from trnbench.conformance.formats.definitions import FORMATS, Format, Overflow
from trnbench.conformance.formats.scalar import Rounding, cast, decode, is_nan_code, same_codes, same_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

Codes = np.ndarray[Any, np.dtype[np.int64]]

ROUNDING_FAULTS: dict[Rounding, str] = {
    "toward zero": "truncating cast (rounds toward zero)",
    "nearest away": "ties rounded away from zero",
    "up in magnitude": "rounded away from zero",
}
VIA = ("fp16", "bf16", "fp32")
"""Formats that implementations are known to go through on their way to a narrower one."""

SAMPLE = 512
"""About how many wrong outputs a model must explain before it is tried on all."""


class CastModel(msgspec.Struct, frozen=True, kw_only=True):
    """One way of casting. `flush` says which subnormal numbers become zero: "none", "results", or fp32 "inputs"."""

    rounding: Rounding = "nearest even"
    overflow: Overflow
    flush: str = "none"
    via: str = ""

    def apply(self, values: ArrayLike, target: Format) -> Codes:
        """Codes of `values` in `target` by this model."""
        exact = np.asarray(values)
        if self.via:
            through = FORMATS[self.via]
            exact = decode(through, cast(exact, through))
        if self.flush == "inputs":
            with np.errstate(invalid="ignore"):
                exact = np.where(np.abs(exact) < np.finfo(np.float32).tiny, np.copysign(0.0, exact), exact)
        return cast(exact, target, rounding=self.rounding, overflow=self.overflow, flush=self.flush == "results")

    @property
    def name(self) -> str:
        """In words, for a pass and a failure alike."""
        words = [f"round to {self.rounding}" if self.rounding.startswith("nearest") else f"round {self.rounding}"]
        words += [{"infinity": "overflow to infinity", "nan": "overflow to NaN"}.get(self.overflow, self.overflow)]
        words += [f"subnormal {self.flush} flushed"] if self.flush != "none" else []
        words += [f"through {self.via} first"] if self.via else []
        return ", ".join(words)

    def faults(self, target: Format, roundings: tuple[Rounding, ...]) -> list[str]:
        """What `target` does not permit in this model, by name; empty where all of it is permitted."""
        found = [ROUNDING_FAULTS[self.rounding]] if self.rounding not in roundings else []
        if self.overflow not in target.overflow:
            found.append(overflow_fault(self.overflow, target))
        found += ["subnormals flushed"] if self.flush != "none" else []
        return found + ([f"double rounding via {self.via}"] if self.via else [])


def overflow_fault(found: Overflow, target: Format) -> str:
    """The name of an overflow behaviour that `target` does not permit."""
    due = "infinity" if target.has_infinity else "NaN" if target.has_nan else f"{target.max:g}"
    return f"NaN where {due} is right" if found == "nan" else f"saturated where {due} is right"


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """`mismatches` against the permitted model that fits best; `model` in words is the one that fits all outputs.

    `looks_like` names the fault where there is one; `first` describes the first wrong value.
    """

    mismatches: int
    model: str
    looks_like: str = ""
    first: str = ""


def permitted_roundings(target: Format) -> tuple[Rounding, ...]:
    """To nearest even, as OFP8 and IEEE 754 have it; others where the format's specification leaves it open.

    MX 1.0 defines e8m0 as a scale and no cast to it; tensor cores truncate or round operands to tf32, both in use.
    """
    if target.name == "e8m0fnu":
        return ("nearest even", "nearest away", "toward zero", "up in magnitude")
    return ("nearest even", "nearest away", "toward zero") if target.name == "tf32" else ("nearest even",)


def select_model(target: Format, values: ArrayLike, found: ArrayLike) -> Selection:
    """Which model of a cast to `target` gives `found` codes for all `values` (shapes equal)."""
    inputs, outputs = np.asarray(values), np.asarray(found).astype(np.int64)
    roundings = permitted_roundings(target)
    closest: NDArray[np.bool_] | None = None
    due: Codes | None = None
    for rounding, overflow in product(roundings, target.overflow):
        model = CastModel(rounding=rounding, overflow=overflow)
        expected = model.apply(inputs, target)
        wrong = ~same_codes(target, outputs, expected)
        if not wrong.any():
            return Selection(mismatches=0, model=model.name)
        if closest is None or wrong.sum() < closest.sum():
            closest, due = wrong, expected
    assert closest is not None
    assert due is not None
    model_name, looks_like = _explain(target, inputs, outputs, due, closest)
    at = int(np.argmax(closest))
    return Selection(
        mismatches=int(closest.sum()),
        model=model_name,
        looks_like=looks_like,
        first=f"{float(inputs[at])!r} gives code {outputs[at]:#x}, {due[at]:#x} is right",
    )


def _explain(
    target: Format, inputs: NDArray[Any], outputs: Codes, due: Codes, wrong: NDArray[np.bool_]
) -> tuple[str, str]:
    """The model that fits, and the name of the fault; narrow explanations before wide ones."""
    narrow = _only_special_values(target, inputs, outputs, due, wrong)
    if narrow:
        return narrow, narrow
    # Most models fail on a few inputs already; only those that do not are tried on all.
    few = np.concatenate([np.flatnonzero(wrong)[:: max(1, int(wrong.sum()) // SAMPLE)], np.arange(0, len(inputs), 97)])
    for model in _wrong_models(target, inputs):
        if all(
            same_codes(target, outputs[part], model.apply(inputs[part], target)).all() for part in (few, slice(None))
        ):
            return model.name, ", ".join(model.faults(target, permitted_roundings(target)))
    produced, limit = _other_table(target, inputs, outputs), _saturation_limit(target, inputs, outputs)
    if limit is not None:
        alike = f"; codes of {produced} with a NaN of all ones look the same" if produced else ""
        return f"saturates at {limit:g}{alike}", f"saturates at {limit:g}, not {target.max:g}"
    if produced:
        return f"codes of {produced}", f"{produced} read as {short_name(target)}"
    if _between_neighbours(target, inputs, outputs):
        return "either neighbour, without a rule", "stochastic rounding"
    return "none of the known models", "unexplained"


def _only_special_values(
    target: Format, inputs: NDArray[Any], outputs: Codes, due: Codes, wrong: NDArray[np.bool_]
) -> str:
    """Names for casts that are right for every ordinary number."""
    mask = (1 << target.bits) - 1
    minus = 1 << (target.bits - 1)
    if np.all(due[wrong] == minus) and np.all(outputs[wrong] & mask == 0) and target.has_negative_zero:
        return "negative zero lost"
    if target.specials == "fnuz" and np.all(due[wrong] == 0) and np.all(outputs[wrong] & mask == minus):
        return "negative zero becomes NaN"
    if np.all(np.isnan(inputs[wrong])):
        got = decode(target, outputs[wrong])
        if np.all(np.abs(got) == target.max):
            return "NaN becomes the largest number"
        if np.all(np.isinf(got)):
            return "NaN becomes infinity"
        return "NaN becomes zero" if np.all(got == 0.0) else "NaN becomes a number"
    return ""


def _wrong_models(target: Format, inputs: NDArray[Any]) -> Iterator[CastModel]:
    """One fault at a time first, then several at once; permitted overflow first, since clamped inputs do not tell."""
    others: tuple[Overflow, ...] = ("nan", "saturate", "saturate finite")
    ways = (*target.overflow, *(way for way in others if way not in target.overflow))
    roundings: tuple[Rounding, ...] = ("nearest even", "toward zero", "nearest away", "up in magnitude")
    vias = ("", *(via for via in VIA if via != "fp32" or inputs.dtype == np.float64))
    models = [
        CastModel(rounding=rounding, overflow=overflow, flush=flush, via=via)
        for rounding, overflow, flush, via in product(roundings, ways, ("none", "results", "inputs"), vias)
    ]
    yield from sorted(models, key=lambda one: (one.rounding != roundings[0]) + (one.flush != "none") + (one.via != ""))


def _other_table(target: Format, inputs: NDArray[Any], outputs: Codes) -> str:
    """The format of equal width whose codes these are."""
    for other in FORMATS.values():
        if other.bits != target.bits or other.name == target.name or not other.signed:
            continue
        for overflow in other.overflow:
            if same_codes(other, outputs, cast(inputs, other, overflow=overflow)).all():
                return other.name
    return ""


def _saturation_limit(target: Format, inputs: NDArray[Any], outputs: Codes) -> float | None:
    """The number at which a cast saturates that is right below it."""
    got = decode(target, outputs)
    limit = float(np.max(np.abs(got[np.isfinite(got)]), initial=0.0))
    if not 0.0 < limit < target.max:
        return None
    code = int(cast(np.array([limit]), target)[0])
    ways: tuple[Overflow, ...] = ("saturate", "saturate finite")
    fits = (same_codes(target, outputs, cast(inputs, target, overflow=way, limit_code=code)).all() for way in ways)
    return limit if any(fits) else None


def _between_neighbours(target: Format, inputs: NDArray[Any], outputs: Codes) -> bool:
    down = cast(inputs, target, rounding="toward zero")
    up = cast(inputs, target, rounding="up in magnitude")
    beyond = np.abs(inputs) > target.max
    return bool(np.all(same_codes(target, outputs, down) | same_codes(target, outputs, up) | beyond))


def short_name(target: Format) -> str:
    """`name` without the width that a sentence has already said: "e4m3fn" for "fp8 e4m3fn"."""
    return target.name.rsplit(" ", 1)[-1]


def name_wrong_table(codes: ArrayLike, decoded: ArrayLike, produced: Format) -> str | None:
    """In which wrong table `codes` of the format `produced` were read, as "fp8 e4m3 read as e4m3fn"; else None.

    `decoded` are the values that a device made of them (same shape). None where they are right, and where no table, or
    more than one, explains them: e4m3 and e4m3fn differ in 14 codes only.
    """
    if same_values(decoded, decode(produced, codes)).all():
        return None
    fits = [
        other
        for other in FORMATS.values()
        if other.bits == produced.bits
        and other.name != produced.name
        and same_values(decoded, decode(other, codes)).all()
    ]
    return f"{produced.name} read as {short_name(fits[0])}" if len(fits) == 1 else None


def describe_decode_fault(target: Format, codes: ArrayLike, decoded: ArrayLike) -> str:
    """The name of a wrong decode of `target`: another table, halves swapped, subnormals, zeros or NaN; "" if right."""
    due = decode(target, codes)
    with np.errstate(invalid="ignore"):  # signalling NaN
        got = np.asarray(decoded, dtype=np.float64)
    wrong = ~same_values(got, due)
    if not wrong.any():
        return ""
    subnormal = np.abs(due[wrong]) < 2.0**target.least_exponent
    lost_nan = is_nan_code(target, np.asarray(codes)[wrong])
    explanations = {
        name_wrong_table(codes, decoded, target) or "": True,
        f"{target.name} nibbles swapped": target.bits == 4 and same_values(got, swapped_halves(due)).all(),
        "NaN becomes the largest number": lost_nan.all() and np.all(np.abs(got[wrong]) == target.max),
        "NaN lost": lost_nan.all(),
        "negative zero lost": np.all(due[wrong] == 0.0) and np.all(got[wrong] == 0.0),
        "subnormals flushed": np.all(got[wrong] == 0.0) and subnormal.all(),
    }
    finite = np.isfinite(due) & (due != 0.0)
    ratios = np.unique(got[finite] / due[finite])
    explanations[f"every number off by a factor of {ratios[0]:g}"] = len(ratios) == 1
    return next((name for name, holds in explanations.items() if name and holds), "unexplained")


def swapped_halves(values: NDArray[Any]) -> NDArray[Any]:
    """Neighbours exchanged, as when the two 4-bit halves of bytes are taken in the wrong order."""
    return np.asarray(values.reshape(-1, 2)[:, ::-1].reshape(-1))
