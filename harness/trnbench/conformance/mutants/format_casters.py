"""The casters of which the format mutants are made: two libraries' own, one that rounds by bits, and faulty ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from trnbench.conformance.formats import scalar
from trnbench.conformance.formats.caster import Codes, Floats, HostCaster

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from trnbench.conformance.formats.block_formats import BlockFormat
    from trnbench.conformance.formats.blocks import Quantised
    from trnbench.conformance.formats.definitions import Format


class LibraryCaster(HostCaster):
    """ml_dtypes' casts from fp32, NumPy's own for fp16: implementations that share no code with the definitions."""

    def encode(self, target: Format, values: Floats, source: str = "fp32") -> Codes:
        dtype = library_dtype(target)
        if dtype is None:
            return super().encode(target, values, source)
        with np.errstate(all="ignore"):
            stored = values.astype(np.float32).astype(dtype) if source != "fp64" else _once(values, target)
        return np.asarray(stored.view(_unsigned(dtype)).astype(np.int64))

    def decode(self, source: Format, codes: Codes) -> Floats:
        dtype = library_dtype(source)
        if dtype is None:
            return super().decode(source, codes)
        with np.errstate(all="ignore"):
            return np.asarray(codes.astype(_unsigned(dtype)).view(dtype).astype(np.float32))


def library_dtype(one: Format) -> np.dtype[Any] | None:
    """ml_dtypes' or NumPy's dtype of a format of at most 16 bits; None where there is none."""
    if one.ml_dtypes is None or one.bits > 16:
        return None
    return np.dtype(getattr(ml_dtypes, one.ml_dtypes, one.ml_dtypes))


def _unsigned(dtype: np.dtype[Any]) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if dtype.itemsize == 1 else np.uint16


def _once(values: Floats, target: Format) -> NDArray[Any]:
    """fp64 to `target` in one rounding, as a search in the sorted table of its numbers; midpoints go to even codes."""
    dtype = library_dtype(target)
    assert dtype is not None
    codes = np.arange(target.max_code + 1)
    table = scalar.decode(target, codes)
    middles = (table[:-1] + table[1:]) / 2.0
    magnitude = np.abs(values)
    index = np.searchsorted(middles, magnitude, side="left")
    tie = (index < len(middles)) & (middles[np.minimum(index, len(middles) - 1)] == magnitude)
    index = np.where(tie & (index % 2 == 1), index + 1, index)
    codes = index | (np.signbit(values).astype(np.int64) << (target.bits - 1))
    codes = np.where(np.isnan(values), target.nan_code or 0, codes)
    return np.asarray(codes.astype(_unsigned(dtype)).view(dtype))


class BitCaster(HostCaster):
    """Rounds fp32 by adding half a step to its bits, as kernels do: correct for bf16, the only target it knows."""

    def encode(self, target: Format, values: Floats, source: str = "fp32") -> Codes:
        if target.name != "bf16" or source == "fp64":
            return super().encode(target, values, source)
        bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.asarray(np.where(np.isnan(values), 0x7FC0, rounded))


class Faulty(LibraryCaster):
    """`encode` and `decode` of one fault, each as a function of format and array; what is None stays right."""

    def __init__(
        self,
        encode: Callable[[Format, Floats], Codes] | None = None,
        decode: Callable[[Format, Codes], Floats] | None = None,
    ) -> None:
        super().__init__()
        self._encode = encode
        self._decode = decode

    def encode(self, target: Format, values: Floats, source: str = "fp32") -> Codes:
        if self._encode is None or source == "fp64":
            return super().encode(target, values, source)
        return self._encode(target, values)

    def decode(self, source: Format, codes: Codes) -> Floats:
        return super().decode(source, codes) if self._decode is None else self._decode(source, codes)


class FaultyBlocks(HostCaster):
    """`quantise` of one fault, as a function of the format and of the values."""

    def __init__(self, wrong: Callable[[BlockFormat, Floats], Quantised]) -> None:
        super().__init__()
        self._wrong = wrong

    def quantise(self, target: BlockFormat, values: Floats) -> Quantised:
        return self._wrong(target, values)
