"""The accumulator of matrix products: how many bits it has, at which positions, and how it rounds.

Feature tests in the manner of Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ
Computer Science 7:e330 (2021): inputs whose exact answer shows one property of the arithmetic.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from trnbench.conformance.passport.instrument import Instrument, Reading, single
from trnbench.conformance.passport.products import EVERY, USUAL_ROWS, by_rows
from trnbench.conformance.passport.vectors import ROW_COUNTS, TERMS, inner_products, placed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

POSITIONS: tuple[tuple[int, int, int], ...] = (
    (0, 1, 2),
    (0, 2, 4),
    (0, 8, 16),
    (0, TERMS // 2, TERMS - 1),
    (3, 17, 40),
    (TERMS - 3, TERMS - 2, TERMS - 1),
)
"""Where the three terms stand: neighbours, terms that two, eight or sixteen sums keep apart, and both ends."""

ORDERS: tuple[tuple[int, ...], ...] = tuple(itertools.permutations(range(3)))

WIDEST = 59
"""Widths are tried up to 60 bits: more than the 53 of float64."""

FP16_SCALE = 2.0**15
"""Largest power of two in fp16: two of them reach further than one operand can."""

WIDTH_NAMES = {8: "bf16 accumulator", 11: "fp16 accumulator", 24: "fp32 accumulator", 53: "fp64 accumulator"}

FRACTIONS = (0.25, 0.5, 0.75, 1.0, 1.5, -0.25, -0.5, -0.75, -1.0, -1.5)
DIRECTIONS = {
    (0.0, 1.0, 0.0, -1.0): "to nearest",
    (0.0, 0.0, 0.0, 0.0): "toward zero",
    (0.0, 0.0, -1.0, -1.0): "down",
    (1.0, 1.0, 0.0, 0.0): "up",
}
"""By what becomes of 0.25, 0.75, -0.25 and -0.75 of the accumulator's last place."""

NOT_SEEN = "no rounding seen"
DIRECTED = frozenset(f"rounds {direction}" for direction in ("toward zero", "down", "up"))
FLOAT32_BITS = 24


class _Placement:
    """Three terms, big, small and minus big, in one order at three positions."""

    def __init__(self, positions: tuple[int, int, int], order: tuple[int, ...], precision: str) -> None:
        self.positions = positions
        self.order = order
        self._scale = FP16_SCALE if precision == "fp16" else 1.0

    def row(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The left operand: ones, and in fp16 a large factor for the big terms."""
        factors = (self._scale, 1.0, self._scale)
        return placed(TERMS, self.positions, [factors[which] for which in self.order])

    def column(self, big: float, small: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The right operand for +big, small and -big."""
        values = (big / self._scale, small, -big / self._scale)
        return placed(TERMS, self.positions, [values[which] for which in self.order])


def placements(precision: str) -> Iterator[_Placement]:
    """Every order of the three terms at every choice of positions."""
    for positions in POSITIONS:
        for order in ORDERS:
            yield _Placement(positions, order, precision)


def width(subject: Subject, precision: str) -> Reading:
    """Significant bits: the largest p + 1 for which 2^p + 1 - 2^p is still 1, the least over orders and positions.

    An order that cancels the big terms first loses nothing at any width, so only the worst one tells. Positions that
    different partial sums take look wider than the accumulator is; the details keep each position's own worst.
    """
    details: dict[str, Scalar] = {}
    verdicts: dict[int, str] = {}
    for rows in ROW_COUNTS:
        found = widths(subject, precision, rows)
        details |= {f"bits at {'/'.join(map(str, at))}, {rows} rows": bits for at, bits in found.items()}
        verdicts[rows] = width_name(min(found.values()), _widest(precision) + 1)
    return Reading(verdict=by_rows(verdicts), details=details)


def widths(subject: Subject, precision: str, rows: int) -> dict[tuple[int, int, int], int]:
    """Accumulator bits by position, each the least over the orders of the three terms."""
    exponents = np.arange(1, _widest(precision) + 1)
    found: dict[tuple[int, int, int], int] = {}
    for placement in placements(precision):
        columns = np.stack([placement.column(2.0**exponent, 1.0) for exponent in exponents.tolist()], axis=1)
        survive = (inner_products(subject, placement.row(), columns, precision, rows) == 1.0).all(axis=0)
        bits = 1 + (len(survive) if survive.all() else int(np.argmin(survive)))
        found[placement.positions] = min(bits, found.get(placement.positions, bits))
    return found


def width_name(bits: int, most: int) -> str:
    """A name for an accumulator of so many bits, of which `most` can be seen."""
    if bits >= most:
        return f"accumulator of at least {bits} bits"
    return WIDTH_NAMES.get(bits, f"{bits}-bit accumulator")


def _widest(precision: str) -> int:
    return 30 if precision == "fp16" else WIDEST


def rounding(subject: Subject, precision: str) -> Reading:
    """How the accumulator rounds: fractions of its last place are added to a big term that is taken away again.

    The placement is searched until a fraction really meets the big term; hardware that keeps even and odd terms apart
    hides it elsewhere. Tensor cores round toward zero (Fasi et al. 2021), CDNA3 down.
    """
    bits = min(widths(subject, precision, USUAL_ROWS).values())
    direction, responses, where = rounding_direction(subject, precision, bits)
    details: dict[str, Scalar] = {f"{fraction:+g} ulp became": value for fraction, value in responses.items()}
    return Reading(verdict=direction, details={**details, "accumulator bits": bits, "placement": where})


def rounding_direction(subject: Subject, precision: str, bits: int) -> tuple[str, dict[float, float], str]:
    """Direction in words, what became of each fraction in units of the last place, and where the terms stood."""
    if bits > _widest(precision):
        return NOT_SEEN, {}, "none"
    # Next to 2^bits, numbers of that many bits are 2 apart.
    big, unit = 2.0**bits, 2.0
    for placement in placements(precision):
        columns = np.stack(
            [placement.column(float(np.copysign(big, fraction)), fraction * unit) for fraction in FRACTIONS], axis=1
        )
        got = inner_products(subject, placement.row(), columns, precision, USUAL_ROWS)[0] / unit
        responses = dict(zip(FRACTIONS, got.tolist(), strict=True))
        if responses[0.25] != 0.25:
            where = f"{'/'.join(map(str, placement.positions))} in order {''.join(map(str, placement.order))}"
            return _direction(responses), responses, where
    return NOT_SEEN, {}, "none"


def _direction(responses: dict[float, float]) -> str:
    if (responses[1.0], responses[-1.0]) != (1.0, -1.0):
        # A narrower accumulator loses the whole last place, which would pass for truncation.
        return "narrower: its last place is not there"
    seen = (responses[0.25], responses[0.75], responses[-0.25], responses[-0.75])
    direction = DIRECTIONS.get(seen)
    if direction is None:
        return f"other: 0.25, 0.75, -0.25, -0.75 ulp became {', '.join(f'{value:g}' for value in seen)}"
    if direction != "to nearest":
        return f"rounds {direction}"
    ties = {(0.0, 2.0): "ties to even", (1.0, 2.0): "ties away from zero"}
    return f"rounds to nearest, {ties.get((responses[0.5], responses[1.5]), 'ties either way')}"


INSTRUMENTS: list[Instrument] = [
    single("accumulator", "width", EVERY, width),
    single("accumulator", "rounding", EVERY, rounding),
]
