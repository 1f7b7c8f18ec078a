"""The child's side of the pipe that ties it to the driver: when the driver dies, however it dies, so does the child."""

from __future__ import annotations

import os
import signal
import threading

PARENT_PIPE = "TRNBENCH_PARENT_PIPE"
"""Environment variable with the read end of a pipe whose only writer is the driver. Nothing is ever written to it."""


def follow_parent() -> None:
    """Kill this process group as soon as the driver is gone; does nothing in a process that no driver started.

    A SIGKILL gives the driver no chance to end its children, but the kernel closes its end of the pipe.
    """
    descriptor = os.environ.pop(PARENT_PIPE, None)
    if descriptor is not None:
        threading.Thread(target=_wait_for_end, args=(int(descriptor),), name="follow-parent", daemon=True).start()


def _wait_for_end(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)
