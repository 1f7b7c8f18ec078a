"""A backend without torch, for tests of the driver: it opens in milliseconds and describes one stand-in device.

`STAND_IN_OPENS` in the environment says how opening goes: fine (default), `busy`, `mismatch`, `crash` or `hang`.
`STAND_IN_DEVICE` holds fields of the device it describes, as JSON, in place of a CPU's.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnbench.backends.base import Backend
from trnbench.device import Counters, Device, MemoryUse, Scalar
from trnbench.status import BackendUnavailable, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class StandInBackend(Backend):
    name = "stand-in"
    modes = ("eager",)
    sync_method = "nothing to wait for"

    @classmethod
    def preflight(cls) -> None:
        if os.environ.get("STAND_IN_OPENS") == "absent":
            raise BackendUnavailable("the stand-in is not here; set STAND_IN_OPENS to something else")

    def open(self) -> None:
        how = os.environ.get("STAND_IN_OPENS")
        with Path(os.environ["STAND_IN_LOG"]).open("a", encoding="utf-8") as log:
            log.write(f"open in {os.getpid()}\n")
        if how == "busy":
            raise BackendUnavailable("the stand-in is busy; list its owners with `ps`", Status.BUSY)
        if how == "mismatch":
            raise RuntimeError("driver version is insufficient: found version 1, requires 2")
        if how == "crash":
            os._exit(11)
        if how == "hang":
            time.sleep(600)

    @property
    def device(self) -> Any:
        return "cpu"

    def materialize(self, outputs: Sequence[Any]) -> None:
        """Nothing is ever pending."""

    def counters(self) -> Counters:
        return Counters(compiles=0, compile_seconds=0.0)

    def unsupported(self, precision: str, mode: str) -> str | None:
        return None if mode in self.modes else f"no mode {mode}"

    def compile(self, function: Callable[..., Any], mode: str) -> Callable[..., Any]:
        return function

    @contextmanager
    def numerics(self, precision: str) -> Iterator[dict[str, Scalar]]:
        yield {"precision": precision}

    def describe(self) -> Device:
        fields = {"chip": "cpu", "chips": 1, "cores": 2, **json.loads(os.environ.get("STAND_IN_DEVICE", "{}"))}
        return Device(backend=self.name, platform="cpu", read_back={"kind": "stand-in"}, **fields)

    def versions(self) -> dict[str, str]:
        return {"stand-in": os.environ.get("STAND_IN_VERSION", "1.0")}

    def flags(self) -> dict[str, Scalar]:
        return {}

    def reset_memory_peak(self) -> None:
        """No memory is counted."""

    def memory_peak(self) -> MemoryUse:
        return MemoryUse(peak_bytes=None, source="none")

    def compile_cache_state(self) -> str | None:
        return "none"

    def classify(self, error: BaseException) -> Status:
        return Status.OOM if isinstance(error, MemoryError) else Status.FAILED
