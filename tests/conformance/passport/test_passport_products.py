"""Every probe of products reads the property that was planted."""

from __future__ import annotations

import pytest
from emulated import EmulatedSubject, bias_after_rounding, product

from trnbench.conformance.passport import accumulator, epilogue, invariance, order, products
from trnbench.conformance.passport.instrument import read
from trnbench.conformance.passport.subject import Subject, Unknown
from trnbench.conformance.passport.vectors import matmul
from trnbench.conformance.profile import arithmetic_of


def device(**character: object) -> Subject:
    return EmulatedSubject({matmul: product(**character)})


@pytest.mark.parametrize(
    ("bits", "direction", "words", "rounding"),
    [
        (11, "zero", "tf32 operands", "truncated"),
        (8, "nearest", "bf16 operands", "rounded to nearest"),
        (16, "nearest", "16-bit operands", "rounded to nearest"),
    ],
)
def test_operands_that_lose_bits(bits: int, direction: str, words: str, rounding: str) -> None:
    found = products.operand_bits(device(operand_bits=bits, operand_direction=direction), "fp32")
    assert found.verdict == words
    assert found.details["operand rounding"] == rounding
    assert found.details["left operand bits, 16 rows"] == bits


def test_operands_that_lose_bits_only_in_large_products() -> None:
    found = products.operand_bits(device(operand_bits=8, narrow_from_rows=256), "fp32")
    assert found.verdict == "fp32 operands at 1, 16 rows; bf16 operands at 256 rows"


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(("bits", "words"), [(14, "14-bit accumulator"), (24, "fp32 accumulator")])
def test_accumulator_width(precision: str, bits: int, words: str) -> None:
    assert min(accumulator.widths(device(accumulator_bits=bits), precision, 16).values()) == bits
    assert accumulator.width_name(bits, 60) == words


def test_narrow_accumulators_are_named() -> None:
    found = accumulator.width(device(accumulator_bits=8), "bf16")
    assert found.verdict == "bf16 accumulator"
    assert found.details["bits at 0/1/2, 1 rows"] == 8


def test_separate_chains_look_wide_only_where_they_keep_terms_apart() -> None:
    found = accumulator.widths(device(chains=2), "bf16", 16)
    assert min(found.values()) == 24
    assert found[(0, 2, 4)] == 24


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    ("direction", "words"),
    [
        ("nearest", "rounds to nearest, ties to even"),
        ("zero", "rounds toward zero"),
        ("down", "rounds down"),
    ],
)
def test_accumulator_rounding(precision: str, direction: str, words: str) -> None:
    found = accumulator.rounding(device(direction=direction), precision)
    assert found.verdict == words
    assert found.details["accumulator bits"] == 24


def test_products_rounded_before_they_are_added() -> None:
    exact, rounded = device(), device(product_bits=8)
    assert products.product_exactness(exact, "bf16").verdict == "exact products"
    assert products.product_exactness(rounded, "bf16").verdict == "products rounded to the input precision"


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_subnormals(precision: str) -> None:
    assert products.subnormals(device(), precision).verdict == "gradual underflow"
    lost = products.subnormals(device(flush=True), precision).verdict
    assert lost == "flushes subnormals: left operand, right operand, result, sum"


def test_overflow_and_nan() -> None:
    assert products.overflow(device(), "bf16").verdict == "overflows inside the accumulator"
    apart = products.overflow(device(chains=4), "fp16").verdict
    assert apart == "no overflow on the way: wider exponent or separate sums"
    assert products.non_finite(device(), "fp32").verdict == "as IEEE 754"
    spread = products.non_finite(device(spread_nan=True), "fp32").verdict
    assert spread == "not as IEEE 754: inf*1, 1*1 beside them"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_epilogue(precision: str) -> None:
    assert epilogue.epilogue(EmulatedSubject(), precision).details["product, then sum"] == epilogue.SEPARATE
    twice = EmulatedSubject({epilogue.linear: bias_after_rounding})
    assert epilogue.epilogue(twice, precision).verdict == epilogue.SEPARATE
    once = EmulatedSubject({epilogue.linear: lambda x, w, b: (x.double() @ w.double().t() + b).to(x.dtype)})
    assert epilogue.epilogue(once, precision).verdict == epilogue.FUSED


@pytest.mark.parametrize(
    ("character", "words"),
    [
        ({}, "sequential"),
        ({"chains": 2}, "2 chains of 32 terms, stride 2, joined in pairs"),
        ({"chains": 8}, "8 chains of 8 terms, stride 8, joined one after another"),
        ({"block": 16}, "4 chains of 16 terms, stride 1, joined one after another"),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_order(character: dict[str, int], words: str, precision: str) -> None:
    assert order.product_order(device(**character), precision, 16).verdict == words


def test_blocks() -> None:
    assert order.block_size(device(block=32), "bf16").verdict == "blocks of 32 terms"
    assert order.block_size(device(), "bf16").verdict == "one chain"


def test_units_that_vanish_are_no_tree() -> None:
    (result,) = read(order.INSTRUMENTS[1], device(flush=True), "fp16")
    assert isinstance(result.reading, Unknown)
    assert "cannot be counted" in result.reading.reason


def test_batch_classes() -> None:
    wide, narrow = product(chains=2), product(chains=1)
    switching = EmulatedSubject({matmul: lambda a, b: (wide if len(a) > 16 else narrow)(a[:, :64], b[:64])})
    found = invariance.batch(switching, "fp32")
    assert found.verdict == "2 results for one row"
    assert found.details["rows with equal bits"] == "1, 2, 4, 7, 16 | 17, 64, 256"


def test_repetitions_that_differ_are_counted() -> None:
    calls = iter(range(1000))
    unsteady = EmulatedSubject({matmul: lambda a, b: a @ b + next(calls) % 2})
    assert invariance.determinism(unsteady, "fp32").details["differing"] == 10


def test_the_profile_takes_what_is_legitimate_and_nothing_else() -> None:
    plain = arithmetic_of(device(), "fp32")
    assert not plain.accumulates_toward_zero
    assert not plain.flushes_subnormals
    assert plain.epilogue_roundings == 1
    tensor_core = arithmetic_of(device(direction="zero", flush=True), "bf16")
    assert tensor_core.accumulates_toward_zero
    assert tensor_core.flushes_subnormals
    narrow = arithmetic_of(device(accumulator_bits=14), "bf16")
    assert narrow.accumulator_bits == 24
    assert not narrow.accumulates_toward_zero
    assert arithmetic_of(EmulatedSubject({epilogue.linear: bias_after_rounding}), "fp16").epilogue_roundings == 2
