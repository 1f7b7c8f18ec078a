"""The accumulator behind fp8 matrix products: 14 bits on Hopper's tensor cores (DeepSeek-V3; MMA-Sim, 2511.10909)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.conformance.passport.accumulator import ORDERS, POSITIONS, width_name
from trnbench.conformance.passport.instrument import Instrument, Reading, single
from trnbench.conformance.passport.products import USUAL_ROWS
from trnbench.conformance.passport.vectors import COLUMNS, TERMS

if TYPE_CHECKING:
    from torch import Tensor

    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

DTYPES: dict[str, torch.dtype] = {"e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
RANGES: dict[str, tuple[int, int]] = {"e4m3fn": (-6, 8), "e5m2": (-14, 15)}
"""Exponents of the least normal and the largest power of two."""


def scaled_product(left: Tensor, right: Tensor, scale: Tensor) -> Tensor:
    """Product of an fp8 matrix and a transposed one, both with scale one, as float32."""
    return torch._scaled_mm(left, right.t(), scale_a=scale, scale_b=scale, out_dtype=torch.float32)


def width(subject: Subject, precision: str) -> Reading:
    """As `accumulator.width`: 2^p + 1 - 2^p in units of the least product, for all p that the format reaches.

    One operand alone spans half of the range, so the left one takes its least and its largest value in turn.
    """
    least, largest = RANGES[precision]
    most = 2 * (largest - least)
    found: dict[tuple[int, int, int], int] = {}
    for positions in POSITIONS:
        for order in ORDERS:
            survived: list[bool] = []
            for start in (least, largest):
                survived += _survive(subject, precision, start, positions, order)[(start == largest) :]
            bits = 1 + (survived.index(False) if False in survived else len(survived))
            found[positions] = min(bits, found.get(positions, bits))
    details: dict[str, Scalar] = {f"bits at {'/'.join(map(str, at))}": bits for at, bits in found.items()}
    return Reading(verdict=width_name(min(found.values()), most + 1), details=details)


def _survive(
    subject: Subject, precision: str, left_exponent: int, positions: tuple[int, int, int], order: tuple[int, ...]
) -> list[bool]:
    """Whether the unit survives, for big terms 2^left_exponent times every power of two from the least on."""
    least, largest = RANGES[precision]
    dtype = DTYPES[precision]
    exponents = list(range(least, largest + 1))
    left = torch.zeros(USUAL_ROWS, TERMS)
    right = torch.zeros(COLUMNS, TERMS)
    factors = (2.0**left_exponent, 2.0**least, 2.0**left_exponent)
    for position, which in zip(positions, order, strict=True):
        left[:, position] = factors[which]
        for column, exponent in enumerate(exponents):
            right[column, position] = (2.0**exponent, 2.0**least, -(2.0**exponent))[which]
    got = subject.run(scaled_product, left.to(dtype), right.to(dtype), torch.ones(()))[0]
    right_answer = got[:, : len(exponents)] == 2.0 ** (2 * least)
    # The first of the least exponents is the unit itself: 1 + 1 - 1 tells nothing about the width.
    skipped = 1 if left_exponent == least else 0
    return [bool(value) for value in right_answer.all(dim=0)][skipped:]


INSTRUMENTS: list[Instrument] = [single("accumulator", "scaled fp8 product", tuple(DTYPES), width)]
