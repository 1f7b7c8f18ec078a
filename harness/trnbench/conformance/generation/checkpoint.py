"""A checkpoint moved to a device and back, through a file: every bit of every tensor must survive, and its dtype.

Beside the model's own weights travels one tensor with the values that careless copies change: subnormals, both zeros,
infinities, the largest numbers and NaN of several payloads.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from trnbench.conformance.model.runs import Wait

DELICATE = "delicate values"
_BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
_PATTERNS = {
    torch.float32: (0, -(2**31), 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00001, 0x7FFFFFFF, 0x3F800001),
    torch.bfloat16: (0, -(2**15), 1, 0x007F, 0x0080, 0x7F7F, 0x7F80, 0x7FC1, 0x7FFF, 0x3F81),
    torch.float16: (0, -(2**15), 1, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0x7E01, 0x7FFF, 0x3C01),
}


def delicate(dtype: torch.dtype) -> Tensor:
    """The values that a copy must not change, in `dtype` (float32, bfloat16 or float16), made from their bits."""
    return torch.tensor(_PATTERNS[dtype], dtype=_BITS[dtype]).view(dtype)


def changed_tensors(weights: Mapping[str, Tensor], device: torch.device, wait: Wait) -> list[str]:
    """Names of the tensors that come back from `device` with another dtype, shape or bit.

    The way: a file, the device, the host, a second file. `weights` are host tensors.
    """
    first = _through_a_file(dict(weights))
    placed = {name: tensor.to(device) for name, tensor in first.items()}
    wait(list(placed.values()))
    back = _through_a_file({name: tensor.cpu() for name, tensor in placed.items()})
    return [name for name, tensor in weights.items() if not same_bits(tensor, back[name])]


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether dtype, shape and every bit agree, NaN payloads included."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _through_a_file(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    stream = io.BytesIO()
    torch.save(tensors, stream)
    stream.seek(0)
    loaded: dict[str, Tensor] = torch.load(stream, weights_only=True)
    return loaded
