"""Matrix products of narrow operands with exact answers, to see whether a device has them at all.

Operands are all ones, or one power of two, and so are the scales: the answer is exact in any order, and the layout in
which hardware wants its scales does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trnbench.conformance.formats.caster import NotHere
from trnbench.conformance.formats.device_caster import native_dtype

if TYPE_CHECKING:
    from trnbench.conformance.formats.block_formats import BlockFormat
    from trnbench.conformance.formats.definitions import Format
    from trnbench.conformance.formats.device_runs import DeviceRuns

PLAIN_SIZE, BLOCK_SIZE = 32, 128
"""Of square matrices: multiples of the tiles that hardware asks for, 16 elements, or 128 rows of block scales."""


def try_scaled_product(runs: DeviceRuns, one: Format) -> str:
    """What product takes `one`, in words. Raises `NotHere` where none does, or where its answer is wrong."""
    dtype, size = native_dtype(one), PLAIN_SIZE
    assert dtype is not None
    if one.bits > 8:
        operand = torch.ones(size, size, dtype=dtype)
        return _right("torch.matmul", runs.alone(f"{one.name} product", torch.matmul, operand, operand)[0], size)
    # The products of two e5m2 operands are missing from hardware that has those of e5m2 and e4m3.
    other = torch.float8_e4m3fn if one.name == "fp8 e5m2" else dtype
    left, right = torch.ones(size, size).to(dtype), torch.ones(size, size).to(other)
    scale = torch.ones(())

    def product(first: Tensor, second: Tensor, unit: Tensor) -> Any:
        return torch._scaled_mm(first, second.t(), scale_a=unit, scale_b=unit, out_dtype=torch.float32)

    return _right("torch._scaled_mm", runs.alone(f"{one.name} product", product, left, right, scale)[0], size)


def try_block_scaled_product(runs: DeviceRuns, one: BlockFormat) -> str:
    """torch._scaled_mm with one scale a block: e8m0 for MX, e4m3 for NVFP4. Raises `NotHere` where there is none.

    Elements are 1, scales 2 and 1/2, so that a product that ignores its scales' format is not taken for one that works.
    """
    size = BLOCK_SIZE
    element = getattr(torch, one.element_format.torch or "", None)
    scale_dtype = getattr(torch, one.scale_format.torch or "", None)
    if element is None or scale_dtype is None:
        raise NotHere(f"PyTorch lacks the dtypes of {one.name}")
    if one.element_format.bits == 4:
        ones = torch.full((size, size // 2), 0x22, dtype=torch.uint8).view(element)
    else:
        ones = torch.ones(size, size).to(element)
    double = torch.full((size, size // one.block), 2.0).to(scale_dtype)
    half = torch.full((size, size // one.block), 0.5).to(scale_dtype)

    def product(first: Tensor, second: Tensor, left: Tensor, right: Tensor) -> Any:
        return torch._scaled_mm(first, second.t(), scale_a=left, scale_b=right, out_dtype=torch.bfloat16)

    found = runs.alone(f"{one.name} product", product, ones, ones, double, half)[0]
    return _right(f"torch._scaled_mm with scales of {one.scale_format.name}", found, size)


def _right(what: str, found: Tensor, size: int) -> str:
    """Every element is the number of terms. Raises `NotHere` where it is not."""
    values = found.to(torch.float64)
    if not torch.equal(values, torch.full_like(values, float(size))):
        raise NotHere(f"{what} of ones gives {float(values.flatten()[0])!r}, {size} is right")
    return f"{what} takes it"
