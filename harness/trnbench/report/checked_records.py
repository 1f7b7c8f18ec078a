"""Which records say how a device conforms or performs now: the newest of each case on each machine and stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.case import MODES, PRECISIONS
from trnbench.compare.keys import device_key, versions_key
from trnbench.compare.labels import distinct_labels
from trnbench.report.material import Entry
from trnbench.report.ordering import natural_key, record_key

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from trnbench.records.schema import Record
    from trnbench.report.material import Material


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """One machine with one software stack: its newest record of each case, oldest first. `versions` in words."""

    device: str
    versions: str
    entries: list[Entry]
    older: bool

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Modes and precisions of its cases, in their documented order."""
        found = {(entry.record.case.mode, entry.record.case.precision) for entry in self.entries}
        return sorted(found, key=lambda pair: (MODES.index(pair[0]), PRECISIONS.index(pair[1])))

    @property
    def label(self) -> str:
        """Machine and versions."""
        return f"{self.device}, {self.versions}"


def has_checks(record: Record) -> bool:
    """Whether the record belongs on the page of conformance: it carries checks, or should."""
    return record.case.checks_only or bool(record.conformance)


def checked_stacks(material: Material) -> list[Stack]:
    """Every machine and stack with checks, machines by name, the stack that ran last first."""
    entries = [entry for entry in material.entries if has_checks(entry.record)]
    return newest_by_stack(entries, lambda record: bool(record.conformance))


def newest_by_stack(entries: list[Entry], whole: Callable[[Record], bool]) -> list[Stack]:
    """Entries by machine and stack, machines by name, the stack that ran last first; of each case the newest.

    A record that is not `whole`, since it ended early, may know less of its machine: it joins one of the same chip.
    """
    machines: dict[Hashable, dict[Hashable, list[Entry]]] = {}
    for entry in (one for one in entries if whole(one.record)):
        stacks = machines.setdefault(device_key(entry.record), {})
        stacks.setdefault(versions_key(entry.record), []).append(entry)
    for entry in (one for one in entries if not whole(one.record)):
        _find_home(entry, machines).append(entry)
    groups = list(machines.values())
    labels = distinct_labels([[entry.record for group in stacks.values() for entry in group] for stacks in groups])
    found = [
        stack
        for label, stacks in sorted(zip(labels, groups, strict=True), key=lambda item: natural_key(item[0]))
        for stack in _stacks_of(label, list(stacks.values()))
    ]
    return sorted(found, key=lambda stack: stack.older)


def _find_home(entry: Entry, machines: dict[Hashable, dict[Hashable, list[Entry]]]) -> list[Entry]:
    """A record that was never checked may know less of its machine: it joins the newest stack of its chip."""
    record = entry.record
    exact = machines.get(device_key(record), {}).get(versions_key(record))
    if exact is not None:
        return exact
    same = [
        group
        for stacks in machines.values()
        for group in stacks.values()
        if (group[-1].record.device.backend, group[-1].record.device.chip)
        == (record.device.backend, record.device.chip)
    ]
    if same:
        return max(same, key=lambda group: record_key(group[-1].record))
    return machines.setdefault(device_key(record), {}).setdefault(versions_key(record), [])


def _stacks_of(device: str, groups: list[list[Entry]]) -> list[Stack]:
    ordered = sorted(groups, key=lambda group: max(record_key(entry.record) for entry in group), reverse=True)
    versions = [dict(versions_key(group[-1].record)) for group in ordered]
    names = sorted({name for each in versions for name in each})
    told = [name for name in names if name == "torch" or len({each.get(name) for each in versions}) > 1]
    return [
        Stack(
            device=device,
            versions=", ".join(f"{name} {known.get(name, 'absent')}" for name in told) or "unknown versions",
            entries=_newest(group),
            older=place > 0,
        )
        for place, (group, known) in enumerate(zip(ordered, versions, strict=True))
    ]


def _newest(entries: list[Entry]) -> list[Entry]:
    """The newest record of each case; a case whose checks or workload changed since is the same case."""
    newest: dict[Hashable, Entry] = {}
    for entry in sorted(entries, key=lambda entry: record_key(entry.record)):
        key = entry.record.case.identity(["version"])
        newest.pop(key, None)
        newest[key] = entry
    return list(newest.values())
