"""The verdicts on scalar formats, for any caster: a device, or an implementation that is broken on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trnbench.conformance.formats import scalar
from trnbench.conformance.formats.boundaries import boundary_inputs
from trnbench.conformance.formats.caster import Caster, Floats, NotHere
from trnbench.conformance.formats.casts import describe_decode_fault, name_wrong_table, select_model
from trnbench.conformance.formats.definitions import FORMATS, Format
from trnbench.conformance.formats.self_check import PROBE, elided_name, emulation_refusal, was_elided
from trnbench.records.schema import Check

if TYPE_CHECKING:
    from collections.abc import Callable

METRIC = "values that differ from the format's definition"
REFERENCE = "the format's own table, every code exact"

NARROW_SOURCES: dict[str, tuple[str, ...]] = {"fp8 e4m3fn": ("bf16", "fp16"), "fp8 e5m2": ("bf16", "fp16")}
"""16-bit formats from which a format is cast as well: what quantised inference does, all 65536 codes."""

FROM_DOUBLE = ("fp32", "bf16", "fp16", "fp8 e4m3fn", "fp8 e5m2")
ROUND_TRIPS = ("bf16", "fp16", "fp8 e4m3fn", "fp8 e5m2")

SPOTS = 1 << 16
"""Copies of one number between two bf16 numbers: rounding at random shows at once."""


def scalar_questions(target: Format) -> dict[str, Callable[[Caster, str], Check]]:
    """What is asked of a format: name of the question to a function of the caster and the check's name."""
    questions: dict[str, Callable[[Caster, str], Check]] = {}
    if target.bits <= 16:
        questions["decode"] = lambda caster, name: judge_decode(caster, name, target)
    if target.bits == 4:
        questions["nibble order"] = lambda caster, name: judge_nibbles(caster, name, target)
    if target.name != "fp32":
        questions["cast from fp32"] = lambda caster, name: judge_cast(caster, name, target, "fp32")
        questions["overflow"] = lambda caster, name: judge_overflow(caster, name, target)
    for source in NARROW_SOURCES.get(target.name, ()):
        questions[f"cast from {source}"] = _cast_question(target, source)
    if target.name in FROM_DOUBLE:
        questions["cast from fp64"] = _cast_question(target, "fp64")
    if target.name in ROUND_TRIPS:
        questions["round trip"] = lambda caster, name: judge_round_trip(caster, name, target)
    if target.name == "bf16":
        questions["excess precision"] = judge_excess_precision
        questions["rounding repeats"] = lambda caster, name: judge_repeats(caster, name, target)
    return questions


def _cast_question(target: Format, source: str) -> Callable[[Caster, str], Check]:
    return lambda caster, name: judge_cast(caster, name, target, source)


def judge_scalar(
    caster: Caster, names: tuple[str, ...] = tuple(FORMATS), questions: frozenset[str] | None = None
) -> list[Check]:
    """Every question, or only those called `questions`, about the scalar formats called `names`."""
    return [
        ask(caster, f"formats/{name}/{question}", function)
        for name in names
        for question, function in scalar_questions(FORMATS[name]).items()
        if questions is None or question in questions
    ]


def ask(caster: Caster, name: str, function: Callable[[Caster, str], Check]) -> Check:
    """The check, or "not checked" with the reason where the caster has no such cast."""
    try:
        return function(caster, name)
    except NotHere as reason:
        return not_checked(name, str(reason))


def verdict(name: str, mismatches: int, where: str, looks_like: str = "") -> Check:
    """A check at tier T0: nothing may differ."""
    return Check(
        check=name,
        level="formats",
        metric=METRIC,
        value=float(mismatches),
        limit=0.0,
        verdict="fail" if mismatches else "pass",
        reference=REFERENCE,
        where=where,
        tier="T0",
        looks_like=(looks_like or "unexplained") if mismatches else "",
    )


def not_checked(name: str, reason: str) -> Check:
    """A check that could not be made, with the reason."""
    return Check(
        check=name,
        level="formats",
        metric=METRIC,
        value=None,
        limit=0.0,
        verdict="not checked",
        reference=REFERENCE,
        where=reason,
        tier="T0",
    )


def judge_cast(caster: Caster, name: str, target: Format, source: str) -> Check:
    """Rounding, subnormal numbers, zeros and NaN, with every finite input clamped to the format's range before.

    Clamped, because a format may leave open what overflow gives (field case C2): the verdict must not depend on it.
    """
    inputs = _inputs(target, source)
    finite = inputs[~np.isinf(inputs)]
    clamped = np.clip(finite, -target.max, target.max).astype(inputs.dtype)
    selection = select_model(target, clamped, caster.encode(target, clamped, source))
    counted = f"{len(clamped)} inputs, {int(np.sum(np.abs(finite) > target.max))} of them clamped to {target.max:g}"
    counted += f"; {int(np.isinf(inputs).sum())} infinite inputs left to the overflow check"
    rounding = selection.model.split(", overflow", maxsplit=1)[0] if not selection.mismatches else selection.model
    where = "; ".join(part for part in (selection.first, rounding, counted, caster.how(target)) if part)
    return verdict(name, selection.mismatches, where, selection.looks_like)


def judge_overflow(caster: Caster, name: str, target: Format) -> Check:
    """What becomes of numbers beyond the largest, and of infinities, without a clamp; `where` reports both."""
    inputs = _inputs(target, "fp32")
    beyond = np.concatenate([inputs[np.abs(inputs) >= np.float32(target.max)], np.array([np.inf] * 2, np.float32)])
    beyond = beyond if target.signed else beyond[~np.isinf(beyond)]
    found = caster.encode(target, beyond)
    selection = select_model(target, beyond, found)
    got = scalar.decode(target, found)
    parts = [selection.first, selection.model]
    infinite = np.isposinf(beyond)
    if infinite.any():
        parts.append(f"infinity becomes {float(got[infinite][0])!r}")
    parts += [f"{len(beyond)} inputs from {target.max:g}", caster.how(target)]
    return verdict(name, selection.mismatches, "; ".join(part for part in parts if part), selection.looks_like)


def judge_decode(caster: Caster, name: str, target: Format) -> Check:
    """The value of every code."""
    codes = scalar.all_codes(target)
    decoded = caster.decode(target, codes)
    wrong = ~scalar.same_values(decoded, scalar.decode(target, codes))
    where = f"all {len(codes)} codes, {caster.how(target)}"
    if wrong.any():
        at = int(np.argmax(wrong))
        due = float(scalar.decode(target, codes[at]))
        where = f"code {codes[at]:#x} is read as {float(decoded[at])!r}, {due!r} is right; {where}"
    return verdict(name, int(wrong.sum()), where, describe_decode_fault(target, codes, decoded))


def judge_nibbles(caster: Caster, name: str, target: Format) -> Check:
    """All 256 bytes of two codes each: the first element is in the low half, as torch.float4_e2m1fn_x2 stores it."""
    packed = np.arange(256)
    codes = scalar.unpack_nibbles(packed)
    decoded = caster.unpack(target, packed)
    wrong = ~scalar.same_values(decoded, scalar.decode(target, codes))
    where = f"all 256 bytes, {caster.how(target)}"
    return verdict(name, int(wrong.sum()), where, describe_decode_fault(target, codes, decoded))


def judge_round_trip(caster: Caster, name: str, target: Format) -> Check:
    """fp32 -> format -> fp32 in one function equals the format's nearest number; numbers of the format stay."""
    inputs = _inputs(target, "fp32")
    inputs = np.clip(inputs[~np.isinf(inputs)], -target.max, target.max).astype(np.float32)
    outputs = caster.round_trip(target, inputs)
    due = scalar.decode(target, scalar.cast(inputs, target))
    wrong = ~scalar.same_values(outputs, due)
    where = f"{len(inputs)} inputs within {target.max:g}, {caster.how(target)}"
    if not wrong.any():
        return verdict(name, 0, where)
    at = int(np.argmax(wrong))
    where = f"{float(inputs[at])!r} becomes {float(outputs[at])!r}, {float(due[at])!r} is right; {where}"
    if was_elided(inputs, outputs):
        return verdict(name, int(wrong.sum()), where, elided_name(target))
    codes = scalar.cast(inputs, target)
    table = name_wrong_table(codes, outputs, target)
    if table or scalar.same_codes(target, scalar.cast(outputs, target), codes).all():
        return verdict(name, int(wrong.sum()), where, table or "excess precision: rounded less than the format rounds")
    selection = select_model(target, inputs, scalar.cast(outputs, target))
    return verdict(name, int(wrong.sum()), where, selection.looks_like)


def judge_excess_precision(caster: Caster, name: str) -> Check:
    """1 + 2^-9 through bf16 is exactly 1: the self-check before emulated precision counts (field case C11)."""
    refusal = emulation_refusal(caster)
    where = refusal or f"{PROBE!r} becomes exactly 1.0 through bf16 and back"
    elided = refusal == elided_name(FORMATS["bf16"])
    return verdict(
        name, int(refusal is not None), where, refusal if elided and refusal else "another fault of the cast"
    )


def judge_repeats(caster: Caster, name: str, target: Format) -> Check:
    """Copies of a number a quarter of a step above 1 all round down; else the statistics of stochastic rounding."""
    quarter = 2.0 ** -(target.fraction_bits + 2)
    copies = np.full(SPOTS, 1.0 + quarter, dtype=np.float32)
    up = _rounded_up(caster, target, copies)
    if not up.any():
        return verdict(name, 0, f"{SPOTS} copies of {1.0 + quarter!r} all become 1")
    again = _rounded_up(caster, target, copies)
    share = float(up.mean())
    z = (share - 0.25) / np.sqrt(0.25 * 0.75 / SPOTS)
    variance = share * (1.0 - share)
    lag = float(((up[1:] - share) * (up[:-1] - share)).mean() / variance) if variance > 0.0 else 0.0
    repeat = "the same" if np.array_equal(up, again) else "other"
    where = f"{share:.4f} of {SPOTS} copies round up (0.25 expected, z = {z:.1f}); lag-1 correlation {lag:.3f}; "
    where += f"{repeat} bits when repeated"
    rule = "stochastic rounding" if variance > 0.0 else "rounded away from zero"
    return verdict(name, int(up.sum()), where, rule)


def _rounded_up(caster: Caster, target: Format, copies: Floats) -> Floats:
    values = scalar.decode(target, caster.encode(target, copies))
    return np.asarray(values > 1.0, dtype=np.float64)


def _inputs(target: Format, source: str) -> Floats:
    """Boundary inputs of a cast; of a 16-bit source all its numbers. tf32 without fp32's subnormal numbers."""
    if source in ("bf16", "fp16"):
        narrow = FORMATS[source]
        return np.asarray(scalar.decode(narrow, scalar.all_codes(narrow)).astype(np.float32))
    inputs = boundary_inputs(target, source)
    if target.name != "tf32":
        return inputs
    with np.errstate(invalid="ignore"):
        return np.asarray(inputs[~(np.abs(inputs) < np.finfo(np.float32).tiny) | (inputs == 0.0)])
