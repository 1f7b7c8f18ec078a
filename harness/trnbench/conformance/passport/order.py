"""In which order a device adds: the summation tree of short sums, and the block size of long inner products."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.passport import tree as trees
from trnbench.conformance.passport.instrument import Instrument, Reading, single
from trnbench.conformance.passport.products import EVERY, USUAL_ROWS
from trnbench.conformance.passport.subject import ProbeError
from trnbench.conformance.passport.vectors import TERMS, exact_tensor, inner_products

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

    Floats = NDArray[np.float64]

SHORT = 32
"""Terms of the sums whose whole tree is stored as text."""

LONG = {"fp32": 1024, "fp16": 1024, "bf16": 256}
"""Terms of a long inner product. The count of surviving units must be exact in the output: bf16 counts to 256."""

UNITS = {"fp32": 1.0, "bf16": 1.0, "fp16": 2.0**-24}
MASKS = {"fp32": 2.0**127, "bf16": 2.0**127, "fp16": 2.0**15}
"""So far apart that a float32 accumulator swallows all units beside the mask; fp16 needs its least subnormal."""


def row_sums(values: Tensor) -> Tensor:
    """Sums along the last axis."""
    return values.sum(-1)


def total(values: Tensor) -> Tensor:
    """The sum of one vector."""
    return values.sum()


def product_order(subject: Subject, precision: str, rows: int) -> Reading:
    """Tree of a short inner product inside a matrix product with `rows` rows."""
    row = np.ones(TERMS)
    return _tree_reading(TERMS, precision, lambda columns: inner_products(subject, row, columns, precision, rows)[0])


def row_sum_order(subject: Subject, precision: str) -> Reading:
    """Tree of sums along the last axis of a matrix."""

    def sums(columns: Floats) -> Floats:
        return subject.run(row_sums, exact_tensor(columns.T, STORAGE[precision]))[0].double().numpy()

    return _tree_reading(SHORT, precision, sums)


def vector_sum_order(subject: Subject, precision: str) -> Reading:
    """Tree of the sum of one vector."""

    def sums(columns: Floats) -> Floats:
        vectors = exact_tensor(columns.T, STORAGE[precision])
        return np.array([float(subject.run(total, vector.contiguous())[0].double()) for vector in vectors])

    return _tree_reading(SHORT, precision, sums)


def _tree_reading(terms: int, precision: str, sums: Callable[[Floats], Floats]) -> Reading:
    unit = UNITS[precision]
    _check_unit(sums, terms, unit)
    columns = trees.masked_columns(terms, trees.pairs(terms), unit, MASKS[precision])
    counts = trees.counts_from_sums(terms, sums(columns), unit)
    tree = None if counts is None else trees.tree_from_counts(counts)
    if tree is None:
        return Reading(verdict="no fixed tree: the order or the alignment depends on the values")
    details: dict[str, Scalar] = {"terms": terms, "depth": trees.depth(tree), "fan-in": trees.fan_in(tree)}
    if terms <= SHORT:
        details["tree"] = trees.text(tree)
    return Reading(verdict=trees.describe(tree), details=details)


def _check_unit(sums: Callable[[Floats], Floats], terms: int, unit: float) -> None:
    """Without masks the sum of all units must be exact, or surviving units cannot be counted."""
    plain = float(sums(np.full((terms, 1), unit))[0])
    if plain != terms * unit:
        raise ProbeError(f"{terms} units of {unit:g} add up to {plain:g}: they cannot be counted")


def block_size(subject: Subject, precision: str) -> Reading:
    """How a long inner product is cut: the sizes of the sums that the first term is part of, from the least up.

    One mask stays at term 0, the other moves, so n - 1 questions suffice. A loop over blocks of B terms shows as sizes
    B, 2 B, 3 B, ... above whatever happens inside a block.
    """
    terms = LONG[precision]
    unit, row = UNITS[precision], np.ones(terms)
    ask = partial(inner_products, subject, row, precision=precision, rows=USUAL_ROWS)
    _check_unit(lambda columns: ask(columns)[0], terms, unit)
    chosen = [(0, other) for other in range(1, terms)]
    sums = ask(trees.masked_columns(terms, chosen, unit, MASKS[precision]))[0] / unit
    if not np.isfinite(sums).all() or (sums != np.rint(sums)).any():
        return Reading(verdict="no fixed tree: the order or the alignment depends on the values")
    sizes = sorted({terms - int(value) for value in sums.tolist()})
    shown = ", ".join(map(str, sizes[:8]))
    block = block_of(sizes, terms)
    details: dict[str, Scalar] = {"terms": terms, "sums that hold term 0": f"{shown}{', ...' if sizes[8:] else ''}"}
    return Reading(verdict=block, details=details)


def block_of(sizes: list[int], terms: int) -> str:
    """The block size in words, from the sorted sizes of all sums that hold the first term."""
    if sizes == list(range(2, terms + 1)):
        return "one chain"
    if sizes == [2**power for power in range(1, terms.bit_length())]:
        return "pairwise"
    for index, size in enumerate(sizes[:-1]):
        above = sizes[index + 1 :]
        # The last block may be a shorter one.
        if above == [min(size * (2 + step), terms) for step in range(len(above))]:
            return f"blocks of {size} terms" if above[0] < terms else f"two parts, the first {size} terms"
        if above == [min(size * 2 ** (1 + step), terms) for step in range(len(above))]:
            return f"blocks of {size} terms, joined in pairs"
    return f"irregular, {len(sizes)} sizes"


def _products(rows: int, precisions: tuple[str, ...]) -> Instrument:
    name = f"matrix product, {rows} row{'s' if rows > 1 else ''}"
    return single("accumulation order", name, precisions, partial(product_order, rows=rows))


INSTRUMENTS: list[Instrument] = [
    _products(1, EVERY),
    _products(USUAL_ROWS, EVERY),
    single("accumulation order", "blocks of a long product", EVERY, block_size),
    single("accumulation order", "sum along rows", ("fp32", "bf16"), row_sum_order),
    single("accumulation order", "sum of a vector", ("fp32",), vector_sum_order),
]
