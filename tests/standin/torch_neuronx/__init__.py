"""A stand-in for AWS's native torch-neuronx: the device `neuron`, simulated on the host, for tests without hardware.

It follows the public interface of the real package where a benchmark touches it: asynchronous execution, events that
time the enqueue, a compilation per new shape, operators that fall back to the host. It never claims hardware: there
is no Neuron device in sysfs, which is what makes a record simulated.
"""

from __future__ import annotations

from torch_neuronx.neuron import clear_op_tracking, get_dynamo_metrics, get_executed_ops, get_fallback_ops

__all__ = ["clear_op_tracking", "get_dynamo_metrics", "get_executed_ops", "get_fallback_ops"]
