"""Who casts: a device, or anything on the host, behind one interface that the judges know alone.

Arrays in, arrays out. Codes are integers; a format of 4 bits is asked for one code an element.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import numpy as np

from trnbench.conformance.formats import blocks, scalar

if TYPE_CHECKING:
    from trnbench.conformance.formats.block_formats import BlockFormat
    from trnbench.conformance.formats.blocks import Quantised
    from trnbench.conformance.formats.definitions import Format

Codes = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]


class NotHere(Exception):
    """The caster has no such cast; the message says why, in words that follow "not checked:"."""


class Caster(abc.ABC):
    """Casts, reads and quantises. Every method raises `NotHere` for what it cannot do."""

    @abc.abstractmethod
    def encode(self, target: Format, values: Floats, source: str = "fp32") -> Codes:
        """Codes of `values` (one axis) in `target`, cast from `source`: "fp32", "bf16" or "fp16" (the values are
        float32 and exact in it), or "fp64" (float64)."""

    @abc.abstractmethod
    def decode(self, source: Format, codes: Codes) -> Floats:
        """float32 values of `codes` (one axis)."""

    @abc.abstractmethod
    def unpack(self, source: Format, packed: Codes) -> Floats:
        """float32 values of bytes that hold two 4-bit codes each, in the order of the elements."""

    @abc.abstractmethod
    def round_trip(self, target: Format, values: Floats) -> Floats:
        """float32 `values` cast to `target` and back within one function, where a compiler could drop the pair."""

    @abc.abstractmethod
    def quantise(self, target: BlockFormat, values: Floats) -> Quantised:
        """float32 (rows, n) quantised in blocks along the last axis."""

    @abc.abstractmethod
    def dequantise(self, source: BlockFormat, quantised: Quantised) -> Floats:
        """float32 (rows, n) of what `quantise` made."""

    def how(self, target: Format | BlockFormat) -> str:
        """Who computes `target`: the device's own dtype, or arithmetic in its place; for the verdict's text."""
        return "on the host"


class HostCaster(Caster):
    """The definitions themselves; a format's permitted overflow can be chosen, `overflow` by name of the format."""

    def __init__(self, overflow: dict[str, Any] | None = None) -> None:
        self._overflow = overflow or {}

    def encode(self, target: Format, values: Floats, source: str = "fp32") -> Codes:
        return scalar.cast(values, target, overflow=self._overflow.get(target.name))

    def decode(self, source: Format, codes: Codes) -> Floats:
        with np.errstate(over="ignore"):
            return scalar.decode(source, codes).astype(np.float32)

    def unpack(self, source: Format, packed: Codes) -> Floats:
        return self.decode(source, scalar.unpack_nibbles(packed))

    def round_trip(self, target: Format, values: Floats) -> Floats:
        return self.decode(target, self.encode(target, values))

    def quantise(self, target: BlockFormat, values: Floats) -> Quantised:
        return blocks.quantise(values, target)

    def dequantise(self, source: BlockFormat, quantised: Quantised) -> Floats:
        return blocks.dequantise(source, quantised)
