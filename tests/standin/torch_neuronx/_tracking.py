"""What the simulated device counts: compilations, cache hits, executed operators and operators run on the host."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from torch_neuronx import _knobs


@dataclass
class GraphMetrics:
    """One graph compiled through `torch.compile`, with the field names of the real package."""

    graph_name: str
    graph_node_count: int
    torch_neuronx_compile_us: int


@dataclass
class Tracking:
    """Totals since the process started; the metrics of the cache read zero until they are enabled."""

    metrics_enabled: bool = field(default_factory=lambda: os.environ.get("TORCH_NEURONX_METRICS_ENABLED", "0") == "1")
    hits: int = 0
    compiles: int = 0
    compile_seconds: float = 0.0
    executed: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    graphs: list[GraphMetrics] = field(default_factory=list)
    inside_graph: bool = False
    _kernels: set[Any] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def compiled(self, seconds: float) -> None:
        delay = _knobs.compile_seconds()
        if delay:
            time.sleep(delay)
        with self._lock:
            self.compiles += 1
            self.compile_seconds += seconds + delay

    def kernel(self, key: Any, seconds: float) -> None:
        """An operator is about to run: a kernel known already, a new one, or a part of a graph that was compiled."""
        if self.inside_graph:
            return
        if key in self._kernels:
            self.hits += 1
            return
        self._kernels.add(key)
        self.compiled(seconds)

    def ran_on_device(self, name: str) -> None:
        self.executed[name] = self.executed.get(name, 0) + 1

    def ran_on_host(self, name: str) -> None:
        self.fallbacks[name] = self.fallbacks.get(name, 0) + 1


tracking = Tracking()
