"""Non-finite results: a class of their own, found and named before any error is compared with any limit.

Two NaN never match, and a maximum over NaN proves nothing, so a result that is not finite has no error value at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trnbench.workloads.decoder import Decoder


def first_nonfinite(tensors: Mapping[str, Tensor]) -> str | None:
    """Count and first position of NaN and infinity, as words; None where everything is finite."""
    for name, tensor in tensors.items():
        bad = ~torch.isfinite(tensor)
        if bad.any():
            index = [int(axis) for axis in torch.nonzero(bad)[0]]
            kind = "NaN" if torch.isnan(tensor[tuple(index)]) else "infinity"
            where = f"row {index[0]}, position {index}" if index else "the scalar"
            return f"{name}: {int(bad.sum())} of {tensor.numel()} values are not finite, first {kind} at {where}"
    return None


def first_nonfinite_layer(model: Decoder, tokens: Tensor) -> str | None:
    """Name of the first module, in order of execution, whose output is not finite in an eager forward pass.

    None where the forward pass is finite: the fault then lies in the backward pass or in the compiler.
    """
    found: list[str] = []

    def watch(name: str) -> object:
        def hook(module: torch.nn.Module, inputs: object, output: object) -> None:
            del module, inputs
            if not found and isinstance(output, Tensor) and not torch.isfinite(output.detach().cpu()).all():
                found.append(name)

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in model.named_modules() if name]
    try:
        with torch.no_grad():
            logits = model(tokens)
    finally:
        for handle in handles:
            handle.remove()
    if not found and not torch.isfinite(logits.cpu()).all():
        found.append("logits")
    return found[0] if found else None
