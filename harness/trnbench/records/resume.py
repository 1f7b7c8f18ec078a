"""Which cases of a run to be resumed need no rerun: the newest attempt of each decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.records.ids import instant
from trnbench.status import RETRIED_BY_RESUME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trnbench.records.schema import Git, Record
    from trnbench.records.store import StoredRecord

Key = tuple[object, ...]
"""What makes a rerun pointless: the same case on the same machine and stack with the same code."""


def code_state(git: Git) -> tuple[str | None, bool | None, str | None]:
    """The code as a key: commit, dirtiness, and the hash of what differs."""
    return (git.commit, git.dirty, git.diff_hash)


def key(record: Record) -> Key:
    """Case identity, fingerprint and code state: equal keys measured the same thing in the same circumstances."""
    return (record.case.identity(), record.environment.fingerprint, code_state(record.environment.git))


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
