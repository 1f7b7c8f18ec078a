"""Cases with the newest record of each on every device and stack: what the pages of serving and training show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.case import Case
from trnbench.report.checked_records import newest_by_stack
from trnbench.report.material import Entry, assert_complete
from trnbench.report.ordering import case_key
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Hashable

    from trnbench.records.schema import Record
    from trnbench.report.material import Material


class Newest(msgspec.Struct, frozen=True, kw_only=True):
    """The newest record of a case on one device and stack."""

    name: str
    entry: Entry
    older: bool

    @property
    def record(self) -> Record:
        """The record itself."""
        return self.entry.record

    @property
    def counts(self) -> bool:
        """Whether its values may be shown as results."""
        return self.record.status is Status.OK


class CaseRecords(msgspec.Struct, frozen=True, kw_only=True):
    """One case, whatever the version of its workload, with a record for each device and stack that has one."""

    case: Case
    newest: list[Newest]

    @property
    def versions(self) -> int:
        """How many versions of the workload the records are of."""
        return len({one.record.case.version for one in self.newest})


def newest_cases(material: Material, phases: tuple[str, ...]) -> list[CaseRecords]:
    """Cases of these phases in their documented order; no device's newest record is lost on the way."""
    entries = [entry for entry in material.entries if entry.record.case.phase in phases]
    stacks = newest_by_stack(entries, lambda record: record.measurement is not None)
    grouped: dict[Hashable, list[Newest]] = {}
    for stack in stacks:
        for entry in stack.entries:
            newest = Newest(name=stack.label, entry=entry, older=stack.older)
            grouped.setdefault(entry.record.case.identity(["version"]), []).append(newest)
    found = [CaseRecords(case=group[0].record.case, newest=group) for group in grouped.values()]
    assert_complete(sum(len(s.entries) for s in stacks), [len(one.newest) for one in found], "served and trained cases")
    return sorted(found, key=lambda one: (case_key(one.case), one.case.id))


def devices_in(cases: list[CaseRecords]) -> int:
    """On how many devices and stacks the cases have records."""
    return len({one.name for case in cases for one in case.newest})


def version_note(one: Newest, case: CaseRecords) -> str:
    """What sets the record apart from the others of its case: older software, or another version of the workload."""
    version = f"workload version {one.record.case.version}" if case.versions > 1 else ""
    return "; ".join(filter(None, ("older software" if one.older else "", version)))


def without_values(cases: CaseRecords) -> list[str]:
    """A line for each device whose newest record gives no result: which, and why."""
    return [
        f"{one.name}: {one.record.status.value.replace('_', ' ')}: {one.record.reason}"
        for one in cases.newest
        if not one.counts
    ]
