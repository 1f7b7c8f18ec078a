"""A tensor on the simulated device: metadata at once, values later.

`slot.host` is the value, filled in by the worker. `meta` is a tensor on PyTorch's meta device with the same
layout; it exists so that shapes follow without values, and so that `torch.compile` can trace.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_neuronx._runtime import Buffer


class Slot:
    """Where the worker leaves the host tensor that stands for a device tensor."""

    __slots__ = ("host",)

    def __init__(self, host: torch.Tensor | None = None) -> None:
        self.host = host


class NeuronTensor(torch.Tensor):
    slot: Slot | None
    buffer: Buffer | None
    _meta: torch.Tensor | None

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(
        cls, size: Any, stride: Any, offset: int, dtype: torch.dtype, slot: Slot | None, buffer: Buffer | None
    ) -> NeuronTensor:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, size, strides=stride, storage_offset=offset, dtype=dtype, device=torch.device("neuron", 0)
        )
        tensor.slot = slot
        tensor.buffer = buffer
        tensor._meta = None
        return tensor

    def __init__(self, *_: Any) -> None:
        pass

    @property
    def meta(self) -> torch.Tensor:
        if self._meta is None:
            self._meta = meta_like(tuple(self.shape), self.stride(), self.storage_offset(), self.dtype)
        return self._meta

    @classmethod
    def wrapping(cls, meta: torch.Tensor) -> NeuronTensor:
        """A tensor without a value, for tracing: `meta` may be a fake tensor."""
        tensor = cls(meta.shape, meta.stride(), meta.storage_offset(), meta.dtype, None, None)
        tensor._meta = meta
        return tensor

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["meta"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: None, size: Any, stride: Any) -> NeuronTensor:
        return NeuronTensor.wrapping(inner["meta"])

    @meta.setter
    def meta(self, value: torch.Tensor) -> None:
        self._meta = value

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch_neuronx import _dispatch

        return _dispatch.run(operator, args, kwargs or {})

    def __repr__(self) -> str:
        if self.slot is None:
            return f"NeuronTensor({list(self.shape)}, {self.dtype}, traced)"
        return f"tensor(..., device='neuron:0', size={list(self.shape)}, dtype={self.dtype})"


def meta_like(size: Any, stride: Any, offset: int, dtype: torch.dtype) -> torch.Tensor:
    """A meta tensor with this layout, over a storage large enough for it."""
    if not offset:
        return torch.empty_strided(size, stride, dtype=dtype, device="meta")
    needed = offset + 1 + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
    return torch.empty(max(needed, 0), dtype=dtype, device="meta").as_strided(size, stride, offset)
