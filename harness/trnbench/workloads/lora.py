"""LoRA: small trained matrices beside the frozen ones of a decoder (Hu et al., arXiv:2106.09685, section 4.1).

A frozen matrix W [out, in] gets a pair A [rank, in] and B [out, rank], and computes W x + alpha / rank * B A x. B
starts at zero, so an adapted model starts as the model that it was. The decoder itself is not changed: its Linear
instances are wrapped. There is no dropout, unlike in the benchmark rules' own entry: no two devices draw the same
random mask.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from trnbench.status import UsageError
from trnbench.workloads.initial import initial_values
from trnbench.workloads.layers import Linear, wide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.workloads.decoder import Decoder

ADAPTED = {"attention": ("query", "key", "value", "output"), "feed_forward": ("gate", "up", "down")}
"""Every matrix of a layer. The rules' llama2_70b_lora entry adapts those of attention alone."""

_INITIAL_BOUND = 1 / 32
"""Of `initial.initial_values`."""


class AdaptedLinear(nn.Module):
    """x [..., in] -> W x + alpha / rank * B A x [..., out] in x's dtype; A and B are `dtype` masters."""

    def __init__(self, base: Linear, rank: int, alpha: float, dtype: torch.dtype) -> None:
        super().__init__()
        outputs, inputs = base.weight.shape
        device = base.weight.device
        self.base = base
        self.scale = alpha / rank
        self.a = nn.Parameter(torch.empty(rank, inputs, dtype=dtype, device=device))
        self.b = nn.Parameter(torch.zeros(outputs, rank, dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.base(x)
        inner = functional.linear(x, self.a.to(x.dtype))
        return output + functional.linear(inner, self.b.to(x.dtype)) * self.scale

    def merged(self) -> Tensor:
        """W + alpha / rank * B A [out, in] in W's dtype, computed in the wide one."""
        weight = self.base.weight.to(wide(self.base.weight.dtype))
        return (weight + self.scale * (self.b @ self.a).to(weight.dtype)).to(self.base.weight.dtype)


def adapt(model: Decoder, rank: int, alpha: float, seed: int) -> list[nn.Parameter]:
    """Freeze `model`, wrap every matrix of its layers in place, and return the adapters' parameters in order.

    A is uniform on +-1 / sqrt(in), from `seed` and the matrix's name, the same bits on every device; parameters are
    float32 masters, float64 where the model computes in it. Raises `UsageError` for a rank below 1 or above what the
    narrowest matrix has, and for a model that is adapted already.
    """
    model.requires_grad_(False)
    dtype = wide(model.compute_dtype)
    parameters: list[nn.Parameter] = []
    for prefix, parent, name in _places(model):
        base = getattr(parent, name)
        if not isinstance(base, Linear):
            raise UsageError(f"{prefix} of {model.preset.name} is adapted already")
        if not 1 <= rank <= min(base.weight.shape):
            raise UsageError(f"LoRA rank is {rank}; {prefix} allows 1 to {min(base.weight.shape)}")
        adapted = AdaptedLinear(base, rank, alpha, dtype)
        values = torch.from_numpy(initial_values(f"{prefix}.a", tuple(adapted.a.shape), seed))
        scale = 1 / (_INITIAL_BOUND * math.sqrt(adapted.a.shape[1]))
        with torch.no_grad():
            adapted.a.copy_((values * scale).to(dtype))
        setattr(parent, name, adapted)
        parameters += [adapted.a, adapted.b]
    return parameters


def merge(model: Decoder) -> None:
    """Add every adapter of `model` to the matrix beside it and put the plain matrix back in its place."""
    for _, parent, name in _places(model):
        adapted = getattr(parent, name)
        if isinstance(adapted, AdaptedLinear):
            with torch.no_grad():
                adapted.base.weight.copy_(adapted.merged())
            setattr(parent, name, adapted.base)


def _places(model: Decoder) -> Iterator[tuple[str, nn.Module, str]]:
    """(full name, parent module, attribute) of every matrix that is adapted."""
    for index, block in enumerate(model.layers):
        for part, names in ADAPTED.items():
            for name in names:
                yield f"layers.{index}.{part}.{name}", getattr(block, part), name
