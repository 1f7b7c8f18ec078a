"""`--resume`: which run to continue, and which of its cases are already finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.resume import Key, code_state, finished
from trnbench.records.schema import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trnbench.case import Case
    from trnbench.records.store import StoredRecord
    from trnbench.runner.machine import Machine


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """A run to go on with: its id, and by identity the record of each case that need not run again."""

    run_id: str
    finished: dict[Key, Record]


def find_run(records: Iterable[StoredRecord], cases: Sequence[Case], machine: Machine) -> Continuation | None:
    """The newest run of the same backend, fingerprint and code with some of `cases`; None where there is none.

    Run ids sort by time. A case is finished when its newest record in that run says something about the case, not
    only about the moment (`status.RETRIED_BY_RESUME`).
    """
    wanted = {case.identity() for case in cases}
    same = [
        stored
        for stored in records
        if stored.record.case.identity() in wanted
        and stored.record.device.backend == machine.device.backend
        and stored.record.environment.fingerprint == machine.environment.fingerprint
        and code_state(stored.record.environment.git) == code_state(machine.environment.git)
    ]
    if not same:
        return None
    run_id = max(stored.record.run_id for stored in same)
    settled = finished(same, run_id).values()
    return Continuation(run_id=run_id, finished={stored.record.case.identity(): stored.record for stored in settled})
