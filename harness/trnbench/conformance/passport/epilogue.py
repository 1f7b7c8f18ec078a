"""Where the bias of a linear layer is added: before the sum is rounded to 16 bits, or after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from trnbench.conformance.arithmetic import SIGNIFICANT_BITS, STORAGE
from trnbench.conformance.passport.instrument import Instrument, Reading, single
from trnbench.conformance.passport.products import SIXTEEN_BIT, USUAL_ROWS
from trnbench.conformance.passport.vectors import COLUMNS, TERMS

if TYPE_CHECKING:
    from torch import Tensor

    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

FUSED = "bias before rounding"
SEPARATE = "bias after rounding"


def linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer with bias."""
    return functional.linear(inputs, weight, bias)


def addmm(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The product and the sum as one operator."""
    return torch.addmm(bias, inputs, weight.t())


def product_then_sum(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The product and the sum as two operators."""
    return inputs @ weight.t() + bias


FORMS = {"linear": linear, "addmm": addmm, "product, then sum": product_then_sum}


def roundings(subject: Subject, precision: str, form: str) -> str:
    """`FUSED`, `SEPARATE` or what else came out of 1 + h, plus a bias h, for h half of the output's last place.

    The sum 1 + 2 h is the next number after 1; rounded in between, 1 + h ties to 1, and so does 1 + h again.
    """
    half = 2.0 ** -SIGNIFICANT_BITS[precision]
    dtype = STORAGE[precision]
    inputs = torch.zeros(USUAL_ROWS, TERMS, dtype=torch.float64)
    inputs[:, 0], inputs[:, 1] = 1.0, half
    weight = torch.zeros(COLUMNS, TERMS, dtype=torch.float64)
    weight[:, :2] = 1.0
    bias = torch.full((COLUMNS,), half, dtype=torch.float64)
    got = subject.run(FORMS[form], inputs.to(dtype), weight.to(dtype), bias.to(dtype))[0].double()
    values = set(got.flatten().tolist())
    if values == {1.0 + 2.0 * half}:
        return FUSED
    return SEPARATE if values == {1.0} else f"1 + 2^-{SIGNIFICANT_BITS[precision] - 1} became {sorted(values)}"


def epilogue(subject: Subject, precision: str) -> Reading:
    """The three ways to write it; the verdict is the linear layer's."""
    details: dict[str, Scalar] = {form: roundings(subject, precision, form) for form in FORMS}
    return Reading(verdict=str(details["linear"]), details=details)


INSTRUMENTS: list[Instrument] = [single("matrix product", "epilogue", SIXTEEN_BIT, epilogue)]
