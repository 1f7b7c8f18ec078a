"""`torch.neuron` of the simulated device."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

import torch

from torch_neuronx import _knobs
from torch_neuronx._runtime import cores, memory, worker
from torch_neuronx._tracking import tracking

_CORES = 2


class Event:
    """Like the real one, `elapsed_time` subtracts the host times of the two `record` calls: it times the enqueue."""

    def __init__(self, enable_timing: bool = True) -> None:
        self._recorded: float | None = None

    def record(self, stream: Any = None) -> None:
        self._recorded = time.monotonic()

    def synchronize(self) -> None:
        worker.drain()

    def elapsed_time(self, end: Event) -> float:
        if self._recorded is None or end._recorded is None:
            raise RuntimeError("both events must be recorded before elapsed_time")
        return (end._recorded - self._recorded) * 1000


@dataclass(frozen=True)
class DeviceProperties:
    name: str
    total_memory: int


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return cores.owned


def init() -> None:
    cores.take()


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return _CORES


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    cores.take()


def device(index: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def synchronize(device: Any = None) -> None:
    cores.take()
    worker.drain()


def manual_seed(seed: int) -> None:
    """Random operators draw from the host's generator, which `torch.manual_seed` has already seeded."""


manual_seed_all = manual_seed


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float32, torch.float16, torch.bfloat16]


def is_bf16_supported() -> bool:
    return True


def memory_allocated(device: Any = None) -> int:
    return memory.allocated


def max_memory_allocated(device: Any = None) -> int:
    return memory.peak


def reset_peak_memory_stats(device: Any = None) -> None:
    memory.reset_peak()


def empty_cache() -> None:
    """There is no caching allocator to empty."""


def get_device_properties(device: Any = None) -> DeviceProperties:
    cores.take()
    return DeviceProperties(name="trn2", total_memory=_knobs.memory_bytes())


def get_fallback_ops() -> list[str]:
    return list(tracking.fallbacks)


def get_executed_ops() -> list[str]:
    return list(tracking.executed)


def clear_op_tracking() -> None:
    tracking.fallbacks.clear()
    tracking.executed.clear()


def get_dynamo_metrics() -> list[Any]:
    return list(tracking.graphs)


def reset_dynamo_metrics() -> None:
    tracking.graphs.clear()
