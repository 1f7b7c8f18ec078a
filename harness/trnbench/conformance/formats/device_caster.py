"""A backend's device as a caster: its own dtypes where it has them, arithmetic in fp32 where it does not.

All inputs of a function have one shape, and in compiled modes the casts of all formats share one graph, since each
costs seconds. Block quantisers do not: C++ compilers take minutes over all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.formats.block_emulation import block_dequantiser, block_quantiser
from trnbench.conformance.formats.block_formats import BlockFormat
from trnbench.conformance.formats.blocks import Quantised
from trnbench.conformance.formats.caster import Caster, Codes, Floats, NotHere
from trnbench.conformance.formats.definitions import FORMATS, Format
from trnbench.conformance.formats.device_runs import DeviceRuns
from trnbench.conformance.formats.emulation import decode_table, decoder, encoder, halves_decoder, rounder

if TYPE_CHECKING:
    from trnbench.backends.base import Backend

Function = Callable[..., Any]

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
_HOST_INTEGERS: dict[int, type[np.integer[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32}
NO_CASTS = frozenset({"fp4 e2m1fn"})
"""PyTorch stores these packed and offers no cast to them, on any device."""

CHUNK = 1 << 16
"""Elements of every call, the rest padded with zeros: one shape, one graph."""

ROWS = 48
"""Rows of every call that quantises, likewise."""


def native_dtype(one: Format) -> torch.dtype | None:
    """PyTorch's dtype for the format; None where a cast to it must be emulated."""
    return None if one.torch is None or one.name in NO_CASTS else getattr(torch, one.torch, None)


class DeviceCaster(Caster):
    """Runs on `backend`'s device in `mode`. Inputs are copied there as data, outputs are read back from there."""

    def __init__(self, backend: Backend, mode: str) -> None:
        self._runs = DeviceRuns(backend, mode)

    def how(self, target: Format | BlockFormat) -> str:
        if isinstance(target, BlockFormat) or native_dtype(target) is None:
            return f"computed through fp32 on the device, exponents {self._runs.powers.name}"
        return f"torch.{target.torch}"

    def encode(self, target: Format, values: Floats, source: str = "fp32") -> Codes:
        native = native_dtype(target) is not None
        if not native and source != "fp32":
            raise NotHere(f"{target.name} has no dtype here, and its emulation takes fp32")
        functions = self._casts() if native else self._emulated_casts()
        parts = []
        for chunk in _chunks(values):
            inputs = torch.from_numpy(chunk)
            inputs = inputs.to(STORAGE[source]) if source in ("bf16", "fp16") else inputs
            kind = f"cast from {source}" if native else "emulated cast"
            parts.append(_codes(self._runs.shared(kind, target.name, functions, inputs)[0]))
        codes = np.concatenate(parts)[: len(values)]
        return np.asarray(codes >> (23 - target.fraction_bits)) if target.name == "tf32" else codes

    def decode(self, source: Format, codes: Codes) -> Floats:
        parts = []
        for chunk in _chunks(codes, 1 << source.bits):
            if native_dtype(source) is None:
                inputs = [torch.from_numpy(chunk.astype(np.int32)), torch.from_numpy(decode_table(source))]
                parts.append(self._runs.alone(f"decode {source.name}", decoder(), *inputs)[0])
            else:
                stored = _stored(source, chunk)
                parts.append(self._runs.alone(f"decode {source.name}", _to_fp32, stored)[0])
        return np.concatenate([_array(part) for part in parts])[: len(codes)]

    def unpack(self, source: Format, packed: Codes) -> Floats:
        inputs = [torch.from_numpy(packed.astype(np.int32)), torch.from_numpy(decode_table(source))]
        return _array(self._runs.alone(f"unpack {source.name}", halves_decoder(), *inputs)[0])

    def round_trip(self, target: Format, values: Floats) -> Floats:
        if native_dtype(target) is None:
            raise NotHere(f"PyTorch has no dtype for {target.name}, so there is no pair of casts")
        functions = {name: _round_trip(dtype) for name, dtype in _natives().items()}
        parts = [
            _array(self._runs.shared("round trip", target.name, functions, torch.from_numpy(chunk))[0])
            for chunk in _chunks(values)
        ]
        return np.concatenate(parts)[: len(values)]

    def quantise(self, target: BlockFormat, values: Floats) -> Quantised:
        rows = len(values)
        padded = np.concatenate([values, np.zeros((ROWS - rows, values.shape[1]), dtype=np.float32)])
        function = block_quantiser(target, self._runs.powers)
        outputs = self._runs.alone(f"quantise {target.name}", function, torch.from_numpy(padded))
        codes, scales, tensor_scale = outputs
        return Quantised(
            codes=codes[:rows].numpy().astype(np.int64),
            scales=scales[:rows].numpy().astype(np.int64),
            tensor_scale=float(tensor_scale),
        )

    def dequantise(self, source: BlockFormat, quantised: Quantised) -> Floats:
        rows = len(quantised.codes)
        codes, scales = (
            torch.from_numpy(np.pad(part, ((0, ROWS - rows), (0, 0))).astype(np.int32))
            for part in (quantised.codes, quantised.scales)
        )
        tensor_scale = torch.tensor(quantised.tensor_scale, dtype=torch.float32)
        table = torch.from_numpy(decode_table(source.element_format))
        function = block_dequantiser(source, self._runs.powers)
        # Formats of equal scales and table sizes read alike.
        kind = f"dequantise {source.element} by {source.scale}"
        return _array(self._runs.alone(kind, function, codes, scales, tensor_scale, table)[0][:rows])

    def _casts(self) -> dict[str, Function]:
        return {name: _cast(dtype) for name, dtype in _natives().items()}

    def _emulated_casts(self) -> dict[str, Function]:
        powers = self._runs.powers
        absent = {name: one for name, one in FORMATS.items() if native_dtype(one) is None}
        return {
            name: rounder(one.significant_bits, powers) if name == "tf32" else encoder(one, powers)
            for name, one in absent.items()
        }


def _natives() -> dict[str, torch.dtype]:
    found = {name: native_dtype(one) for name, one in FORMATS.items()}
    return {name: dtype for name, dtype in found.items() if dtype is not None}


def _cast(dtype: torch.dtype) -> Function:
    return lambda inputs: inputs.to(dtype)


def _round_trip(dtype: torch.dtype) -> Function:
    return lambda inputs: inputs.to(dtype).to(torch.float32)


def _to_fp32(inputs: Tensor) -> Tensor:
    return inputs.to(torch.float32)


def _chunks(values: Floats | Codes, size: int = CHUNK) -> list[Any]:
    """Pieces of `size` elements, the last one filled up with zeros."""
    whole = np.pad(values, (0, -len(values) % size))
    return [np.ascontiguousarray(piece) for piece in whole.reshape(-1, size)]


def _stored(source: Format, codes: Codes) -> Tensor:
    """Bits as a tensor of the format, made on the host: some devices run that reinterpretation there anyway."""
    dtype = native_dtype(source)
    assert dtype is not None
    return torch.from_numpy(codes.astype(_HOST_INTEGERS[dtype.itemsize])).view(dtype)


def _codes(stored: Tensor) -> Codes:
    """The bits of a tensor on the host, as non-negative integers; of int32 its own numbers."""
    if stored.dtype == torch.int32:
        return stored.numpy().astype(np.int64)
    size = stored.element_size()
    bits = stored.contiguous().view(_INTEGERS[size]).numpy()
    return np.asarray(bits.view(_HOST_INTEGERS[size]).astype(np.int64))


def _array(values: Tensor) -> Floats:
    return np.asarray(values.to(torch.float32).numpy())
