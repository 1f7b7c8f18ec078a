"""Outcomes: what can become of a case, what the process says about it, and the errors that carry both.

Every failure in this package ends as one `Status` in a record, or as one sentence on the terminal with one
documented exit code. Nothing here imports anything else of the package.
"""

from __future__ import annotations

import enum


class Status(enum.StrEnum):
    """What became of one case. Only `OK` may carry a speed into a comparison."""

    OK = "ok"
    FAILED = "failed"
    NONCONFORMANT = "nonconformant"
    INVALID = "invalid"
    OOM = "oom"
    BUSY = "busy"
    VERSION_MISMATCH = "version_mismatch"
    COMPILE_FAILED = "compile_failed"
    UNSUPPORTED = "unsupported"
    FALLBACK = "fallback"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"


BENIGN: frozenset[Status] = frozenset({Status.OK, Status.SKIPPED, Status.UNSUPPORTED})
"""Outcomes that do not make a run fail: a case that does not apply here says nothing against the code or the chip."""

RETRIED_BY_RESUME: frozenset[Status] = frozenset(
    {Status.BUSY, Status.TIMEOUT, Status.CRASHED, Status.INTERRUPTED, Status.SKIPPED}
)
"""Outcomes that say something about the moment, not about the case: `--resume` runs these again."""


class ExitCode(enum.IntEnum):
    """The documented exit codes (docs/exit-codes.md)."""

    CLEAN = 0
    FAILED = 1
    USAGE = 2
    NOTHING_MEASURED = 3
    BACKEND_UNAVAILABLE = 4
    NO_BASELINE = 5
    INTERRUPTED = 130


class TrnBenchError(Exception):
    """A failure that the user reads as one sentence; `exit_code` is what the process then returns."""

    exit_code: ExitCode = ExitCode.FAILED


class UsageError(TrnBenchError):
    """Wrong flags, files or configuration, found before anything ran."""

    exit_code = ExitCode.USAGE


class NothingMeasured(TrnBenchError):
    """The run ended and no case was measured."""

    exit_code = ExitCode.NOTHING_MEASURED


class BackendUnavailable(TrnBenchError):
    """The backend is not installed, not the right version, or its device is busy or absent.

    `status` tells these apart: `UNSUPPORTED` (not here), `VERSION_MISMATCH`, `BUSY`.
    """

    exit_code = ExitCode.BACKEND_UNAVAILABLE

    def __init__(self, message: str, status: Status = Status.UNSUPPORTED) -> None:
        super().__init__(message)
        self.status = status


class NoBaseline(TrnBenchError):
    """There is nothing comparable to compare with."""

    exit_code = ExitCode.NO_BASELINE


class CaseError(TrnBenchError):
    """Ends one case with the given status; the message becomes the record's reason."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
