"""What a precision promises, as numbers that bounds are made of, and the two ways in which rounding errors add up.

Notation follows Higham, "Accuracy and Stability of Numerical Algorithms" (2002), chapters 2 to 4: the unit roundoff u
is half the distance from 1 to the next number, 2^-p for a significand of p bits, its leading one included.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import torch

Bounds = Literal["hard", "probabilistic"]

PRECISIONS: tuple[str, ...] = ("fp32", "tf32", "bf16", "fp16")
STORAGE: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
"""In which dtype tensors of a precision lie; tf32 rounds the operands of matrix products only."""

SIGNIFICANT_BITS: dict[str, int] = {"fp32": 24, "tf32": 11, "bf16": 8, "fp16": 11}
"""Of a number in that precision, for tf32 of a matrix operand; the leading one counts."""

CONFIDENCE = 6.0
"""lambda of the probabilistic bounds.

An inner product of n terms stays within lambda * sqrt(n) * u of its exact value, relative to the sum of magnitudes,
with a probability of at least 1 - 2 exp(-lambda^2 / 2) if roundings have mean zero (Higham and Mary, "A new approach
to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4): 6 leaves 3e-8 an element,
so that 1e6 elements raise a false alarm in 3 % of runs by this (pessimistic) bound alone. Correct float32 products
measured on a CPU reach 0.17 of it.
"""


class Arithmetic(msgspec.Struct, frozen=True, kw_only=True):
    """One precision as a device computes it. Defaults are IEEE; `profile` replaces them by what the passport found.

    `bounds` chooses how `growth` adds up roundings: "hard" holds for any order and any direction of rounding (tier T1),
    "probabilistic" for roundings of mean zero (tier T2).
    """

    precision: str
    bounds: Bounds = "hard"
    accumulator_bits: int = 24
    """Significant bits of the accumulator that the precision promises: float32 for all four."""

    accumulates_toward_zero: bool = False
    """True where the passport found truncating accumulation, as tensor cores have: doubles the unit of every sum."""

    flushes_subnormals: bool = False
    """True where the passport found that subnormal inputs or results become zero."""

    epilogue_roundings: int = 1
    """Roundings to the output dtype in a fused `linear` with bias: 1 fused, 2 where the product is rounded first."""

    stochastic_rounding: bool = False
    """True where results are rounded up or down at random: the error of a rounding is then up to a whole ulp."""

    function_error: dict[str, float] = {}
    """Relative error in float32 of a named elementary function where the passport measured more than the default."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the tensors."""
        return STORAGE[self.precision]

    @property
    def output_unit(self) -> float:
        """Largest relative error of one rounding to the output dtype (2^-p; a whole ulp under stochastic rounding)."""
        return (2.0 if self.stochastic_rounding else 1.0) * torch.finfo(self.dtype).eps / 2.0

    @property
    def operand_unit(self) -> float:
        """Largest relative error with which a matrix operand is taken in: zero except for tf32, which may truncate."""
        return 2.0 * 2.0 ** -SIGNIFICANT_BITS["tf32"] if self.precision == "tf32" else 0.0

    @property
    def accumulator_unit(self) -> float:
        """Largest relative error of one rounding in the accumulator."""
        unit = 2.0**-self.accumulator_bits
        return 2.0 * unit if self.accumulates_toward_zero else unit

    @property
    def smallest(self) -> float:
        """Absolute error that underflow may add: half the least subnormal, or the least normal number if flushed."""
        facts = torch.finfo(self.dtype)
        return facts.tiny if self.flushes_subnormals else facts.smallest_normal * facts.eps / 2.0

    def growth(self, terms: int) -> float:
        """Relative error of a sum of `terms` products, over the sum of their magnitudes.

        Hard: gamma_n = n u / (1 - n u), whatever the order (Higham 2002, lemma 8.4). Probabilistic: lambda sqrt(n) u.
        Truncation is not of mean zero, so it keeps the hard bound. Infinite once n u reaches 1: nothing is promised.
        """
        unit = self.accumulator_unit
        if self.bounds == "probabilistic" and not self.accumulates_toward_zero:
            return CONFIDENCE * math.sqrt(terms) * unit
        product = terms * unit
        return product / (1.0 - product) if product < 1.0 else math.inf

    def function(self, name: str) -> float:
        """Relative error allowed to an elementary function in float32: the usual, or what the passport measured."""
        return max(self.function_error.get(name, 0.0), USUAL_FUNCTION_ERROR[name] * 2.0**-23)

    def probabilistic(self) -> Arithmetic:
        """The same arithmetic for tier T2."""
        return msgspec.structs.replace(self, bounds="probabilistic")


USUAL_FUNCTION_ERROR: dict[str, float] = {
    "exp": 4.0,
    "log": 4.0,
    "rsqrt": 2.0,
    "erf": 8.0,
    "tanh": 8.0,
    "sin": 4.0,
    "cos": 4.0,
    "sigmoid": 6.0,
}
"""In units of 2^-23. XLA's own accuracy tests allow 1 ulp to exp and 2 to rsqrt, sin and cos, vendors' fast versions
reach 4 (CUDA C++ Programming Guide, "Intrinsic Functions"); erf and tanh are measured at 4.6 and 4.3 on torch-xla."""
