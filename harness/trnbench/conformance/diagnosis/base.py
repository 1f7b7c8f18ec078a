"""A hypothesis: one named way of being wrong, as a function that computes what a device with it would return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from trnbench.conformance.implementation import Tensors

Evidence = Literal["exact constant", "bitwise match", "matched residual", "unexplained"]


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True):
    """`emulate(inputs, precision)` returns the faulty outputs, in any dtype (float64 if nothing is rounded last).

    `gradient(inputs, cotangents, precision)` does so for the backward pass; None where the fault has none. A hypothesis
    that does not apply to these inputs returns None.
    """

    name: str
    emulate: Callable[[Tensors, str], Tensors | None] | None = None
    gradient: Callable[[Tensors, Tensors, str], Tensors | None] | None = None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What a failure looks like. `strength` is 1.0 for constants and bits, else the correlation of the residuals.

    `name` is "unexplained" where no hypothesis fits; `effective_bits` then says how precise the result still is.
    `explained` of `failing` failing samples bear the name out; the others may have another fault.
    """

    name: str
    evidence: Evidence
    strength: float
    effective_bits: float | None = None
    explained: int = 0
    failing: int = 0

    @property
    def words(self) -> str:
        """For a verdict: `bf16 operands (matched residual, 0.998; 7 of 9 failing samples)`."""
        if self.name == "unexplained":
            bits = "" if self.effective_bits is None else f", {self.effective_bits:.1f} effective bits"
            return f"unexplained{bits}"
        strength = f", {self.strength:.3f}" if self.evidence == "matched residual" else ""
        share = f"; {self.explained} of {self.failing} failing samples" if self.explained < self.failing else ""
        return f"{self.name} ({self.evidence}{strength}{share})"
