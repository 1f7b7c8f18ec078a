"""Chips and their peaks: published figures with source and date, looked up by exact name only.

Dense and sparse peaks live in different fields. Only `dense_peak` hands out a denominator for MFU, and it never
returns a default: a chip or precision that the catalog does not hold gives the reason instead.
"""

from __future__ import annotations

import functools
from datetime import date
from typing import Literal

import msgspec

from trnbench.catalog.tables import read_package_table
from trnbench.status import UsageError
from trnbench.wording import nearest

Confidence = Literal["A", "B", "C"]
"""A: the vendor's own document was read; B: a secondary source that agrees with others; C: one weak source."""

DateBasis = Literal["source", "read"]
"""What `as_of` dates: the source itself, or the day on which an undated source was read."""

PeakPrecision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"]


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator package as published. Memory in bytes, bandwidth in bytes/s; None where not public."""

    chip: str
    label: str
    vendor: str
    year_first_available: int
    architecture: str
    memory_bytes: int
    memory_as_published: str
    memory_bandwidth_bytes_per_second: int
    tdp_watts: float | None
    scale_up_as_published: str
    scale_up_domain: str
    confidence: Confidence
    source: str
    as_of: date
    as_of_basis: DateBasis
    note: str = ""


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """Peak rate of one chip in one precision and number format, in operations per second.

    `sparse_per_second` is the vendor's figure with structured sparsity, kept for the record; nothing divides by it.
    """

    chip: str
    precision: PeakPrecision
    format: str
    scope: Literal["chip"]
    dense_per_second: int
    sparse_per_second: int | None
    unit: Literal["FLOP/s", "op/s"]
    confidence: Confidence
    source: str
    as_of: date
    as_of_basis: DateBasis
    note: str = ""


class DeviceName(msgspec.Struct, frozen=True, kw_only=True):
    """A name that a runtime reports, and the chip it means; without a chip, the reason why it names none."""

    device_name: str
    source: str
    as_of: date
    as_of_basis: DateBasis
    chip: str = ""
    reason: str = ""


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """One of several published values for the same thing; shown side by side, never averaged."""

    subject: str
    field: str
    value: str
    source: str
    as_of: date
    as_of_basis: DateBasis
    unit: str = ""
    note: str = ""


@functools.cache
def chips() -> dict[str, Chip]:
    """Every chip of the catalog by its key."""
    return {row.chip: row for row in read_package_table("chips.csv", Chip, ["chip"])}


@functools.cache
def peaks() -> dict[tuple[str, str], Peak]:
    """Every peak by chip and precision."""
    rows = read_package_table("peaks.csv", Peak, ["chip", "precision"])
    return {(row.chip, row.precision): row for row in rows}


@functools.cache
def device_names() -> dict[str, DeviceName]:
    """Every known runtime name; names are compared whole and case-sensitively."""
    return {row.device_name: row for row in read_package_table("device_names.csv", DeviceName, ["device_name"])}


@functools.cache
def conflicts() -> tuple[Conflict, ...]:
    """Values that sources publish differently, in file order."""
    return tuple(read_package_table("conflicts.csv", Conflict, ["subject", "field", "value", "unit"]))


def chip(name: str) -> Chip:
    """The chip with this key, or this label in any case. Raises `UsageError` with the nearest key."""
    known = chips()
    if name in known:
        return known[name]
    for row in known.values():
        if row.label.lower() == name.lower():
            return row
    hint = nearest(name.lower(), known, f"the chips are {', '.join(known)}")
    raise UsageError(f"the catalog has no chip {name!r}; {hint}")


def chip_for_device_name(runtime_name: str) -> Chip | None:
    """The chip that a runtime's device name means, or None; `why_no_chip` says why there is none.

    Only whole names count: no part of a name is ever matched, so the order of the table cannot matter.
    """
    row = device_names().get(runtime_name.strip())
    return chips()[row.chip] if row and row.chip else None


def why_no_chip(runtime_name: str) -> str:
    """One sentence on why `chip_for_device_name` gives None for this name; empty where it gives a chip."""
    row = device_names().get(runtime_name.strip())
    if row is None:
        return f"the catalog does not know the device name {runtime_name!r}"
    return "" if row.chip else f"the catalog gives {runtime_name!r} no chip: {row.reason}"


def dense_peak(chip_name: str, precision: str) -> Peak | str:
    """The dense peak of one chip in this precision, or the reason why there is none.

    `chip_name` is what a record's device carries: a catalog key, or the runtime's own name where it had none.
    """
    if chip_name not in chips():
        return f"peak unknown for {chip_name}"
    peak = peaks().get((chip_name, precision))
    return peak if peak is not None else f"peak unknown for {chip_name} in {precision}"
