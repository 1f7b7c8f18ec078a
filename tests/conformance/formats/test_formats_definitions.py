"""The definitions against ml_dtypes and against IEEE arithmetic, code by code and boundary by boundary."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.conformance.formats import scalar
from trnbench.conformance.formats.boundaries import NAN_PATTERNS, boundary_inputs
from trnbench.conformance.formats.definitions import FORMATS, scalar_format
from trnbench.status import UsageError

LIBRARY = sorted(name for name, one in FORMATS.items() if one.ml_dtypes is not None and one.bits <= 16)


def library_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, FORMATS[name].ml_dtypes, FORMATS[name].ml_dtypes))


def library_codes(name: str, values: np.ndarray) -> np.ndarray:
    dtype = library_dtype(name)
    with np.errstate(all="ignore"):
        return values.astype(dtype).view(np.uint8 if dtype.itemsize == 1 else np.uint16)


@pytest.mark.parametrize(
    ("name", "largest", "least_normal", "least_subnormal"),
    [
        ("fp32", 3.4028234663852886e38, 2.0**-126, 2.0**-149),
        ("bf16", 3.3895313892515355e38, 2.0**-126, 2.0**-133),
        ("fp16", 65504.0, 2.0**-14, 2.0**-24),
        ("fp8 e4m3fn", 448.0, 2.0**-6, 2.0**-9),
        ("fp8 e4m3", 240.0, 2.0**-6, 2.0**-9),
        ("fp8 e5m2", 57344.0, 2.0**-14, 2.0**-16),
        ("fp8 e4m3fnuz", 240.0, 2.0**-7, 2.0**-10),
        ("fp8 e5m2fnuz", 57344.0, 2.0**-15, 2.0**-17),
        ("fp4 e2m1fn", 6.0, 1.0, 0.5),
    ],
)
def test_ranges_are_those_of_the_specifications(
    name: str, largest: float, least_normal: float, least_subnormal: float
) -> None:
    one = FORMATS[name]
    assert one.max == largest
    assert scalar.decode(one, one.first_code) == least_normal
    assert scalar.decode(one, 1) == least_subnormal


@pytest.mark.parametrize(
    ("name", "nan_codes"),
    [("fp8 e4m3fn", 2), ("fp8 e4m3", 14), ("fp8 e5m2", 6), ("fp8 e4m3fnuz", 1), ("fp4 e2m1fn", 0), ("e8m0fnu", 1)],
)
def test_number_of_nan_codes(name: str, nan_codes: int) -> None:
    one = FORMATS[name]
    assert int(scalar.is_nan_code(one, scalar.all_codes(one)).sum()) == nan_codes


@pytest.mark.parametrize("name", LIBRARY)
def test_every_code_decodes_as_in_ml_dtypes(name: str) -> None:
    one, dtype = FORMATS[name], library_dtype(name)
    codes = scalar.all_codes(one)
    with np.errstate(all="ignore"):
        theirs = codes.astype(np.uint8 if dtype.itemsize == 1 else np.uint16).view(dtype).astype(np.float64)
    assert scalar.same_values(scalar.decode(one, codes), theirs).all()


@pytest.mark.parametrize("name", LIBRARY)
def test_every_code_survives_the_way_there_and_back(name: str) -> None:
    one = FORMATS[name]
    codes = scalar.all_codes(one)
    assert scalar.same_codes(one, scalar.cast(scalar.decode(one, codes), one), codes).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LIBRARY)
def test_every_boundary_casts_as_in_ml_dtypes(name: str, seed: int) -> None:
    one = FORMATS[name]
    inputs = boundary_inputs(one, seed=seed)
    assert scalar.same_codes(one, scalar.cast(inputs, one), library_codes(name, inputs)).all()


def test_fp64_to_fp32_casts_as_numpy_does() -> None:
    one = FORMATS["fp32"]
    inputs = boundary_inputs(one, "fp64")
    with np.errstate(all="ignore"):
        theirs = inputs.astype(np.float32).view(np.uint32)
    assert scalar.same_codes(one, scalar.cast(inputs, one), theirs).all()


@pytest.mark.parametrize("name", [name for name in LIBRARY if FORMATS[name].signed])
def test_boundary_inputs_hold_every_number_every_middle_and_both_neighbours(name: str) -> None:
    one = FORMATS[name]
    given_inputs = boundary_inputs(one)
    numbers = scalar.decode(one, np.arange(one.max_code + 1))
    middles = ((numbers[:-1] + numbers[1:]) / 2.0).astype(np.float32)
    wanted = [numbers.astype(np.float32), middles, np.nextafter(middles, np.float32(0))]
    wanted += [np.nextafter(middles, np.float32(np.inf)), np.array([np.inf, np.finfo(np.float32).tiny / 2], np.float32)]
    everything = np.concatenate(wanted)
    assert np.isin(everything, given_inputs).all()
    assert np.isin(-everything, given_inputs).all()
    assert np.isnan(given_inputs).sum() >= (len(NAN_PATTERNS) if one.has_nan else 0)


@settings(max_examples=300, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False), name=st.sampled_from(sorted(FORMATS)))
def test_nearest_is_nearest_and_truncation_never_grows(value: float, name: str) -> None:
    one = FORMATS[name]
    magnitude = abs(value) if one.signed else max(abs(value), 2.0**-127)
    clamped = min(magnitude, one.max)
    nearest = float(scalar.decode(one, scalar.cast(clamped, one)))
    down = float(scalar.decode(one, scalar.cast(clamped, one, rounding="toward zero")))
    up = float(scalar.decode(one, scalar.cast(clamped, one, rounding="up in magnitude")))
    assert down <= clamped <= up
    assert nearest in (down, up)
    assert abs(nearest - clamped) == min(clamped - down, up - clamped)


@pytest.mark.parametrize(
    ("name", "overflow", "found"),
    [
        ("fp8 e4m3fn", "nan", [448.0, 448.0, np.nan, np.nan, np.nan, -448.0]),
        ("fp8 e4m3fn", "saturate", [448.0, 448.0, 448.0, 448.0, 448.0, -448.0]),
        ("fp8 e4m3fn", "saturate finite", [448.0, 448.0, 448.0, 448.0, np.nan, -448.0]),
        ("fp8 e4m3", "infinity", [np.inf, np.inf, np.inf, np.inf, np.inf, -np.inf]),
    ],
)
def test_overflow_behaviours(name: str, overflow: str, found: list[float]) -> None:
    values = np.array([448.0, 464.0, 465.0, 1000.0, np.inf, -460.0])
    one = FORMATS[name]
    assert scalar.same_values(scalar.decode(one, scalar.cast(values, one, overflow=overflow)), found).all()


def test_e5m2_overflows_halfway_to_the_next_step() -> None:
    one = FORMATS["fp8 e5m2"]
    values = np.array([np.nextafter(61440.0, 0.0), 61440.0])
    assert scalar.decode(one, scalar.cast(values, one)).tolist() == [57344.0, np.inf]


def test_packed_halves() -> None:
    codes = np.arange(16).reshape(2, 8)
    packed = scalar.pack_nibbles(codes)
    assert packed[0].tolist() == [0x10, 0x32, 0x54, 0x76]
    assert np.array_equal(scalar.unpack_nibbles(packed), codes)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="e4m3fn"):
        scalar_format("fp8 e4m3f")
    with pytest.raises(ValueError, match="too many"):
        scalar.all_codes(FORMATS["fp32"])
