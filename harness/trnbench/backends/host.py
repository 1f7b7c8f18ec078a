"""The host's own numbers: cores a process may use, memory, packages, and the peak of resident memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

from trnbench.device import MemoryUse

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_CPUINFO = Path("/proc/cpuinfo")
_RESET_PEAK = "5"
"""Written to clear_refs, sets the peak resident size to the current one (Linux, proc(5))."""


def usable_cores() -> int:
    """Hardware threads that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_packages() -> int:
    """Processor packages; 1 where the system does not say."""
    try:
        sockets = set(re.findall(r"^physical id\s*:\s*(\d+)", _CPUINFO.read_text("ascii", "replace"), re.MULTILINE))
    except OSError:
        return 1
    return max(len(sockets), 1)


def total_memory() -> int | None:
    """Physical memory in bytes, None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


class ResidentPeak:
    """Peak resident memory of this process since `reset`, in bytes, from Linux's VmHWM."""

    def __init__(self) -> None:
        self._reset_works = False

    def reset(self) -> None:
        """Start a new peak at the present size."""
        try:
            _CLEAR_REFS.write_text(_RESET_PEAK, "ascii")
            self._reset_works = True
        except OSError:
            self._reset_works = False

    def read(self) -> MemoryUse:
        """The peak; None where the system keeps none or lets none be reset, with the reason as the source."""
        if not self._reset_works:
            return MemoryUse(peak_bytes=None, source="this system does not let a process reset its peak memory")
        found = re.search(r"^VmHWM:\s*(\d+) kB", _STATUS.read_text("ascii", "replace"), re.MULTILINE)
        if found is None:
            return MemoryUse(peak_bytes=None, source="/proc/self/status has no VmHWM")
        return MemoryUse(peak_bytes=int(found[1]) * 1024, source="VmHWM: resident memory of the whole process")
