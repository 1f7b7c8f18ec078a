"""Every instrument of the passport, in the order in which a reader looks at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.passport import (
    accumulator,
    attention,
    casts,
    elementwise,
    epilogue,
    functions,
    integers,
    invariance,
    normalisation,
    order,
    products,
    randomness,
    reductions,
    scaled_products,
    special_values,
)

if TYPE_CHECKING:
    from trnbench.conformance.passport.instrument import Instrument

INSTRUMENTS: list[Instrument] = [
    *products.INSTRUMENTS,
    *epilogue.INSTRUMENTS,
    *accumulator.INSTRUMENTS,
    *scaled_products.INSTRUMENTS,
    *order.INSTRUMENTS,
    *invariance.INSTRUMENTS,
    *reductions.INSTRUMENTS,
    *normalisation.INSTRUMENTS,
    *elementwise.INSTRUMENTS,
    *functions.INSTRUMENTS,
    *special_values.INSTRUMENTS,
    *casts.INSTRUMENTS,
    *randomness.INSTRUMENTS,
    *integers.INSTRUMENTS,
    *attention.INSTRUMENTS,
]
