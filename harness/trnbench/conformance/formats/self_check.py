"""Does rounding to a narrower format really take place? Asked before an emulated row is stored (field case C11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trnbench.conformance.formats.definitions import FORMATS, Format
from trnbench.conformance.formats.scalar import same_values

if TYPE_CHECKING:
    from trnbench.conformance.formats.caster import Caster, Floats

PROBE = 1.0 + 2.0**-9
"""Half of bf16's step above 1 would be 2^-8: this must round to exactly 1."""


def elided_name(target: Format) -> str:
    """The name of a compiler's fault: it takes the cast there and back for no operation at all."""
    return f"excess precision: the fp32 -> {target.name} -> fp32 round trip was elided"


def was_elided(inputs: Floats, outputs: Floats) -> bool:
    """Whether the pair of casts left every input as it was, more than one of which had to change."""
    return bool(same_values(outputs, inputs).all())


def emulation_refusal(caster: Caster) -> str | None:
    """Why no row of emulated precision may be stored; None where fp32 -> bf16 -> fp32 makes 1 + 2^-9 exactly 1.

    Raises `NotHere` where the device has no bf16.
    """
    target = FORMATS["bf16"]
    probe = np.full(64, PROBE, dtype=np.float32)
    outputs = caster.round_trip(target, probe)
    if same_values(outputs, np.ones_like(probe)).all():
        return None
    if was_elided(probe, outputs):
        return elided_name(target)
    return f"1 + 2^-9 becomes {float(outputs[0])!r} through bf16, where 1 is right"
