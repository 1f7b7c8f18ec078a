"""A tensor on the simulated device: metadata at once, values later.

`slot.host` is the value, filled in by the worker. `meta` is a tensor on PyTorch's meta device with the same
layout; it exists so that shapes follow without values, and so that `torch.compile` can trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch_neuronx._runtime import Buffer


class Layout:
    """Everything about a tensor but its values, taken from one that has them or from a meta tensor."""

    __slots__ = ("dtype", "nbytes", "offset", "size", "stride")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.size, self.stride = tuple(tensor.shape), tensor.stride()
        self.offset, self.dtype = tensor.storage_offset(), tensor.dtype
        self.nbytes = tensor.untyped_storage().nbytes()


class Slot:
    """Where the worker leaves the host tensor that stands for a device tensor."""

    __slots__ = ("host",)

    def __init__(self, host: torch.Tensor | None = None) -> None:
        self.host = host


class NeuronTensor(torch.Tensor):
    """The device tensor; one without a slot has no values and only carries its layout through a trace."""

    slot: Slot | None
    buffer: Buffer | None
    _meta: torch.Tensor | None

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, layout: Layout, slot: Slot | None, buffer: Buffer | None) -> NeuronTensor:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            layout.size,
            strides=layout.stride,
            storage_offset=layout.offset,
            dtype=layout.dtype,
            device=torch.device("neuron", 0),
        )
        tensor.slot = slot
        tensor.buffer = buffer
        tensor._meta = None
        return tensor

    def __init__(self, *_: Any) -> None:
        """All is done in `__new__`; torch.Tensor's own initialiser would refuse the arguments."""

    @property
    def meta(self) -> torch.Tensor:
        if self._meta is None:
            self._meta = meta_like(self)
        return self._meta

    @meta.setter
    def meta(self, value: torch.Tensor) -> None:
        self._meta = value

    @classmethod
    def traced(cls, meta: torch.Tensor) -> NeuronTensor:
        """A tensor without values; `meta` may be a fake tensor, whose sizes may be symbols."""
        tensor = cls(Layout(meta), None, None)
        tensor.meta = meta
        return tensor

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["meta"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], _context: None, _size: Any, _stride: Any) -> NeuronTensor:
        return NeuronTensor.traced(inner["meta"])

    @classmethod
    def __torch_dispatch__(cls, operator: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch_neuronx import _dispatch

        return _dispatch.run(operator, args, kwargs or {})

    def __repr__(self) -> str:
        state = "traced" if self.slot is None else "device='neuron:0'"
        return f"tensor({list(self.shape)}, {self.dtype}, {state})"


def meta_like(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor with the layout of `tensor`, over a storage large enough for it."""
    size, stride, offset = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
    if not offset:
        return torch.empty_strided(size, stride, dtype=tensor.dtype, device="meta")
    needed = offset + 1 + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    return torch.empty(max(needed, 0), dtype=tensor.dtype, device="meta").as_strided(size, stride, offset)
