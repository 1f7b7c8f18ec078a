"""What one pytest session measured so far: the open backend, the records written, the summary and the exit code."""

from __future__ import annotations

import signal
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from trnbench.backends.select import open_backend
from trnbench.plugin.cases import case_of
from trnbench.status import ExitCode, Status

if TYPE_CHECKING:
    from types import FrameType

    from trnbench.backends.base import Backend
    from trnbench.device import Device
    from trnbench.plugin.options import Settings
    from trnbench.records.schema import Record


class MeasuringSession:
    """State of a pytest session with `--backend`, registered with pytest so that its hooks below are called."""

    def __init__(self, settings: Settings, backend: str) -> None:
        self.settings = settings
        self.planned = 0
        """Cases selected to run."""
        self.records: list[Record] = []
        self.interrupted = False
        self.stop_signal = signal.SIGINT
        """The signal that ended the session, once `interrupted`."""
        self._backend_name = backend
        self._opened: tuple[Backend, Device] | None = None
        self._sigterm_before: Any = signal.SIG_DFL

    def backend(self) -> tuple[Backend, Device]:
        """The backend, opened on first use, and its device as read back then.

        Raises `BackendUnavailable`, or `UsageError` where the options contradict what the machine says it is.
        """
        if self._opened is None:
            backend = open_backend(self._backend_name)
            device = backend.describe().placed(self.settings.instance_type, self.settings.region)
            self._opened = backend, device
        return self._opened

    def stop_on_sigterm(self) -> None:
        """Make SIGTERM end the session as Ctrl-C does, so that the running case still gets its record."""
        self._sigterm_before = signal.signal(signal.SIGTERM, self._interrupt)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        if self.interrupted:
            # The record of the interrupted case is being written; a second request adds nothing.
            return
        self.stop_signal = signal.Signals(number)
        raise KeyboardInterrupt(self.stop_signal.name)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the cases that are to run."""
        self.planned = sum(case_of(item) is not None for item in session.items)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember an interrupt; pytest announces its own early exits here too, which carry their exit code."""
        own = isinstance(excinfo.value, pytest.Session.Interrupted | pytest.exit.Exception)
        self.interrupted = self.interrupted or not own

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Replace pytest's exit status by the documented exit code."""
        session.exitstatus = self.exit_code(int(exitstatus))

    def pytest_unconfigure(self) -> None:
        """Give SIGTERM back to whoever had it."""
        signal.signal(signal.SIGTERM, self._sigterm_before)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line per case and the tally."""
        terminalreporter.section("TrnBench")
        for line in self.summary():
            terminalreporter.write_line(line)

    def summary(self) -> list[str]:
        """One line per case, with the median round in seconds or the reason there is none, and the tally."""
        lines = [_line(record) for record in self.records]
        counts = Counter(record.status for record in self.records)
        others = ", ".join(f"{count} {status.value}" for status, count in counts.items() if status is not Status.OK)
        unrun = self.planned - len(self.records)
        parts = [part for part in (others, f"{unrun} without a record" if unrun > 0 else "") if part]
        tally = f"{counts[Status.OK]} of {self.planned} measured"
        return [*lines, f"{tally} ({', '.join(parts)})" if parts else tally]

    def exit_code(self, status: int) -> int:
        """The documented exit code for pytest's own `status`; codes set with a reason on the way pass through."""
        measured = any(record.status is Status.OK for record in self.records)
        return session_exit_code(status, measured=measured, interrupted=self.interrupted)


def session_exit_code(status: int, *, measured: bool, interrupted: bool) -> int:
    """Translate pytest's exit status into TrnBench's (`trnbench.status.ExitCode`).

    pytest says 0 when every test was skipped and 5 when none was collected: both are 3 here. Its 3 is an internal
    error, which is a failure here; its 2 is an interrupt, or tests that could not be collected.
    """
    if interrupted:
        return int(ExitCode.INTERRUPTED)
    if status == pytest.ExitCode.INTERNAL_ERROR:
        return int(ExitCode.FAILED)
    if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(ExitCode.CLEAN if measured else ExitCode.NOTHING_MEASURED)
    return status


def _line(record: Record) -> str:
    if record.measurement is None or record.status is not Status.OK:
        return f"{record.case.id}  {record.status.value}: {record.reason}"
    median = statistics.median(item.seconds for item in record.measurement.rounds)
    warning = f"  ({record.reason})" if record.reason else ""
    return f"{record.case.id}  median {median:.6f} s of {len(record.measurement.rounds)} rounds{warning}"
