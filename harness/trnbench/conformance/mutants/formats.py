"""Casters that are wrong on purpose, and correct ones of other make, judged exactly as a device is.

Written without the models of `formats.casts`: rounding by NumPy's and ml_dtypes' own casts, or by bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from trnbench.conformance.formats.block_formats import BLOCK_FORMATS, BlockFormat
from trnbench.conformance.formats.blocks import Quantised, dequantise, quantise
from trnbench.conformance.formats.caster import Caster, Codes, Floats, HostCaster
from trnbench.conformance.formats.definitions import FORMATS, Format
from trnbench.conformance.formats.judge import judge_scalar
from trnbench.conformance.formats.judge_blocks import judge_blocks
from trnbench.conformance.mutants.format_casters import BitCaster, Faulty, FaultyBlocks, LibraryCaster
from trnbench.records.schema import Check


class FormatMutant(msgspec.Struct, frozen=True, kw_only=True):
    """`run` judges the caster; a wrong one must fail and be named one of `looks_like`, a correct one has no name."""

    name: str
    looks_like: tuple[str, ...] = ()
    run: Callable[[], list[Check]]

    @property
    def correct(self) -> bool:
        """Whether no check may object."""
        return not self.looks_like


def _read_as(other: str) -> Callable[[Format, Codes], Floats]:
    """The table of another format."""
    return lambda source, codes: LibraryCaster().decode(FORMATS[other], codes)


def _written_as(other: str) -> Callable[[Format, Floats], Codes]:
    return lambda target, values: LibraryCaster().encode(FORMATS[other], values)


def _library(target: Format, values: Floats) -> Codes:
    return LibraryCaster().encode(target, values)


def _saturated(target: Format, values: Floats, limit: float | None = None) -> Codes:
    largest = target.max if limit is None else limit
    return _library(target, np.clip(values, -largest, largest))


def _truncated(target: Format, values: Floats) -> Codes:
    """fp32 bits cut off: bf16 without rounding. A payload in the lower half is lost with them, so NaN is kept apart."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.int64) >> 16
    return np.asarray(np.where(np.isnan(values), 0x7FC0, bits))


def _payload_cut(target: Format, values: Floats) -> Codes:
    """bf16 whose NaN keep the upper half of their bits: a payload in the lower half alone leaves infinity."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
    return np.asarray(np.where(np.isnan(values), bits >> 16, _library(target, values)))


def _ties_away(target: Format, values: Floats) -> Codes:
    """Half a step added to the bits of fp32 before they are cut off, in bf16."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
    return np.asarray(np.where(np.isnan(values), 0x7FC0, (bits + 0x8000) >> 16))


def _twice(target: Format, values: Floats) -> Codes:
    with np.errstate(all="ignore"):
        halfway = values.astype(np.float16).astype(np.float32)
    return _library(target, halfway)


def _flushed(target: Format, values: Floats) -> Codes:
    codes = _library(target, values)
    exponent = codes >> target.fraction_bits & ((1 << target.exponent_bits) - 1)
    return np.asarray(np.where(exponent == 0, codes & (1 << (target.bits - 1)), codes))


def _unsigned_zero(target: Format, values: Floats) -> Codes:
    codes = _library(target, values)
    return np.asarray(np.where(codes == 1 << (target.bits - 1), 0, codes))


def _nan_is_largest(target: Format, values: Floats) -> Codes:
    return np.asarray(np.where(np.isnan(values), target.max_code, _library(target, values)))


def _random(target: Format, values: Floats) -> Codes:
    """16 random bits added to fp32 before the lower half is cut off."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.int64)
    noise = np.random.default_rng(7).integers(0, 1 << 16, values.shape)
    special = ~np.isfinite(values) | (np.abs(values) >= target.max)
    return np.asarray(np.where(special, _library(target, values), (bits + noise) >> 16))


class _SwappedNibbles(HostCaster):
    def unpack(self, source: Format, packed: Codes) -> Floats:
        return self.decode(source, np.stack([packed >> 4 & 15, packed & 15], axis=-1).reshape(-1))


class _Elided(LibraryCaster):
    def round_trip(self, target: Format, values: Floats) -> Floats:
        return values


def _shifted(target: BlockFormat, values: Floats, binades: int) -> Quantised:
    """Scales moved by some binades, and elements cast to the moved scale by ml_dtypes."""
    right = quantise(values, target)
    moved = np.clip(right.scales + binades, 0, 254)
    with np.errstate(all="ignore"):
        scale = np.exp2(127.0 - moved).repeat(target.block, axis=-1)
        scaled = np.clip(values.astype(np.float64) * scale, -target.element_format.max, target.element_format.max)
    codes = _library(target.element_format, np.where(np.isfinite(scaled), scaled, 0.0).astype(np.float32))
    not_finite = right.scales == 255
    return Quantised(codes=codes, scales=np.where(not_finite, 255, moved))


def _zero_block_is_one(target: BlockFormat, values: Floats) -> Quantised:
    """Zero blocks with scale 1 instead of 2^-127."""
    right = quantise(values, target)
    zero = np.abs(values).reshape(*right.scales.shape, target.block).max(axis=-1) == 0.0
    return Quantised(codes=right.codes, scales=np.where(zero, 127, right.scales))


def _nan_ignored(target: BlockFormat, values: Floats) -> Quantised:
    """The largest magnitude by a comparison that drops NaN, and NaN elements as zero."""
    return Quantised(**_plain(quantise(np.where(np.isnan(values), np.float32(0.0), values), target)))


def _infinity_saturated(target: BlockFormat, values: Floats) -> Quantised:
    largest = np.finfo(np.float32).max
    return Quantised(**_plain(quantise(np.where(np.isinf(values), np.copysign(largest, values), values), target)))


def _plain(quantised: Quantised) -> dict[str, Any]:
    return {"codes": quantised.codes, "scales": quantised.scales, "tensor_scale": quantised.tensor_scale}


def _without_tensor_scale(target: BlockFormat, values: Floats) -> Quantised:
    """NVFP4 with e4m3 block scales of amax / 6 alone."""
    blocks = values.reshape(len(values), -1, target.block)
    amax = np.abs(np.where(np.isfinite(blocks), blocks, 0.0)).max(axis=-1)
    scales = _saturated(target.scale_format, (amax / 6.0).astype(np.float32))
    value = LibraryCaster().decode(target.scale_format, scales)[..., None]
    with np.errstate(all="ignore"):
        scaled = np.where(value > 0.0, blocks / value, 0.0)
    codes = _library(target.element_format, np.nan_to_num(np.clip(scaled, -6.0, 6.0)).astype(np.float32))
    return Quantised(codes=codes.reshape(values.shape), scales=scales)


def _smaller_blocks(target: BlockFormat, values: Floats) -> Quantised:
    return quantise(values, msgspec.structs.replace(target, block=16))


def _scalar(caster: Callable[[], Caster], *names: str) -> Callable[[], list[Check]]:
    return lambda: judge_scalar(caster(), names or tuple(FORMATS))


def _blocks(wrong: Callable[[BlockFormat, Floats], Quantised], *names: str) -> Callable[[], list[Check]]:
    return lambda: judge_blocks(FaultyBlocks(wrong), names)


def _everything(caster: Callable[[], Caster]) -> Callable[[], list[Check]]:
    return lambda: judge_scalar(caster()) + judge_blocks(caster())


def _wrong(name: str, looks_like: str | tuple[str, ...], run: Callable[[], list[Check]]) -> FormatMutant:
    names = (looks_like,) if isinstance(looks_like, str) else looks_like
    return FormatMutant(name=name, looks_like=names, run=run)


class _LibraryBlocks(LibraryCaster):
    """Elements of MX by ml_dtypes, with exponential scales."""

    def quantise(self, target: BlockFormat, values: Floats) -> Quantised:
        return quantise(values, target) if target.rule == "two-level" else _shifted(target, values, 0)

    def dequantise(self, source: BlockFormat, quantised: Quantised) -> Floats:
        return dequantise(source, quantised)


def _encoding(fault: Callable[[Format, Floats], Codes], *names: str) -> Callable[[], list[Check]]:
    return _scalar(lambda: Faulty(encode=fault), *names)


def _decoding(other: str, name: str) -> Callable[[], list[Check]]:
    return _scalar(lambda: Faulty(decode=_read_as(other)), name)


def _saturated_at_256(target: Format, values: Floats) -> Codes:
    return _saturated(target, values, 256.0)


def _with_rule(name: str) -> Callable[[BlockFormat, Floats], Quantised]:
    return lambda target, values: quantise(values, BLOCK_FORMATS[name])


def _scale_too_small(target: BlockFormat, values: Floats) -> Quantised:
    return _shifted(target, values, -1)


_TRUNCATING = "truncating cast (rounds toward zero)"

WRONG: list[FormatMutant] = [
    _wrong("e4m3 decoded by e4m3fn's table", "fp8 e4m3 read as e4m3fn", _decoding("fp8 e4m3fn", "fp8 e4m3")),
    _wrong("e4m3fn decoded by e4m3's table", "fp8 e4m3fn read as e4m3", _decoding("fp8 e4m3", "fp8 e4m3fn")),
    _wrong(
        "e4m3fnuz decoded by e4m3fn's table", "fp8 e4m3fnuz read as e4m3fn", _decoding("fp8 e4m3fn", "fp8 e4m3fnuz")
    ),
    _wrong(
        "e4m3fn's bits stored as e4m3fnuz",
        "fp8 e4m3fn read as e4m3fnuz",
        _encoding(_written_as("fp8 e4m3fn"), "fp8 e4m3fnuz"),
    ),
    _wrong("e5m2 saturates", "saturated where infinity is right", _encoding(_saturated, "fp8 e5m2")),
    _wrong("e4m3 saturates at 240", "saturated where infinity is right", _encoding(_saturated, "fp8 e4m3")),
    _wrong("bf16 cut off", (_TRUNCATING, "saturated where infinity is right"), _encoding(_truncated, "bf16")),
    _wrong("bf16 ties away", "ties rounded away from zero", _encoding(_ties_away, "bf16")),
    _wrong("e4m3fn through fp16", "double rounding via fp16", _encoding(_twice, "fp8 e4m3fn")),
    _wrong("e5m2 through fp16", "double rounding via fp16", _encoding(_twice, "fp8 e5m2")),
    _wrong("e4m3fn without subnormals", "subnormals flushed", _encoding(_flushed, "fp8 e4m3fn")),
    _wrong("fp16 without subnormals", "subnormals flushed", _encoding(_flushed, "fp16")),
    _wrong("bf16 NaN payload cut", "NaN becomes infinity", _encoding(_payload_cut, "bf16")),
    _wrong("e4m3fn NaN is 448", "NaN becomes the largest number", _encoding(_nan_is_largest, "fp8 e4m3fn")),
    _wrong("e4m3fn saturates at 256", "saturates at 256, not 448", _encoding(_saturated_at_256, "fp8 e4m3fn")),
    _wrong("e4m3fn without minus zero", "negative zero lost", _encoding(_unsigned_zero, "fp8 e4m3fn")),
    _wrong("bf16 rounded at random", ("stochastic rounding", "another fault of the cast"), _encoding(_random, "bf16")),
    _wrong("e2m1 high half first", "fp4 e2m1fn nibbles swapped", _scalar(_SwappedNibbles, "fp4 e2m1fn")),
    _wrong(
        "bf16 pair of casts dropped",
        "excess precision: the fp32 -> bf16 -> fp32 round trip was elided",
        _scalar(_Elided, "bf16"),
    ),
    _wrong(
        "ocp's scale for trn3", "MX scale rule ocp under the name trn3", _blocks(_with_rule("mxfp8 ocp"), "mxfp8 trn3")
    ),
    _wrong(
        "trn3's scale for ocp", "MX scale rule trn3 under the name ocp", _blocks(_with_rule("mxfp8 trn3"), "mxfp8 ocp")
    ),
    _wrong(
        "rceil for ocp in 4 bits",
        "MX scale rule rceil under the name ocp",
        _blocks(_with_rule("mxfp4 rceil"), "mxfp4 ocp"),
    ),
    _wrong("scale a binade too small", "MX scale too small by 1 binade", _blocks(_scale_too_small, "mxfp8 ocp")),
    _wrong("zero block with scale 1", "zero block scale wrong", _blocks(_zero_block_is_one, "mxfp8 ocp")),
    _wrong("NaN ignored in a block", "NaN lost: its block looks finite", _blocks(_nan_ignored, "mxfp8 ocp")),
    _wrong("infinity saturated in a block", "infinity hidden by saturation", _blocks(_infinity_saturated, "mxfp4 ocp")),
    _wrong(
        "nvfp4 with one level", ("tensor scale missing", "subnormals flushed"), _blocks(_without_tensor_scale, "nvfp4")
    ),
    _wrong("blocks of 16", "blocks of 16 instead of 32", _blocks(_smaller_blocks, "mxfp8 ocp")),
]
"""Each must be caught and named."""

RIGHT: list[FormatMutant] = [
    FormatMutant(name="definitions, overflow to NaN", run=_everything(HostCaster)),
    FormatMutant(
        name="e4m3fn saturates, infinities too",
        run=_scalar(lambda: HostCaster({"fp8 e4m3fn": "saturate", "fp8 e4m3fnuz": "saturate"})),
    ),
    FormatMutant(
        name="e4m3fn saturates finite numbers only",
        run=_scalar(lambda: HostCaster({"fp8 e4m3fn": "saturate finite"})),
    ),
    FormatMutant(name="ml_dtypes", run=_everything(_LibraryBlocks)),
    FormatMutant(name="bf16 rounded by bits", run=_scalar(BitCaster, "bf16")),
]
"""None may raise an alarm."""

FORMAT_MUTANTS: list[FormatMutant] = WRONG + RIGHT
"""All of them, the wrong ones first."""
