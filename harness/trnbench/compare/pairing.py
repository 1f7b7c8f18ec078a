"""Which records meet: equal identity except the named axis, one device and stack a side, the newest attempt a run."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import msgspec

from trnbench.case import MODES, PRECISIONS
from trnbench.compare.keys import device_key, stack_key, versions_key
from trnbench.compare.labels import distinct_labels, stack_labels
from trnbench.compare.model import Axis
from trnbench.records.ids import instant
from trnbench.records.schema import Record
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

OLDER_STACK = "an older software stack or older settings on the same device; the newest is compared"
NEVER_TRIED = frozenset({Status.UNSUPPORTED, Status.SKIPPED})
"""Outcomes that say that a case was not run at all: a side with no other record is no side of a comparison."""
NO_PARTNER = {
    "device": "no record of the same case on another device",
    "precision": "no record of the same case on the same device and stack in another precision",
    "mode": "no record of the same case on the same device and stack in another mode",
    "stack": "no record of the same case on the same device with another software stack",
}


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The newest record of one case in one run, and how many records that run made of it."""

    record: Record
    attempts: int


class SideRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one side in time order; `superseded` are earlier attempts of the same runs."""

    label: str
    runs: list[Attempt]
    superseded: list[Record]

    @property
    def newest(self) -> Record:
        """The record of the newest run."""
        return self.runs[-1].record

    @property
    def records(self) -> list[Record]:
        """All of the side's records: of its runs, then the superseded ones."""
        return [*(run.record for run in self.runs), *self.superseded]

    @property
    def never_tried(self) -> bool:
        """Whether no record of the side comes from a case that was run."""
        return all(record.status in NEVER_TRIED for record in self.records)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides that may be compared along `axis`."""

    axis: Axis
    a: SideRecords
    b: SideRecords


def in_time_order(records: Iterable[Record]) -> list[Record]:
    """Records by the instant they started, then by id, whatever offset their times are written in."""
    return sorted(records, key=lambda record: (instant(record.started_at), record.record_id))


def newest_attempts(records: Iterable[Record]) -> tuple[list[Attempt], list[Record]]:
    """The newest record of each run in time order, and the earlier attempts it supersedes. Never an average."""
    by_run: dict[str, list[Record]] = {}
    for record in in_time_order(records):
        by_run.setdefault(record.run_id, []).append(record)
    newest = {
        attempts[-1].record_id: Attempt(record=attempts[-1], attempts=len(attempts)) for attempts in by_run.values()
    }
    superseded = [record for attempts in by_run.values() for record in attempts[:-1]]
    ordered = in_time_order(attempt.record for attempt in newest.values())
    return [newest[record.record_id] for record in ordered], superseded


def find_pairs(records: Sequence[Record], axis: Axis) -> tuple[list[Pair], list[tuple[Record, str]]]:
    """Every pair along an axis, and every record that meets no other, with the reason.

    A side whose every record is unsupported or skipped is not compared: there is nothing to wait for.
    """
    finders: dict[str, Callable[[list[Record]], tuple[list[Pair], list[tuple[Record, str]]]]] = {
        "device": _device_pairs,
        "precision": lambda group: _case_pairs(group, "precision"),
        "mode": lambda group: _case_pairs(group, "mode"),
        "stack": _stack_pairs,
    }
    without = [axis] if axis in ("precision", "mode") else []
    pairs: list[Pair] = []
    alone: list[tuple[Record, str]] = []
    for group in _grouped(records, lambda record: record.case.identity(without)).values():
        found, left = finders[axis](group)
        pairs += found
        alone += left
    tried, untried = _tried_pairs(pairs)
    return tried, [*alone, *untried]


def _tried_pairs(pairs: list[Pair]) -> tuple[list[Pair], list[tuple[Record, str]]]:
    """Pairs whose both sides were run, and the records that are in no such pair, each with its reason."""
    kept = [pair for pair in pairs if not (pair.a.never_tried or pair.b.never_tried)]
    compared = {record.record_id for pair in kept for side in (pair.a, pair.b) for record in side.records}
    left: dict[str, Record] = {}
    reasons: dict[str, list[str]] = {}
    for pair in pairs:
        for side, other in ((pair.a, pair.b), (pair.b, pair.a)):
            for record in side.records:
                if record.record_id not in compared:
                    left[record.record_id] = record
                    reasons.setdefault(record.record_id, []).append(_why_untried(record, side, other))
    return kept, [(record, "; ".join(dict.fromkeys(reasons[key]))) for key, record in left.items()]


def _why_untried(record: Record, side: SideRecords, other: SideRecords) -> str:
    """Its own outcome where its side was never run, else that of the side it would have met."""
    if side.never_tried:
        return _outcome(record)
    return f"{other.label} was not run: {_outcome(other.newest)}"


def _outcome(record: Record) -> str:
    return f"{record.status.value}: {record.reason}"


def _grouped(records: Iterable[Record], key: Callable[[Record], Any]) -> dict[Any, list[Record]]:
    groups: dict[Any, list[Record]] = {}
    for record in in_time_order(records):
        groups.setdefault(key(record), []).append(record)
    return groups


def _machines(records: Iterable[Record]) -> list[list[Record]]:
    """Records by machine. One without a measurement may know less of its machine, and joins one of the same chip."""
    return _grouped_by_measured(
        records,
        device_key,
        lambda a, b: (a.device.backend, a.device.chip) == (b.device.backend, b.device.chip),
    )


def _stacks(records: Iterable[Record]) -> list[list[Record]]:
    """Records by stack and settings, the stack that ran last at the end."""
    return _grouped_by_measured(records, stack_key, _no_version_differs)


def _grouped_by_measured(
    records: Iterable[Record], key: Callable[[Record], Hashable], could_be: Callable[[Record, Record], bool]
) -> list[list[Record]]:
    """Groups of equal key, in the order of their newest measured record.

    A record without a measurement (it crashed, or its device was busy) that matches no key joins the newest group
    that it could belong to, so that what it failed to find out does not make it a machine or stack of its own.
    """
    ordered = in_time_order(records)
    groups = _grouped([record for record in ordered if record.measurement is not None], key)
    by_recency = sorted(groups.values(), key=lambda group: instant(group[-1].started_at))
    found = list(by_recency)
    for record in ordered:
        if record.measurement is not None:
            continue
        home = groups.get(key(record))
        if home is None:
            home = next((group for group in reversed(by_recency) if could_be(record, group[-1])), None)
        if home is None:
            home = groups[key(record)] = []
            found.append(home)
        home.append(record)
    return found


def _no_version_differs(a: Record, b: Record) -> bool:
    first, second = dict(versions_key(a)), dict(versions_key(b))
    return all(second.get(name, version) == version for name, version in first.items())


def _newest_stack(records: list[Record]) -> tuple[list[Record], list[tuple[Record, str]]]:
    """Records of the newest measured stack and settings, and the others; a night that skipped decides no stack."""
    stacks = _stacks(records)
    ran = [group for group in stacks if any(record.status is not Status.SKIPPED for record in group)]
    kept = (ran or stacks)[-1]
    others = [record for group in stacks if group is not kept for record in group]
    return in_time_order(kept), [
        (record, _outcome(record) if record.status is Status.SKIPPED else OLDER_STACK) for record in others
    ]


def _side(label: str, records: list[Record]) -> SideRecords:
    runs, superseded = newest_attempts(records)
    return SideRecords(label=label, runs=runs, superseded=superseded)


def _device_pairs(group: list[Record]) -> tuple[list[Pair], list[tuple[Record, str]]]:
    alone: list[tuple[Record, str]] = []
    sides: list[list[Record]] = []
    for records in _machines(group):
        kept, older = _newest_stack(records)
        sides.append(kept)
        alone += older
    sides.sort(key=lambda records: _device_order(records[-1]))
    labels = distinct_labels(sides)
    made = [_side(label, records) for label, records in zip(labels, sides, strict=True)]
    pairs = [
        Pair(axis="device", a=a, b=b)
        for a, b in itertools.combinations(made, 2)
        if _different_devices(a.newest, b.newest)
    ]
    paired = {id(side) for pair in pairs for side in (pair.a, pair.b)}
    for side, records in zip(made, sides, strict=True):
        if id(side) not in paired:
            alone += [(record, NO_PARTNER["device"]) for record in records]
    return pairs, alone


def _different_devices(a: Record, b: Record) -> bool:
    """Another backend or chip; or, where the CPU is the device, another machine or thread count."""
    first, second = (a.device.backend, a.device.chip), (b.device.backend, b.device.chip)
    return first != second or a.device.chip == b.device.chip == "cpu"


def _device_order(record: Record) -> tuple[int, str, str, int, str]:
    """Trainium first, then other accelerators, then CPUs: the question is what Trainium does against the rest."""
    device = record.device
    rank = 0 if device.chip.startswith("trainium") else 2 if device.chip == "cpu" else 1
    return (rank, device.chip, device.backend, device.chips, str(device_key(record)))


def _case_pairs(group: list[Record], axis: Axis) -> tuple[list[Pair], list[tuple[Record, str]]]:
    """Precision or mode: the same device and versions; the later value of the list is `a`, so `b` is the plain one."""
    order = PRECISIONS if axis == "precision" else MODES
    pairs: list[Pair] = []
    alone: list[tuple[Record, str]] = []
    for machine in _machines(group):
        stacks = _grouped_by_measured(machine, versions_key, _no_version_differs)[::-1]
        met = next((records for records in stacks if len({getattr(r.case, axis) for r in records}) > 1), None)
        for records in stacks:
            if records is not met:
                alone += [(record, NO_PARTNER[axis] if met is None else OLDER_STACK) for record in records]
        if met is None:
            continue
        sides = {}
        for value, records in _grouped(met, lambda record: getattr(record.case, axis)).items():
            sides[value], older = _newest_stack(records)
            alone += older
        values = sorted(sides, key=order.index, reverse=True)
        pairs += [
            Pair(axis=axis, a=_side(a, sides[a]), b=_side(b, sides[b])) for a, b in itertools.combinations(values, 2)
        ]
    return pairs, alone


def _stack_pairs(group: list[Record]) -> tuple[list[Pair], list[tuple[Record, str]]]:
    """Each stack against the one before it on the same device; the newer is `a`."""
    pairs: list[Pair] = []
    alone: list[tuple[Record, str]] = []
    for machine in _machines(group):
        stacks = _stacks(machine)
        if len(stacks) == 1:
            alone += [(record, NO_PARTNER["stack"]) for record in stacks[0]]
        for older, newer in itertools.pairwise(stacks):
            label_new, label_old = stack_labels(newer[-1], older[-1])
            pairs.append(Pair(axis="stack", a=_side(label_new, newer), b=_side(label_old, older)))
    return pairs, alone
