"""What a backend does with each format: runs it, has it emulated, or lacks it. Found by trying on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.formats.block_formats import BLOCK_FORMATS, BlockFormat
from trnbench.conformance.formats.caster import NotHere
from trnbench.conformance.formats.definitions import FORMATS, Format
from trnbench.conformance.formats.device_caster import DeviceCaster, native_dtype
from trnbench.conformance.formats.device_runs import DeviceRuns
from trnbench.conformance.formats.judge import judge_cast, verdict
from trnbench.conformance.formats.judge_blocks import ORDINARY, judge_quantise
from trnbench.conformance.formats.scaled_products import try_block_scaled_product, try_scaled_product

if TYPE_CHECKING:
    from trnbench.backends.base import Backend
    from trnbench.records.schema import Check

Status = Literal["native", "emulated", "absent"]


_ROWS = 256
"""Of the square matrices that show tf32: some libraries switch on shape."""


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """`status` of one format with the reason in words.

    "native": casts there and back and matrix products of it run on the device. "emulated": kept in its dtype or
    computed through fp32 on the device, exactly, but no product takes it. "absent": neither works there.
    """

    format: str
    status: Status
    reason: str


def capabilities(backend: Backend) -> list[Capability]:
    """One row for every scalar and block-scaled format."""
    every: list[Format | BlockFormat] = [*FORMATS.values(), *BLOCK_FORMATS.values()]
    return [capability(backend, one) for one in every]


def capability(backend: Backend, one: Format | BlockFormat) -> Capability:
    """What `backend` does with `one`, tried now, without `backend.compile`."""
    if isinstance(one, BlockFormat):
        return _block_capability(backend, one)
    if one.name == "tf32":
        return _tf32_capability(backend)
    if native_dtype(one) is None:
        return _emulated(backend, one, f"PyTorch has no casts for {one.name}")
    return _native_capability(backend, one)


def _native_capability(backend: Backend, one: Format) -> Capability:
    """Of a format that PyTorch has a dtype for: casts first, then products."""
    try:
        cast = _cast_refusal(backend, one)
    except NotHere as reason:
        cast = str(reason)
    if cast:
        return Capability(format=one.name, status="absent", reason=cast)
    try:
        product = try_scaled_product(DeviceRuns(backend, "eager"), one)
    except NotHere as reason:
        why = f"torch.{one.torch} is stored and cast on the device, but products go through fp32: {reason}"
        return Capability(format=one.name, status="emulated", reason=why)
    return Capability(format=one.name, status="native", reason=f"torch.{one.torch}: casts run there, and {product}")


def _cast_refusal(backend: Backend, one: Format) -> str:
    """Why small numbers do not survive a cast there and back; empty where they do. Raises `NotHere`."""
    dtype = native_dtype(one)
    assert dtype is not None
    powers = torch.tensor([1.0, 2.0, 4.0, 0.5])

    def there_and_back(values: Tensor) -> Tensor:
        return values.to(dtype).to(torch.float32)

    found = DeviceRuns(backend, "eager").alone(one.name, there_and_back, powers)[0]
    return "" if torch.equal(found, powers) else f"1, 2, 4, 0.5 come back from {one.name} as {found.tolist()}"


def _tf32_capability(backend: Backend) -> Capability:
    """Whether the switch for tf32 rounds operands: 1 + 2^-12 times 1 becomes 1, and 1 + 2^-10 stays."""
    runs = DeviceRuns(backend, "eager")
    operand = torch.eye(_ROWS)
    found = []
    try:
        with backend.numerics("tf32"):
            for bits in (10, 12):
                left = operand * (1.0 + 2.0**-bits)
                found.append(float(runs.alone("tf32 product", torch.matmul, left, operand)[0][0, 0]))
    except NotHere as reason:
        return Capability(format="tf32", status="absent", reason=str(reason))
    if found[0] == 1.0 + 2.0**-10 and found[1] in (1.0, 1.0 + 2.0**-10):
        return Capability(format="tf32", status="native", reason="products round their fp32 operands to 11 bits")
    kept = "keep all 24 bits" if found[1] != 1.0 else "round to fewer than 11 bits"
    return _emulated(backend, FORMATS["tf32"], f"with the switch set, products of fp32 operands {kept}")


def _emulated(backend: Backend, one: Format, lacks: str) -> Capability:
    """Emulated only if the emulation's every value is right on this very device."""
    try:
        check = judge_cast(DeviceCaster(backend, "eager"), one.name, one, "fp32")
    except NotHere as reason:
        return Capability(format=one.name, status="absent", reason=f"{lacks}; its emulation: {reason}")
    return _if_exact(one.name, lacks, check)


def _block_capability(backend: Backend, one: BlockFormat) -> Capability:
    runs = DeviceRuns(backend, "eager")
    try:
        product = try_block_scaled_product(runs, one)
    except NotHere as reason:
        lacks = f"absent as a dtype and as operand of a product ({reason})"
    else:
        return Capability(format=one.name, status="native", reason=product)
    try:
        check = judge_quantise(DeviceCaster(backend, "eager"), one.name, one, ORDINARY)
    except NotHere as reason:
        return Capability(format=one.name, status="absent", reason=f"{lacks}; its emulation: {reason}")
    return _if_exact(one.name, lacks, check)


def _if_exact(name: str, lacks: str, check: Check) -> Capability:
    if check.verdict != "pass":
        why = f"{lacks}; its emulation is wrong here: {check.looks_like}"
        return Capability(format=name, status="absent", reason=why)
    return Capability(format=name, status="emulated", reason=f"{lacks}; computed exactly through fp32 on the device")


def capability_check(backend: Backend, one: Format | BlockFormat) -> Check:
    """The row as a check: it passes where the format can be used, and says "not checked" where it is absent."""
    found = capability(backend, one)
    where = f"{found.status}: {found.reason}"
    check = verdict(f"formats/{one.name}/capability", 0, where)
    if found.status == "absent":
        return msgspec.structs.replace(check, verdict="not checked", value=None)
    return check
