"""What a matrix product does to its operands and its range: bits taken in, exactness, subnormals, overflow, NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from trnbench.conformance.arithmetic import SIGNIFICANT_BITS, STORAGE
from trnbench.conformance.passport.instrument import Instrument, Reading, listed, number, single
from trnbench.conformance.passport.vectors import ROW_COUNTS, TERMS, inner_products, placed

if TYPE_CHECKING:
    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

SIXTEEN_BIT = ("bf16", "fp16")
EVERY = ("fp32", *SIXTEEN_BIT)
USUAL_ROWS = 16

OPERAND_NAMES = {24: "fp32 operands", 11: "tf32 operands", 8: "bf16 operands"}


def operand_bits(subject: Subject, precision: str) -> Reading:
    """How many significant bits of a float32 operand reach the product, for several numbers of rows.

    1 + 2^-p times 1 for p = 1 to 23, in either operand: 24 bits IEEE, 11 TF32, 8 bfloat16. Libraries switch on the
    shape: bf16 casts that set in at 256 rows only, vector products in fp32 beside matrix products in bf16 (JAX issue
    16349).
    """
    exponents = np.arange(1, 24)
    values = 1.0 + np.exp2(-exponents)
    count = len(values)
    terms = TERMS if precision == "fp32" else TERMS + 8  # lazy compilers keep graphs by shape, not by switch
    positions = list(range(count))
    identity, diagonal = np.zeros((terms, count)), np.zeros((terms, count))
    identity[positions, positions] = 1.0
    diagonal[positions, positions] = values
    details: dict[str, Scalar] = {}
    bits: dict[int, int] = {}
    for rows in ROW_COUNTS:
        left = inner_products(subject, placed(terms, positions, values.tolist()), identity, "fp32", rows)
        right = inner_products(subject, placed(terms, positions, [1.0] * count), diagonal, "fp32", rows)
        kept = {"left": _kept(left, values), "right": _kept(right, values)}
        details |= {f"{side} operand bits, {rows} rows": found for side, found in kept.items()}
        bits[rows] = min(kept.values())
    narrowest = min(bits.values())
    if narrowest < 24:
        details["operand rounding"] = _operand_rounding(subject, narrowest, min(bits, key=lambda rows: bits[rows]))
    return Reading(verdict=by_rows({rows: operand_name(found) for rows, found in bits.items()}), details=details)


def operand_name(bits: int) -> str:
    """The format that operands of so many bits are in."""
    return OPERAND_NAMES.get(bits, f"{bits}-bit operands")


def by_rows(verdicts: dict[int, str]) -> str:
    """One verdict where all agree, else each with its numbers of rows."""
    different = list(dict.fromkeys(verdicts.values()))
    if len(different) == 1:
        return different[0]
    return "; ".join(
        f"{verdict} at {listed([rows for rows, found in verdicts.items() if found == verdict])} rows"
        for verdict in different
    )


def _kept(
    products: np.ndarray[tuple[int, int], np.dtype[np.float64]], values: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> int:
    """Significant bits up to which every row returns its value unchanged."""
    survive = (products == values).all(axis=0)
    return 1 + (len(survive) if survive.all() else int(np.argmin(survive)))


def _operand_rounding(subject: Subject, bits: int, rows: int) -> str:
    """1 plus three quarters of the last kept bit: 1 where operands are cut off, the next number where rounded."""
    step = 2.0 ** (1 - bits)
    value = 1.0 + 0.75 * step
    columns = placed(TERMS, [0], [value])[:, None]
    got = inner_products(subject, placed(TERMS, [0], [1.0]), columns, "fp32", rows)[0, 0]
    return {1.0: "truncated", 1.0 + step: "rounded to nearest"}.get(got, f"1 + 0.75 ulp became {got!r}")


def product_exactness(subject: Subject, precision: str) -> Reading:
    """Whether a product enters the accumulator unrounded: x * x - round(x * x) for x = 1 + ulp, in both orders.

    Products of 16-bit operands are exact in float32. In float32 a fused multiply-add keeps the residue only where it
    adds to a sum that already holds the other term.
    """
    bits = SIGNIFICANT_BITS[precision]
    step = 2.0 ** (1 - bits)
    value, rounded = 1.0 + step, 1.0 + 2.0 * step
    scale = 2.0**10 if precision == "fp16" else 1.0  # keeps the residue a normal number of the output
    first, last = [1.0 * scale, value * scale], [value * scale, 1.0 * scale]
    row = placed(TERMS, [0, 1, 2, 3], [*first, *last])
    columns = np.stack([placed(TERMS, [0, 1], [-rounded, value]), placed(TERMS, [2, 3], [value, -rounded])], axis=1)
    after, before = inner_products(subject, row, columns, precision, USUAL_ROWS)[0] / scale
    exact = step * step
    right = [after == exact, before == exact]
    verdict = "products rounded to the input precision"
    if all(right):
        verdict = "exact products"
    elif any(right):
        verdict = "fused multiply-add: exact only when added to a running sum"
    details = {"residue, product last": number(after), "residue, product first": number(before), "exact": exact}
    return Reading(verdict=verdict, details=details)


def subnormals(subject: Subject, precision: str) -> Reading:
    """Whether a product keeps subnormal operands, subnormal results, and sums of subnormals."""
    kept = kept_subnormals(subject, precision)
    lost = [name for name, found in kept.items() if not found]
    verdict = f"flushes subnormals: {listed(lost)}" if lost else "gradual underflow"
    return Reading(verdict=verdict, details={f"subnormal {name} kept": found for name, found in kept.items()})


def kept_subnormals(subject: Subject, precision: str) -> dict[str, bool]:
    """For each place where a subnormal may stand in a product, whether it survives."""
    facts = torch.finfo(STORAGE[precision])
    exponent = int(math.log2(facts.tiny))
    tiny, up = 2.0 ** (exponent - 2), 2.0 ** min(40, -exponent)
    half = exponent // 2
    row = placed(TERMS, [0, 1, 2, 3, 4], [tiny, up, 2.0**half, 1.0, 1.0])
    columns = np.stack(
        [
            placed(TERMS, [0], [up]),
            placed(TERMS, [1], [tiny]),
            placed(TERMS, [2], [2.0 ** (exponent - half - 2)]),
            placed(TERMS, [3, 4], [tiny, tiny]),
        ],
        axis=1,
    )
    got = inner_products(subject, row, columns, precision, USUAL_ROWS)
    expected = {
        "left operand": tiny * up,
        "right operand": tiny * up,
        "result": 2.0 ** (exponent - 2),
        "sum": 2.0 * tiny,
    }
    return {name: bool((got[:, index] == value).all()) for index, (name, value) in enumerate(expected.items())}


def overflow(subject: Subject, precision: str) -> Reading:
    """max + max - max - max is 0 where the accumulator has more exponent than the format, or several sums run apart."""
    largest = torch.finfo(STORAGE[precision]).max
    patterns = {
        "max+max-max-max": [largest, largest, -largest, -largest],
        "max-max+max-max": [largest, -largest, largest, -largest],
        "max+max": [largest, largest],
    }
    columns = np.stack([placed(TERMS, range(len(values)), values) for values in patterns.values()], axis=1)
    got = inner_products(subject, np.ones(TERMS), columns, precision, USUAL_ROWS)[0]
    wide = got[0] == 0.0
    verdict = "no overflow on the way: wider exponent or separate sums" if wide else "overflows inside the accumulator"
    return Reading(verdict=verdict, details={name: number(value) for name, value in zip(patterns, got, strict=True)})


def non_finite(subject: Subject, precision: str) -> Reading:
    """0 * inf, inf - inf and NaN * 0 are NaN and inf * 1 is inf (IEEE 754-2019, 6.1, 7.2); other columns stay clean."""
    row = placed(TERMS, [0], [0.0], elsewhere=1.0)
    columns = np.stack(
        [
            placed(TERMS, [0], [math.inf]),
            placed(TERMS, [1, 2], [math.inf, -math.inf]),
            placed(TERMS, [0], [math.nan]),
            placed(TERMS, [1], [math.inf]),
            placed(TERMS, [1], [1.0]),
        ],
        axis=1,
    )
    got = inner_products(subject, row, columns, precision, USUAL_ROWS)
    names = ("0*inf", "inf-inf", "nan*0", "inf*1", "1*1 beside them")
    expected = (math.nan, math.nan, math.nan, math.inf, 1.0)
    wrong = [
        name
        for index, (name, value) in enumerate(zip(names, expected, strict=True))
        if not np.array_equal(got[:, index], np.full(len(got), value), equal_nan=True)
    ]
    verdict = f"not as IEEE 754: {listed(wrong)}" if wrong else "as IEEE 754"
    return Reading(verdict=verdict, details=dict(zip(names, map(str, got[0].tolist()), strict=True)))


INSTRUMENTS: list[Instrument] = [
    single("matrix product", "operand bits", ("fp32", "tf32"), operand_bits),
    single("matrix product", "product exactness", EVERY, product_exactness),
    single("matrix product", "subnormals", EVERY, subnormals),
    single("matrix product", "overflow inside", EVERY, overflow),
    single("matrix product", "non-finite operands", EVERY, non_finite),
]
