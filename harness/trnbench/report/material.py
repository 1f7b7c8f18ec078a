"""What a site is built from, checked: every record that came in is shown, and each run, attempt and gap is counted."""

from __future__ import annotations

from datetime import date
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from trnbench.compare.model import Comparison
from trnbench.records.deviations import Deviation
from trnbench.records.mutation import MutationReport
from trnbench.records.passport import Passport
from trnbench.records.schema import Artifact, Record
from trnbench.report.ordering import natural_key, record_key
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path


UNKNOWN = "unknown"


class FileBeside(msgspec.Struct, frozen=True, kw_only=True):
    """A file beside a record: its bytes and its path in the site, or None with the reason in `problem`."""

    artifact: Artifact
    data: bytes | None
    target: str = ""
    problem: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A record, the file it came from (relative to the results folder, for print), its bytes, and files beside it."""

    record: Record
    path: str
    data: bytes
    files: list[FileBeside] = []


class PassportEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A passport, the file it came from (relative to the results folder) and that file's bytes."""

    passport: Passport
    path: str
    data: bytes


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A file that could not be read as what its place says that it is, and why."""

    path: str
    reason: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One invocation of the driver: its records in time order."""

    id: str
    entries: list[Entry]

    @property
    def measured(self) -> int:
        """Records that carry a measurement which counts."""
        return sum(is_measured(entry.record) for entry in self.entries)

    @property
    def measurable(self) -> int:
        """Records of cases that are to be measured."""
        return sum(not entry.record.case.checks_only for entry in self.entries)

    @property
    def checked(self) -> int:
        """Records of cases that are only checked, and were."""
        return sum(is_checked(entry.record) for entry in self.entries)

    @property
    def checkable(self) -> int:
        """Records of cases that are only checked."""
        return len(self.entries) - self.measurable

    def attempt(self, record: Record) -> tuple[int, int]:
        """Which attempt of its case in this run the record is, and of how many."""
        same = [e.record.record_id for e in self.entries if e.record.case == record.case]
        return same.index(record.record_id) + 1, len(same)


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the pages show. `records_in` counts what was read, `simulated_left_out` what may not be shown.

    `alone` gives, by record id, why a record is in no comparison along each axis. `today` is the day on which prices
    are aged; None where there is no record. `deviations` are those listed, by backend. `passports_left_out` counts
    passports of simulated devices that may not be shown.
    """

    title: str
    entries: list[Entry]
    comparisons: list[Comparison]
    refused: list[Refused]
    records_in: int
    simulated_left_out: int
    alone: dict[str, list[str]] = {}
    today: date | None = None
    deviations: dict[str, list[Deviation]] = {}
    passports: list[PassportEntry] = []
    passports_left_out: int = 0
    mutation: MutationReport | None = None

    def __post_init__(self) -> None:
        if len(self.entries) + self.simulated_left_out != self.records_in:
            raise AssertionError(
                f"{self.records_in} records came in, {len(self.entries)} are shown and "
                f"{self.simulated_left_out} left out as simulated: these must add up"
            )

    @property
    def shows_simulated(self) -> bool:
        """Whether any record or passport shown was made on a stand-in."""
        return any(entry.record.simulated for entry in self.entries) or any(
            entry.passport.simulated for entry in self.passports
        )

    def runs(self) -> list[Run]:
        """The runs, newest first, each with its records in time order; no record is lost on the way."""
        grouped: dict[str, list[Entry]] = {}
        for entry in sorted(self.entries, key=lambda entry: record_key(entry.record)):
            grouped.setdefault(entry.record.run_id, []).append(entry)
        runs = [Run(id=name, entries=entries) for name, entries in grouped.items()]
        assert_complete(len(self.entries), [len(run.entries) for run in runs], "runs")
        return sorted(runs, key=lambda run: record_key(run.entries[0].record), reverse=True)

    def by_device(self) -> list[tuple[tuple[str, str, str], list[Entry]]]:
        """Records by (chip, backend, instance type); a missing instance type is a group of its own (F5)."""
        grouped: dict[tuple[str, str, str], list[Entry]] = {}
        for entry in self.entries:
            device = entry.record.device
            grouped.setdefault((device.chip, device.backend, device.instance_type or UNKNOWN), []).append(entry)
        assert_complete(len(self.entries), [len(group) for group in grouped.values()], "devices")
        return sorted(grouped.items(), key=lambda item: tuple(natural_key(part) for part in item[0]))

    def comparisons_of(self, record_id: str) -> list[Comparison]:
        """The comparisons in which the record carries a value."""
        return [
            comparison
            for comparison in self.comparisons
            if any(run.record.record_id == record_id for side in (comparison.a, comparison.b) for run in side.runs)
        ]


def shown_path(artifact: Artifact) -> str:
    """Where the record says that its file lies; only the name where that is an absolute path: no page prints a home."""
    path = PurePosixPath(artifact.path)
    return path.name if path.is_absolute() else artifact.path


def is_measured(record: Record) -> bool:
    """Whether the record carries a measurement that counts."""
    return record.status is Status.OK and not record.case.checks_only


def is_checked(record: Record) -> bool:
    """Whether the record is of a case that is only checked, and carries its verdicts, good or bad."""
    return record.case.checks_only and record.status in (Status.OK, Status.NONCONFORMANT)


def assert_complete(came_in: int, shown: list[int], where: str) -> None:
    """Rows in must equal rows shown (F5). Raises `AssertionError`, also under `python -O`."""
    if sum(shown) != came_in:
        raise AssertionError(f"{came_in} records came in and {sum(shown)} are shown by {where}")


def relative(path: Path, root: Path) -> str:
    """`path` below `root` with forward slashes; only its name where it lies elsewhere: no page prints a home."""
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.name
