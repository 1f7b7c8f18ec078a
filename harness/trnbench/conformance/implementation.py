"""Who computes an operator: a device through its backend, or any function on the host, behind one interface.

A check knows only this interface, so an implementation that is broken on purpose takes the device's place exactly.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trnbench.backends.base import Backend

Tensors = tuple[Tensor, ...]

GRAPHS_BEFORE_RESET = 6
"""TorchDynamo stops at 8 variants of one function; all inputs of the next shapes start with a clean table."""


class Implementation(abc.ABC):
    """Computes one operator: host tensors in, host tensors out, in the dtype that the device returned them in."""

    @abc.abstractmethod
    def forward(self, inputs: Tensors) -> Tensors:
        """The operator's outputs."""

    @abc.abstractmethod
    def backward(self, inputs: Tensors, cotangents: Tensors, wrt: Sequence[int]) -> Tensors:
        """Gradients of <outputs, cotangents> with respect to the inputs numbered in `wrt`."""


class HostImplementation(Implementation):
    """A function run eagerly on the CPU, and autograd's or a given backward pass."""

    def __init__(
        self,
        function: Callable[..., Any],
        backward: Callable[[Tensors, Tensors], Tensors] | None = None,
    ) -> None:
        self._function = function
        self._backward = backward

    def forward(self, inputs: Tensors) -> Tensors:
        with torch.no_grad():
            return as_tuple(self._function(*inputs))

    def backward(self, inputs: Tensors, cotangents: Tensors, wrt: Sequence[int]) -> Tensors:
        if self._backward is not None:
            return self._backward(inputs, cotangents)
        return gradients(self._function, inputs, cotangents, wrt)


class DeviceImplementation(Implementation):
    """A function run on a backend's device, one graph a call on lazy and compiling backends.

    Inputs are copied as data, so that no compiler can fold them into constants.
    """

    def __init__(self, backend: Backend, mode: str, function: Callable[..., Any]) -> None:
        self._backend = backend
        self._mode = mode
        self._function = function
        self._compiled: Callable[..., Any] | None = None
        self._shapes: set[tuple[object, ...]] = set()

    def forward(self, inputs: Tensors) -> Tensors:
        with torch.no_grad():
            outputs = as_tuple(self._prepared(inputs)(*self._placed(inputs)))
        return self._host(outputs)

    def backward(self, inputs: Tensors, cotangents: Tensors, wrt: Sequence[int]) -> Tensors:
        function = self._prepared(inputs, "backward")
        return self._host(gradients(function, self._placed(inputs), self._placed(cotangents), wrt))

    def _placed(self, tensors: Tensors) -> Tensors:
        return tuple(tensor.to(self._backend.device) for tensor in tensors)

    def _host(self, outputs: Tensors) -> Tensors:
        self._backend.materialize(outputs)
        return tuple(output.detach().cpu() for output in outputs)

    def _prepared(self, inputs: Tensors, *what: str) -> Callable[..., Any]:
        if self._mode != "compiled":
            return self._function
        shapes = (*what, *((tuple(tensor.shape), tensor.dtype, tensor.stride()) for tensor in inputs))
        if shapes not in self._shapes and len(self._shapes) >= GRAPHS_BEFORE_RESET:
            torch._dynamo.reset()
            self._compiled = None
            self._shapes.clear()
        self._shapes.add(shapes)
        if self._compiled is None:
            self._compiled = self._backend.compile(self._function, self._mode)
        return self._compiled


def as_tuple(outputs: Tensor | Sequence[Tensor]) -> Tensors:
    """One tensor or several, always as a tuple."""
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def gradients(function: Callable[..., Any], inputs: Tensors, cotangents: Tensors, wrt: Sequence[int]) -> Tensors:
    """Autograd's gradients of <function(*inputs), cotangents> with respect to the inputs numbered in `wrt`."""
    leaves = [tensor.detach().requires_grad_(index in wrt) for index, tensor in enumerate(inputs)]
    outputs = as_tuple(function(*leaves))
    return torch.autograd.grad(outputs, [leaves[index] for index in wrt], cotangents)
