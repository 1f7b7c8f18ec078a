"""Which records count: of repeated attempts the newest, and of a run to be resumed the cases that need no rerun."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.ids import instant
from trnbench.records.store import StoredRecord
from trnbench.status import RETRIED_BY_RESUME

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from trnbench.records.schema import Git, Record

Key = tuple[object, ...]
"""What makes a rerun pointless: the same case on the same machine and stack with the same code."""


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """All records of one case in one run, oldest first. Only `newest` counts; the others are kept and shown."""

    records: list[StoredRecord]

    @property
    def newest(self) -> StoredRecord:
        """The attempt that counts."""
        return self.records[-1]

    @property
    def count(self) -> int:
        """Number of attempts, to be shown wherever the newest one is."""
        return len(self.records)


def code_state(git: Git) -> tuple[str | None, bool | None, str | None]:
    """The code as a key: commit, dirtiness, and the hash of what differs."""
    return (git.commit, git.dirty, git.diff_hash)


def key(record: Record) -> Key:
    """Case identity, fingerprint and code state: equal keys measured the same thing in the same circumstances."""
    return (record.case.identity(), record.environment.fingerprint, code_state(record.environment.git))


def latest_attempts(records: Iterable[StoredRecord]) -> list[Attempts]:
    """Group what one run tried repeatedly: same run, backend, chip and case. Groups are in order of their newest.

    A later attempt counts even where it failed and an earlier one did not: picking would bias the result.
    """
    groups: dict[Hashable, list[StoredRecord]] = {}
    for stored in sorted(records, key=_time):
        record = stored.record
        group = (record.run_id, record.device.backend, record.device.chip, record.case.identity())
        groups.setdefault(group, []).append(stored)
    return sorted((Attempts(records=group) for group in groups.values()), key=lambda attempts: _time(attempts.newest))


def finished(records: Iterable[StoredRecord], run_id: str | None = None) -> dict[Key, StoredRecord]:
    """By `key`, the newest record of each case that `--resume` must not run again; of one run, or of all.

    Outcomes of the moment (busy, timeout, crashed, interrupted, skipped) are run again.
    """
    newest: dict[Key, StoredRecord] = {}
    for stored in sorted(records, key=_time):
        if run_id is None or stored.record.run_id == run_id:
            newest[key(stored.record)] = stored
    return {key_: stored for key_, stored in newest.items() if stored.record.status not in RETRIED_BY_RESUME}


def _time(stored: StoredRecord) -> tuple[object, str]:
    return (instant(stored.record.started_at), stored.record.record_id)
