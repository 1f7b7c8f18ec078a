"""LoadGen's process, seen from the parent: started in a session of its own, limited in time, gone at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Self

from trnbench.serving.protocol import Channel, FromChild, FromParent, widen
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from types import TracebackType

EXIT_SECONDS = 10.0
TAIL_BYTES = 2000


class LoadGenProcess:
    """Context manager: on exit the process and whatever it started is dead, however the block ended.

    `timeout` seconds after the start the process is killed from a timer thread, so that even a send or a receive that
    blocks comes to an end; `gone` then says that it was the timeout.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._timed_out = False

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._output = tempfile.TemporaryFile()
        their_reader, our_writer = Pipe(duplex=False)
        our_reader, their_writer = Pipe(duplex=False)
        self.channel: Channel[FromChild, FromParent] = Channel(our_reader, our_writer, FromChild)
        with their_reader, their_writer:
            widen(our_writer)
            widen(their_writer)
            descriptors = (their_reader.fileno(), their_writer.fileno())
            self._process = subprocess.Popen(
                # -P: a file in the current folder must not stand in for a module.
                [sys.executable, "-P", "-m", "trnbench.serving.loadgen_child", *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=descriptors,
            )
        self._timer = threading.Timer(self._timeout, self._expire)
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_timer()
        self.channel.close()
        if kind is None:
            # It said that it was finished and is about to end by itself.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=EXIT_SECONDS)
        if self._process.returncode is None:
            self._kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=EXIT_SECONDS)
        self._output.close()

    @property
    def timed_out(self) -> bool:
        """Whether the time is up."""
        return self._timed_out

    def gone(self, doing: str) -> CaseError:
        """What to raise once the connection has ended before the test: a timeout, a signal, or an exit in error.

        `doing` says how far the test was, for the message.
        """
        self._stop_timer()
        try:
            code = self._process.wait(timeout=EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return CaseError(Status.FAILED, f"LoadGen's process closed the connection and lives on; {doing}")
        seconds = time.monotonic() - self._started
        if self._timed_out:
            return CaseError(
                Status.TIMEOUT, f"LoadGen's test was ended after its {self._timeout:g} s, start-up included; {doing}"
            )
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            return CaseError(
                Status.CRASHED,
                f"LoadGen's process was killed by {name} after {seconds:.1f} s; {doing}{self._last_words()}",
            )
        return CaseError(Status.FAILED, f"LoadGen's process ended with exit code {code}; {doing}{self._last_words()}")

    def _expire(self) -> None:
        self._timed_out = True
        self._kill()

    def _stop_timer(self) -> None:
        # Only after this may the process be waited for: until then its number cannot belong to another one.
        self._timer.cancel()
        self._timer.join()

    def _kill(self) -> None:
        # macOS answers EPERM instead of ESRCH for a group of which only zombies are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _last_words(self) -> str:
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - TAIL_BYTES))
        lines = self._output.read().decode("utf-8", errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f"; its last words: {said[-1]}" if said else ""
