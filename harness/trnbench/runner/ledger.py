"""The driver's view of the store: did the child write its record, and if not, write one for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.records.build import assemble
from trnbench.records.ids import utc_now
from trnbench.records.rules import RecordError
from trnbench.records.serialise import decode
from trnbench.records.store import Loaded, Store, safe_name
from trnbench.runner.outcome import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.case import Case
    from trnbench.runner.machine import Machine


class Ledger:
    """Follows one case at a time: `begin`, then either `written_by_child` finds its record or `write` makes one."""

    def __init__(self, results: Path, machine: Machine) -> None:
        self._store = Store(results)
        self._machine = machine
        self._case: Case | None = None
        self._run_id = ""
        self._started_at = ""
        self._known: set[Path] = set()

    def load(self) -> Loaded:
        """Everything in the store, with what was rejected and why."""
        return self._store.load()

    def begin(self, case: Case, run_id: str) -> None:
        """`case` starts now: remember the records that it already has from earlier attempts of the same run."""
        self._case, self._run_id, self._started_at = case, run_id, utc_now()
        self._known = set(self._files())

    def written_by_child(self) -> Outcome | None:
        """What the newest record says that appeared since `begin`; None where there is none that can be read."""
        for path in sorted(set(self._files()) - self._known, reverse=True):
            try:
                record = decode(path.read_bytes(), str(path))
            except (OSError, RecordError):
                continue
            if record.run_id == self._run_id and record.case == self._case:
                return Outcome(record.status, record.reason, record)
        return None

    def write(self, outcome: Outcome) -> Outcome:
        """Store a record without measurement for the case that began. Raises `StoreError` where the disk refuses."""
        assert self._case is not None
        record = assemble(
            case=self._case,
            device=self._machine.device,
            environment=self._machine.environment,
            run_id=self._run_id,
            started_at=self._started_at,
            status=outcome.status,
            reason=outcome.reason,
            simulated=self._machine.simulated,
            reasons=self._machine.unknown,
        )
        self._store.write(record)
        return Outcome(record.status, record.reason, record)

    def _files(self) -> list[Path]:
        """Files named for this case and run; names carry both, so that a large store need not be read."""
        assert self._case is not None
        name = f"*-{safe_name(self._run_id)}-{safe_name(self._case.id)}*.json"
        return list(self._store.root.rglob(name))
