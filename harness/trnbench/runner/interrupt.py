"""Ctrl-C and termination signals: the first asks the driver to stop in order, the second stops it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Self

from trnbench.status import ExitCode

if TYPE_CHECKING:
    from types import FrameType, TracebackType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """A context in which stop signals set `requested` instead of raising anywhere in the code.

    `group` is the process group of the child that runs now; a second signal kills it and leaves with exit code 130,
    since whoever asks twice no longer wants to wait for records and summaries.
    """

    def __init__(self) -> None:
        self.requested = False
        self.group: int | None = None
        self._previous: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            # nohup and background shells start us with a signal ignored; that wish stays respected.
            if signal.getsignal(number) != signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested = True
            return
        if self.group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(ExitCode.INTERRUPTED)
