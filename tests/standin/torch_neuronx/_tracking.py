"""What the simulated device counts: compilations, cache hits, executed operators and operators run on the host."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from torch_neuronx import _knobs


@dataclass
class GraphMetrics:
    """One graph compiled through `torch.compile`, with the field names of the real package."""

    graph_name: str
    graph_node_count: int
    torch_neuronx_compile_us: int


@dataclass
class Tracking:
    hits: int = 0
    compiles: int = 0
    compile_seconds: float = 0.0
    executed: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    graphs: list[GraphMetrics] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def compiled(self, seconds: float) -> None:
        delay = _knobs.compile_seconds()
        if delay:
            time.sleep(delay)
        with self._lock:
            self.compiles += 1
            self.compile_seconds += seconds + delay

    def hit(self) -> None:
        self.hits += 1

    def ran_on_device(self, name: str) -> None:
        self.executed[name] = self.executed.get(name, 0) + 1

    def ran_on_host(self, name: str) -> None:
        self.fallbacks[name] = self.fallbacks.get(name, 0) + 1


tracking = Tracking()
