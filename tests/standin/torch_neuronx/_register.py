"""Registers the ATen operators that need a kernel of the device's own, chiefly those that create tensors.

Operators on existing tensors arrive through `NeuronTensor.__torch_dispatch__`. One that PyTorch composes from others
for every device must not be registered: fake tensors call `detach`, for one, with this device's key on a meta tensor.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_neuronx import _dispatch

_library = torch.library.Library("aten", "IMPL", "PrivateUse1")
_COPIES = ("_copy_from", "_copy_from_and_resize", "set_")


def _kernel(operator: Any, *args: Any, **kwargs: Any) -> Any:
    return _dispatch.run(operator, args, kwargs)


def _is_composite(name: str, operator: Any) -> bool:
    """True where PyTorch has a kernel for all devices; creating a tensor stays ours, or it would be resized later."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
        return True
    takes_tensor = any("Tensor" in str(argument.type) for argument in operator._schema.arguments)
    return takes_tensor and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeExplicitAutograd")


def register() -> None:
    for name in torch._C._dispatch_get_all_op_names():
        base, _, overload = name.removeprefix("aten::").partition(".")
        if not name.startswith("aten::") or base in _COPIES:
            continue
        try:
            operator = getattr(getattr(torch.ops.aten, base), overload or "default")
        except AttributeError:
            continue  # an operator that exists only inside TorchScript
        if _is_composite(name, operator):
            continue
        _library.impl(name.removeprefix("aten::"), functools.partial(_kernel, operator), "PrivateUse1")
    _library.impl("_copy_from", _dispatch.copy, "PrivateUse1")
