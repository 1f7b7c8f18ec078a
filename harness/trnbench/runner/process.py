"""One child process in its own session: captured, limited in time, and ended together with everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import IO, TYPE_CHECKING

import msgspec

from trnbench.runner.watchdog import PARENT_PIPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.runner.interrupt import Stop

TAIL_BYTES = 64_000
GRACE_SECONDS = 5.0
REAP_SECONDS = 30.0
POLL_SECONDS = 0.2


class ChildResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended. `returncode` is negative for a signal (subprocess's rule), None if it could not be reaped.

    `output` holds the last `TAIL_BYTES` bytes of stdout and stderr together.
    """

    returncode: int | None
    seconds: float
    timed_out: bool
    interrupted: bool
    output: str


class _Tail:
    """Drains a pipe in a thread and keeps its last bytes, so that a talkative child neither blocks nor fills memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._drain, name="child-output", daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while chunk := os.read(self._stream.fileno(), 65_536):
            self._kept += chunk
            del self._kept[:-TAIL_BYTES]

    def text(self) -> str:
        # A grandchild that left the process group may hold the pipe open for ever: what has arrived must do.
        self._thread.join(timeout=1.0)
        if not self._thread.is_alive():
            self._stream.close()
        return bytes(self._kept).decode("utf-8", errors="replace")


def run_child(command: Sequence[str], *, timeout: float, stop: Stop, grace: float = GRACE_SECONDS) -> ChildResult:
    """Run `command` for at most `timeout` seconds, or until `stop` is requested, and leave no process of it behind.

    The child leads a new session. On a stop request its whole process group gets SIGTERM and, after `grace` seconds,
    SIGKILL: a pytest child uses that time to record that it was interrupted. A child past its timeout has had its
    time, and the record must say `timeout`: its group is killed at once, as is what a child that ended by itself left
    running. The child inherits the read end of a pipe (`watchdog.PARENT_PIPE`) that reports the driver's death to it.
    """
    read_end, write_end = os.pipe()
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(read_end,),
            # What the child says is read as UTF-8: under a poor locale Python would write escapes that look like paths.
            env={**os.environ, PARENT_PIPE: str(read_end), "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
        )
    except OSError:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    stop.group = child.pid
    assert child.stdout is not None
    tail = _Tail(child.stdout)
    try:
        timed_out = not _wait(child, started + timeout, stop)
        interrupted = timed_out and stop.requested
        _end_group(child, grace if interrupted else 0.0)
    finally:
        stop.group = None
        os.close(write_end)
    return ChildResult(
        returncode=child.returncode,
        seconds=time.monotonic() - started,
        timed_out=timed_out and not interrupted,
        interrupted=interrupted,
        output=tail.text(),
    )


def _wait(child: subprocess.Popen[bytes], deadline: float, stop: Stop) -> bool:
    """True once the child ended by itself; False when the deadline or a stop request came first."""
    while True:
        try:
            child.wait(timeout=max(0.0, min(POLL_SECONDS, deadline - time.monotonic())))
            return True
        except subprocess.TimeoutExpired:
            if stop.requested or time.monotonic() >= deadline:
                return False


def _end_group(child: subprocess.Popen[bytes], grace: float) -> None:
    """End every process of the child's group: politely while `grace` lasts, then for good."""
    if grace > 0:
        _signal_group(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=grace)
    _signal_group(child.pid, signal.SIGKILL)
    # A process stuck inside a device driver ignores even SIGKILL; the run goes on and the record says so.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=REAP_SECONDS)


def _signal_group(group: int, number: signal.Signals) -> None:
    # macOS answers EPERM instead of ESRCH for a group of which only zombies are left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
