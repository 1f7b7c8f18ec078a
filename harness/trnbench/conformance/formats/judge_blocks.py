"""The verdicts on block-scaled formats, for any caster, and the names of wrong scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from trnbench.conformance.formats import blocks, scalar
from trnbench.conformance.formats.block_formats import BLOCK_FORMATS, RULES, BlockFormat
from trnbench.conformance.formats.blocks import Quantised, block_inputs, wrong_elements
from trnbench.conformance.formats.judge import ask, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from trnbench.conformance.formats.caster import Caster
    from trnbench.records.schema import Check

ORDINARY = ("ordinary", "zero", "tiny", "huge", "NaN", "infinity")
"""Kinds of `block_inputs` in the check "quantise"; subnormal inputs are a check of their own."""

NOT_FINITE = ("NaN", "infinity")


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of input: what was given, what came back, what is right, and which elements are wrong."""

    kind: str
    values: np.ndarray
    found: Quantised
    due: Quantised
    wrong: np.ndarray


def judge_blocks(caster: Caster, names: tuple[str, ...] = tuple(BLOCK_FORMATS)) -> list[Check]:
    """Quantise, also subnormal numbers, and dequantise, for the formats called `names`."""
    return [
        ask(caster, f"formats/{name}/{question}", function)
        for name in names
        for question, function in block_questions(BLOCK_FORMATS[name]).items()
    ]


def block_questions(one: BlockFormat) -> dict[str, Callable[[Caster, str], Check]]:
    """Name of each question about a block-scaled format to a function of the caster and the check's name."""
    return {
        "quantise": lambda caster, name: judge_quantise(caster, name, one, ORDINARY),
        "quantise subnormal inputs": lambda caster, name: judge_quantise(caster, name, one, ("subnormal",)),
        "dequantise": lambda caster, name: judge_dequantise(caster, name, one),
    }


def judge_quantise(caster: Caster, name: str, one: BlockFormat, kinds: tuple[str, ...]) -> Check:
    """Every scale and every element code, on blocks of all kinds; elements of a NaN block do not matter."""
    inputs = block_inputs(one)
    outcomes = []
    for kind in kinds:
        values = inputs[kind]
        due = blocks.quantise(values, one)
        found = caster.quantise(one, values)
        if found.scales.shape != due.scales.shape or found.codes.shape != due.codes.shape:
            return verdict(name, due.codes.size, *_wrong_form(one, found, due))
        outcomes.append(_Outcome(kind=kind, values=values, found=found, due=due, wrong=wrong_elements(one, found, due)))
    bad = [outcome for outcome in outcomes if outcome.wrong.any()]
    saturated = sum(_saturated(one, outcome.values, outcome.due) for outcome in outcomes)
    elements = sum(outcome.values.size for outcome in outcomes)
    where = f"{elements} elements in blocks of {one.block}, scale {RULES[one.rule]}; {saturated} elements saturate by"
    where += f" that rule; {caster.how(one)}"
    if not bad:
        return verdict(name, 0, where)
    where = f"{_first_wrong(one, bad[0])}; {where}"
    return verdict(name, int(sum(outcome.wrong.sum() for outcome in bad)), where, _name_fault(one, outcomes, bad))


def judge_dequantise(caster: Caster, name: str, one: BlockFormat) -> Check:
    """The value of every element of what the definition quantised, as fp32; without fp32's subnormal numbers."""
    wrong, elements, factors = 0, 0, []
    for kind in ORDINARY:
        quantised = blocks.quantise(block_inputs(one)[kind], one)
        due = blocks.dequantise(one, quantised)
        found = caster.dequantise(one, quantised)
        normal = ~(np.abs(due) < np.finfo(np.float32).tiny) | (due == 0.0)
        differ = ~scalar.same_values(found, due) & normal
        wrong, elements = wrong + int(differ.sum()), elements + int(normal.sum())
        usable = normal & np.isfinite(due) & (due != 0.0) & np.isfinite(found)
        factors.append(found[usable] / due[usable])
    where = f"{elements} elements in blocks of {one.block}; {caster.how(one)}"
    constant = np.unique(np.concatenate(factors))
    name_of_fault = f"every number off by a factor of {constant[0]:g}" if len(constant) == 1 else "unexplained"
    return verdict(name, wrong, where, name_of_fault)


def _saturated(one: BlockFormat, values: NDArray[np.float32], due: Quantised) -> int:
    """Elements larger than the block's largest number."""
    scales = scalar.decode(one.scale_format, due.scales)[..., None] * due.tensor_scale
    largest = np.abs(blocks.blocked(values, one.block)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return int(np.sum(largest > one.element_format.max * scales))


def _wrong_form(one: BlockFormat, found: Quantised, due: Quantised) -> tuple[str, str]:
    """Where and name, for scales of a wrong number."""
    counts = f"{found.scales.size} scales for {due.codes.size} elements, {due.scales.size} are right"
    if found.codes.shape == due.codes.shape and found.scales.size:
        return counts, f"blocks of {due.codes.size // found.scales.size} instead of {one.block}"
    return counts, "wrong number of codes"


def _first_wrong(one: BlockFormat, outcome: _Outcome) -> str:
    row, column = (int(index) for index in np.unravel_index(int(np.argmax(outcome.wrong)), outcome.wrong.shape))
    block = column // one.block
    found, due = outcome.found, outcome.due
    return (
        f"{outcome.kind} blocks, row {row}, element {column}: {float(outcome.values[row, column])!r} gives code"
        f" {int(found.codes[row, column]):#x} with scale {int(found.scales[row, block]):#x}, code"
        f" {int(due.codes[row, column]):#x} with scale {int(due.scales[row, block]):#x} is right"
    )


def _name_fault(one: BlockFormat, outcomes: list[_Outcome], bad: list[_Outcome]) -> str:
    """Narrow explanations first: one kind of block alone, then another rule, then the elements."""
    kinds = {outcome.kind for outcome in bad}
    if kinds <= set(NOT_FINITE):
        return "NaN lost: its block looks finite" if "NaN" in kinds else "infinity hidden by saturation"
    if _only_zero_blocks(one, bad):
        return "zero block scale wrong"
    if kinds == {"subnormal"} and all(_all_zero(one, outcome) for outcome in bad):
        return "subnormals flushed"
    return _other_rule(one, outcomes) or _scale_shift(one, bad) or _wrong_codes(one, bad) or "unexplained"


def _only_zero_blocks(one: BlockFormat, bad: list[_Outcome]) -> bool:
    """Whether every wrong element lies in a block of zeros."""
    return all(
        not np.any(outcome.values.reshape(-1, one.block)[outcome.wrong.reshape(-1, one.block).any(axis=-1)])
        for outcome in bad
    )


def _all_zero(one: BlockFormat, outcome: _Outcome) -> bool:
    """Whether every wrong element came out as zero, of whatever scale."""
    return not np.any(scalar.decode(one.element_format, outcome.found.codes[outcome.wrong]))


def _other_rule(one: BlockFormat, outcomes: list[_Outcome]) -> str:
    """Another format of the same elements explains all finite blocks: its rule under this name."""
    for other in BLOCK_FORMATS.values():
        if other.name == one.name or (other.element, other.block, other.scale) != (one.element, one.block, one.scale):
            continue
        finite = [outcome for outcome in outcomes if outcome.kind not in NOT_FINITE]
        if all(
            not wrong_elements(one, outcome.found, blocks.quantise(outcome.values, other)).any() for outcome in finite
        ):
            return f"MX scale rule {other.rule} under the name {one.rule}"
    return ""


def _scale_shift(one: BlockFormat, bad: list[_Outcome]) -> str:
    """All scales of ordinary blocks off by the same number of binades."""
    if one.rule == "two-level":
        missing = all(outcome.found.tensor_scale == 1.0 for outcome in bad)
        return "tensor scale missing" if missing else ""
    shifts = {
        int(shift)
        for outcome in bad
        if outcome.kind == "ordinary"
        for shift in np.unique(outcome.found.scales - outcome.due.scales)
    }
    if len(shifts) != 1 or shifts == {0}:
        return ""
    shift = shifts.pop()
    return f"MX scale too {'large' if shift > 0 else 'small'} by {abs(shift)} binade{'s' if abs(shift) > 1 else ''}"


def _wrong_codes(one: BlockFormat, bad: list[_Outcome]) -> str:
    """Scales right, elements not: cast with another rounding, or halves of bytes exchanged."""
    if any(not scalar.same_codes(one.scale_format, outcome.found.scales, outcome.due.scales).all() for outcome in bad):
        return ""
    swapped = all(
        np.array_equal(outcome.found.codes.reshape(-1, 2)[:, ::-1].reshape(outcome.due.codes.shape), outcome.due.codes)
        for outcome in bad
    )
    if one.element_format.bits == 4 and swapped:
        return f"{one.element} nibbles swapped"
    element = one.element_format
    step_down = all(np.all((outcome.due.codes - outcome.found.codes)[outcome.wrong] == 1) for outcome in bad)
    return "truncating cast (rounds toward zero)" if step_down and element.signed else ""
