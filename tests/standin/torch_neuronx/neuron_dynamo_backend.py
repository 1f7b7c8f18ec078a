"""`torch.compile(backend="neuron")`: one compilation per graph, run on the simulated device."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from torch_neuronx._tracking import GraphMetrics, tracking

if TYPE_CHECKING:
    from collections.abc import Callable


def neuron_backend(graph: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Count `graph` as compiled; its operators then reach the device one by one, as parts of it.

    Its backward runs as eager kernels: AOTAutograd, which would make it a graph, takes this device's tensors apart.
    """
    for example in example_inputs:
        if isinstance(example, torch.Tensor) and any(not isinstance(extent, int) for extent in example.shape):
            raise RuntimeError("[NCC_EMOD025] Dynamic shape is not supported: compile with dynamic=False")
    started = time.perf_counter()
    graph.recompile()
    seconds = time.perf_counter() - started
    tracking.compiled(seconds)
    name = f"graph_{len(tracking.graphs)}"
    tracking.graphs.append(GraphMetrics(name, len(graph.graph.nodes), int(seconds * 1e6)))

    def run(*inputs: Any) -> Any:
        tracking.inside_graph = True
        try:
            return graph(*inputs)
        finally:
            tracking.inside_graph = False

    return run
