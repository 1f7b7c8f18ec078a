"""What happens between rounds, outside the timed region: drain the device's queue and, if asked, flush its caches."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trnbench.backends.base import Backend
    from trnbench.case import CachePolicy

HOST_CACHE_ROOT = Path("/sys/devices/system/cpu/cpu0/cache")
LEAST_HOST_FLUSH_BYTES = 64 * 2**20
DEVICE_FLUSH_BYTES = 512 * 2**20
"""Twice the largest last-level cache of the accelerators in the catalog: 256 MiB in MI300X, MI325X and MI355X."""


class Settle:
    """Brings the device to the same quiet state before every round.

    Touching a small tensor and materializing it waits for whatever an untimed reset left in the queue, which would
    otherwise be paid for inside the next round. With `cache="cold"` the tensor is larger than the last-level cache
    of the device that runs, so that touching it evicts the step's data; it counts in the case's peak memory.
    """

    def __init__(self, backend: Backend, cache: CachePolicy) -> None:
        import torch

        self._backend = backend
        elements = flush_bytes(backend.device.type) // 4 if cache == "cold" else 1
        self._touched = torch.zeros(elements, dtype=torch.float32, device=backend.device)

    @property
    def touched_bytes(self) -> int:
        """Bytes written by every call."""
        return self._touched.numel() * self._touched.element_size()

    def __call__(self) -> None:
        self._touched.add_(1)
        self._backend.materialize([self._touched])


def flush_bytes(device_type: str) -> int:
    """Bytes to write so that nothing of the step stays cached on a device of this torch type."""
    if device_type != "cpu":
        return DEVICE_FLUSH_BYTES
    return max(LEAST_HOST_FLUSH_BYTES, 2 * (last_level_cache_bytes() or 0))


def last_level_cache_bytes(root: Path = HOST_CACHE_ROOT) -> int | None:
    """Size of the largest cache of the first processor, as Linux reports it; None where it does not."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = []
    for file in root.glob("index*/size"):
        text = file.read_text().strip()
        digits, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
        if digits.isdecimal():
            sizes.append(int(digits) * unit)
    return max(sizes, default=None)


def collect_between_rounds() -> None:
    """Free the reference cycles of the last round, whose tensors would otherwise pile up in the peak memory."""
    gc.collect()
