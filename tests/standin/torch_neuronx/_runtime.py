"""The simulated runtime: one worker thread that executes operators in order, and an account of device memory.

Asynchronous on purpose, as the real device is: `submit` returns at once and only `drain` waits. A failure on the
worker surfaces at the next wait, as it does on hardware.
"""

from __future__ import annotations

import atexit
import fcntl
import queue
import threading
import time
from typing import IO, TYPE_CHECKING

from torch_neuronx import _knobs

if TYPE_CHECKING:
    from collections.abc import Callable

_MAXIMUM_IN_FLIGHT = 8192


class Worker:
    """Executes submitted work in order on its own thread."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(_MAXIMUM_IN_FLIGHT)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def submit(self, work: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="simulated-neuron", daemon=True)
            self._thread.start()
            atexit.register(self.stop)
        self._queue.put(work)

    def drain(self) -> None:
        """Wait until everything submitted has run; raise what went wrong since the last wait."""
        self._queue.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def stop(self) -> None:
        """End the thread before the interpreter goes, so that no operator runs into a dying torch."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _loop(self) -> None:
        import torch

        torch.set_grad_enabled(False)  # thread-local
        while (work := self._queue.get()) is not None:
            try:
                if self._error is None:
                    work()
                    if seconds := _knobs.operator_seconds():
                        time.sleep(seconds)
            except BaseException as error:
                self._error = error
            finally:
                self._queue.task_done()
        self._queue.task_done()


class Memory:
    """Bytes of live device buffers, and their peak."""

    def __init__(self) -> None:
        self.allocated = 0
        self.peak = 0
        self._lock = threading.RLock()  # a collection inside the lock may free a buffer

    def take(self, size: int) -> None:
        with self._lock:
            if self.allocated + size > _knobs.memory_bytes():
                raise out_of_memory(size)
            self.allocated += size
            self.peak = max(self.peak, self.allocated)

    def give(self, size: int) -> None:
        with self._lock:
            self.allocated -= size

    def reset_peak(self) -> None:
        with self._lock:
            self.peak = self.allocated


class Buffer:
    """The device memory behind one storage; its bytes return when the last tensor that views it goes."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = 0
        memory.take(size)
        self._size = size

    def __del__(self) -> None:
        memory.give(self._size)


class Cores:
    """Exclusive ownership of the cores by one process, taken on first use."""

    def __init__(self) -> None:
        self.owned = False
        self._refusals = 0
        self._lock: IO[str] | None = None

    def take(self) -> None:
        if self.owned:
            return
        wanted = _knobs.busy_times()
        if wanted < 0 or self._refusals < wanted:
            self._refusals += 1
            raise RuntimeError(_knobs.busy_message())
        if (path := _knobs.core_lock()) is not None:
            lock = open(path, "w")  # noqa: PTH123, SIM115 - held until the process ends
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                raise RuntimeError(_knobs.busy_message()) from None
            self._lock = lock
        self.owned = True


def out_of_memory(size: int) -> RuntimeError:
    return RuntimeError(
        f"Failed to alloc DEVICE memory: {size} bytes on ND 0:NC 0 (nrt_tensor_allocate status=4, NRT_RESOURCE)"
    )


worker = Worker()
memory = Memory()
cores = Cores()
