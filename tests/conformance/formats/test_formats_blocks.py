"""Block-scaled formats: scale rules against their formulas, edges, and the emulation that devices run."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from trnbench.conformance.formats import scalar
from trnbench.conformance.formats.block_emulation import block_dequantiser, block_quantiser
from trnbench.conformance.formats.block_formats import BLOCK_FORMATS, block_format
from trnbench.conformance.formats.blocks import (
    Quantised,
    block_inputs,
    blocked,
    dequantise,
    quantise,
    wrong_elements,
)
from trnbench.conformance.formats.boundaries import boundary_inputs
from trnbench.conformance.formats.casts import select_model
from trnbench.conformance.formats.definitions import FORMATS
from trnbench.conformance.formats.emulation import decode_table, encoder, rounder
from trnbench.conformance.formats.powers import BY_BITS, BY_SEARCH, Powers, is_negative
from trnbench.status import UsageError

MX = [name for name, one in BLOCK_FORMATS.items() if one.scale == "e8m0fnu"]
POWERS = [BY_BITS, BY_SEARCH]


def exact_power(name: str, amax: float) -> int:
    """The rule's exponent by comparison of exact fractions, without any logarithm."""
    one = BLOCK_FORMATS[name]
    element = one.element_format
    value = Fraction(amax)
    if one.rule == "rceil":
        power = -200
        while value > Fraction(element.max) * Fraction(2) ** power:
            power += 1
    else:
        room = element.max_exponent - (1 if one.rule == "trn3" else 0)
        power = -300
        while Fraction(2) ** (power + room + 1) <= value:
            power += 1
    return max(-127, min(127, power))


@pytest.mark.parametrize("name", MX)
def test_scales_follow_their_rule_exactly(name: str) -> None:
    one = BLOCK_FORMATS[name]
    for kind in ("ordinary", "tiny", "huge", "subnormal"):
        values = block_inputs(one, seed=1)[kind]
        amax = np.abs(blocked(values, one.block)).max(axis=-1)
        scales = quantise(values, one).scales
        for found, largest in zip(scales.reshape(-1), amax.reshape(-1), strict=True):
            assert int(found) - 127 == exact_power(name, float(largest))


@pytest.mark.parametrize("name", MX)
def test_elements_are_the_nearest_of_their_scale(name: str) -> None:
    one = BLOCK_FORMATS[name]
    values = block_inputs(one)["ordinary"]
    found = quantise(values, one)
    scale = np.exp2(found.scales - 127.0).repeat(one.block, axis=-1)
    numbers = scalar.decode(one.element_format, np.arange(one.element_format.max_code + 1))
    wanted = np.minimum(np.abs(values) / scale, one.element_format.max)
    error = np.abs(np.abs(scalar.decode(one.element_format, found.codes)) - wanted)
    best = np.abs(numbers - wanted[..., None]).min(axis=-1)
    assert np.array_equal(error, best)


def test_trn3_and_rceil_never_saturate_and_ocp_does() -> None:
    values = np.full((1, 64), 1.9, dtype=np.float32)
    assert dequantise(BLOCK_FORMATS["mxfp8 ocp"], quantise(values, BLOCK_FORMATS["mxfp8 ocp"])).max() == 1.75
    for name in ("mxfp8 trn3", "mxfp8 rceil"):
        assert dequantise(BLOCK_FORMATS[name], quantise(values, BLOCK_FORMATS[name])).max() == 1.875


@pytest.mark.parametrize("name", MX)
def test_zero_blocks_have_the_least_scale_and_keep_their_signs(name: str) -> None:
    one = BLOCK_FORMATS[name]
    found = quantise(np.array([[0.0] * 32 + [-0.0] * 32], dtype=np.float32), one)
    assert found.scales.tolist() == [[0, 0]]
    values = dequantise(one, found)
    assert np.all(values == 0.0)
    assert np.array_equal(np.signbit(values), [[False] * 32 + [True] * 32])


@pytest.mark.parametrize("kind", ["NaN", "infinity"])
@pytest.mark.parametrize("name", sorted(BLOCK_FORMATS))
def test_blocks_that_are_not_finite_are_nan_and_others_are_not(name: str, kind: str) -> None:
    one = BLOCK_FORMATS[name]
    values = block_inputs(one)[kind]
    back = dequantise(one, quantise(values, one))
    assert np.isnan(back[:, : one.block]).all()
    if one.rule != "two-level":
        assert np.isfinite(back[:, one.block :]).all()


def test_nvfp4_uses_both_scales_fully() -> None:
    one = BLOCK_FORMATS["nvfp4"]
    values = np.zeros((2, 32), dtype=np.float32)
    values[0, 0], values[0, 16], values[1, 0] = 2688.0, 6.0, 0.001
    found = quantise(values, one)
    assert found.tensor_scale == 1.0
    assert scalar.decode(one.scale_format, found.scales).tolist() == [[448.0, 1.0], [0.0, 0.0]]
    assert dequantise(one, found)[0, [0, 16]].tolist() == [2688.0, 6.0]
    assert quantise(np.zeros((1, 32), dtype=np.float32), one).tensor_scale == 1.0


@pytest.mark.parametrize("powers", POWERS, ids=lambda one: one.name)
@pytest.mark.parametrize("name", sorted(BLOCK_FORMATS))
def test_emulation_equals_the_definition(name: str, powers: Powers) -> None:
    one = BLOCK_FORMATS[name]
    table = torch.from_numpy(decode_table(one.element_format))
    for kind, values in block_inputs(one, seed=2).items():
        due = quantise(values, one)
        codes, scales, tensor_scale = block_quantiser(one, powers)(torch.from_numpy(values))
        found = Quantised(codes=codes.numpy(), scales=scales.numpy(), tensor_scale=float(tensor_scale))
        assert not wrong_elements(one, found, due).any(), kind
        tensors = (torch.from_numpy(due.codes), torch.from_numpy(due.scales.astype(np.int32)))
        back = block_dequantiser(one, powers)(*tensors, torch.tensor(due.tensor_scale), table)
        assert scalar.same_values(back.numpy(), dequantise(one, due)).all(), kind


@pytest.mark.parametrize("powers", POWERS, ids=lambda one: one.name)
@pytest.mark.parametrize("name", ["fp8 e4m3", "fp8 e4m3fn", "fp8 e5m2", "fp8 e4m3fnuz", "fp4 e2m1fn"])
def test_emulated_casts_equal_the_definition(name: str, powers: Powers) -> None:
    one = FORMATS[name]
    inputs = boundary_inputs(one, seed=3)
    codes = encoder(one, powers)(torch.from_numpy(inputs)).numpy()
    assert scalar.same_codes(one, codes, scalar.cast(inputs, one)).all()


@pytest.mark.parametrize("powers", POWERS, ids=lambda one: one.name)
def test_emulated_tf32_rounds_to_eleven_bits(powers: Powers) -> None:
    one = FORMATS["tf32"]
    inputs = boundary_inputs(one)
    normal = inputs[~(np.abs(inputs) < np.finfo(np.float32).tiny)]
    bits = rounder(11, powers)(torch.from_numpy(normal)).numpy().view(np.uint32)
    assert not np.any(bits & 0x1FFF)
    assert select_model(one, normal, bits >> 13).mismatches == 0


@pytest.mark.parametrize("powers", POWERS, ids=lambda one: one.name)
def test_powers_and_exponents_are_exact(powers: Powers) -> None:
    exponents = torch.arange(-126, 128, dtype=torch.int32)
    exact = torch.exp2(exponents.double()).float()
    assert torch.equal(powers.power(exponents), exact)
    for below_two in (exact, exact * 1.75):
        exponent, significand = powers.split(below_two[:-1])
        assert torch.equal(exponent, exponents[:-1])
        assert torch.equal(significand, below_two[:-1] / exact[:-1])
    assert powers.split(torch.tensor([0.0, 1e-40]))[0].tolist() == [-127, -127]


def test_sign_without_signbit() -> None:
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), -1e-40])
    assert is_negative(values).tolist() == [False, True, False, True, False, True, True]


def test_form_is_checked() -> None:
    with pytest.raises(ValueError, match="33"):
        quantise(np.zeros((1, 33), dtype=np.float32), BLOCK_FORMATS["mxfp8 ocp"])
    with pytest.raises(UsageError, match="mxfp8 ocp"):
        block_format("mxfp8 ocpp")
