"""Registers every ATen operator that has a kernel of its own for the simulated device."""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_neuronx import _dispatch

_library = torch.library.Library("aten", "IMPL", "PrivateUse1")
_COPIES = ("_copy_from", "_copy_from_and_resize", "set_")


def _kernel(operator: Any, *args: Any, **kwargs: Any) -> Any:
    return _dispatch.run(operator, args, kwargs)


def register() -> None:
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        base, _, overload = name.removeprefix("aten::").partition(".")
        if base in _COPIES or torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
            continue
        try:
            operator = getattr(getattr(torch.ops.aten, base), overload or "default")
        except AttributeError:
            continue  # an operator that exists only inside TorchScript
        _library.impl(name.removeprefix("aten::"), functools.partial(_kernel, operator), "PrivateUse1")
    _library.impl("_copy_from", _dispatch.copy, "PrivateUse1")
