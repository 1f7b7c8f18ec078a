"""What a test can make the simulated device do, read from the environment when it happens.

All names begin with SIMULATED_NEURON_: the real package reads none of them.

OPERATOR_SECONDS  time every operator takes on the device, in seconds (default 0: only its own arithmetic)
COMPILE_SECONDS   time every compilation takes, in seconds (default 0)
BUSY_TIMES        how often taking the device fails before it succeeds; -1: always
BUSY_MESSAGE      what the runtime says then
CORE_LOCK         a file that a process locks while it owns the cores
OOM_OPERATOR      name of an ATen operator that fails for want of memory, such as "mm"
MEMORY_BYTES      memory of the device; default 16 GiB
"""

from __future__ import annotations

import os

_PREFIX = "SIMULATED_NEURON_"
_BUSY = "NRT:nrt_init failed: Neuron Core in use by another process, nrt status 1005 NRT_EXEC_NC_BUSY"


def _number(name: str, default: float) -> float:
    return float(os.environ.get(_PREFIX + name, default))


def operator_seconds() -> float:
    return _number("OPERATOR_SECONDS", 0.0)


def compile_seconds() -> float:
    return _number("COMPILE_SECONDS", 0.0)


def busy_times() -> int:
    return int(_number("BUSY_TIMES", 0))


def busy_message() -> str:
    return os.environ.get(_PREFIX + "BUSY_MESSAGE", _BUSY)


def core_lock() -> str | None:
    return os.environ.get(_PREFIX + "CORE_LOCK")


def oom_operator() -> str | None:
    return os.environ.get(_PREFIX + "OOM_OPERATOR")


def memory_bytes() -> int:
    return int(_number("MEMORY_BYTES", 16 * 2**30))
