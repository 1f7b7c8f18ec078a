"""Names of sides in words: devices by what they are, software stacks by what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.catalog.chips import chips
from trnbench.compare.keys import versions_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.records.schema import Record


def stack_labels(a: Record, b: Record) -> tuple[str, str]:
    """Names for two stacks by what differs: `torch 2.14.0` against `torch 2.13.0`."""
    first = {**dict(versions_key(a)), **{name: str(value) for name, value in a.environment.flags.items()}}
    second = {**dict(versions_key(b)), **{name: str(value) for name, value in b.environment.flags.items()}}
    differing = [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]

    def named(stack: dict[str, str]) -> str:
        return ", ".join(f"{name} {stack.get(name, 'absent')}" for name in differing)

    return named(first), named(second)


def device_label(record: Record) -> str:
    """A device in words: `16 x Trainium2 (neuron)`; the backend is left out where it is the device's own name."""
    device = record.device
    known = chips().get(device.chip)
    name = known.label if known else device.chip
    count = f"{device.chips} x " if device.chips > 1 else ""
    through = "" if device.backend == name else f" ({device.backend})"
    return f"{count}{name}{through}"


def distinct_labels(sides: list[list[Record]]) -> list[str]:
    """Labels of devices, with instance type, CPU or number added only where two would read the same."""
    newest = [records[-1] for records in sides]
    label_makers: list[Callable[[Record], str]] = [
        device_label,
        lambda record: f"{device_label(record)} on {record.device.instance_type or 'no known instance type'}",
        lambda record: f"{device_label(record)} on {_host_label(record)}",
    ]
    for make in label_makers:
        labels = [make(record) for record in newest]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label_makers[-1](record)}, machine {number}" for number, record in enumerate(newest, start=1)]


def _host_label(record: Record) -> str:
    cpu = record.environment.cpu
    threads = f", {cpu['threads']} threads" if "threads" in cpu else ""
    place = f"{record.device.instance_type}, " if record.device.instance_type else ""
    return f"{place}{cpu.get('model', 'unknown CPU')}{threads}"
