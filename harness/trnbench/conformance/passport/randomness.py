"""Stochastic rounding, if there is any, and what a seed repeats."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trnbench.conformance.arithmetic import SIGNIFICANT_BITS, STORAGE
from trnbench.conformance.passport.instrument import Instrument, Reading, single
from trnbench.conformance.passport.products import SIXTEEN_BIT

if TYPE_CHECKING:
    from torch import Tensor

    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

COPIES = 65536
FRACTION = 0.25
"""Of the last place: to nearest always down, at random up in a quarter of all cases."""

SEED = 20
BIAS_Z = 4.0
"""A z-score beyond it has a probability of 6e-5 for unbiased rounding."""

DETERMINISTIC = "deterministic"


def to_bf16(values: Tensor) -> Tensor:
    """The cast that training does with weights and gradients."""
    return values.to(torch.bfloat16)


def to_fp16(values: Tensor) -> Tensor:
    """The same to fp16."""
    return values.to(torch.float16)


CASTS = {"bf16": to_bf16, "fp16": to_fp16}


def uniform(values: Tensor) -> Tensor:
    """Random numbers of the device's own generator."""
    return torch.rand_like(values)


def rounds_up(subject: Subject, precision: str) -> Tensor:
    """Which of many copies of 1 + a quarter of the last place became the next number."""
    step = 2.0 ** (1 - SIGNIFICANT_BITS[precision])
    values = torch.full((COPIES,), 1.0 + FRACTION * step, dtype=torch.float32)
    return subject.run(CASTS[precision], values)[0].double() > 1.0


def is_stochastic(subject: Subject, precision: str) -> bool:
    """True where equal values do not all round the same way."""
    up = rounds_up(subject, precision)
    return bool(up.any()) and not bool(up.all())


def stochastic_rounding(subject: Subject, precision: str) -> Reading:
    """Share rounded up, its z-score against a quarter, correlation of neighbours, and what a seed repeats."""
    dtype = STORAGE[precision]
    up = rounds_up(subject, precision).double()
    share = float(up.mean())
    details: dict[str, Scalar] = {
        "copies": COPIES,
        "share rounded up": share,
        "format": str(dtype).removeprefix("torch."),
    }
    if share in (0.0, 1.0):
        return Reading(verdict=DETERMINISTIC, details=details)
    z_score = (share - FRACTION) / math.sqrt(FRACTION * (1.0 - FRACTION) / COPIES)
    centred = up - share
    correlation = float((centred[1:] * centred[:-1]).mean() / centred.square().mean())
    again = rounds_up(subject, precision).double()
    subject.seed(SEED)
    first = rounds_up(subject, precision)
    subject.seed(SEED)
    second = rounds_up(subject, precision)
    repeats = torch.equal(first, second)
    bias = "unbiased" if abs(z_score) < BIAS_Z else "biased"
    details |= {
        "z-score": z_score,
        "correlation of neighbours": correlation,
        "same bits without a new seed": torch.equal(up, again),
        "same bits after one seed": repeats,
    }
    seeds = "repeats after one seed" if repeats else "a seed does not repeat it"
    return Reading(verdict=f"stochastic, {bias}, {seeds}", details=details)


def seeding(subject: Subject, precision: str) -> Reading:
    """Whether random numbers repeat after the same seed, and differ without."""
    values = torch.zeros(4096)
    subject.seed(SEED)
    first, next_ones = subject.run(uniform, values)[0], subject.run(uniform, values)[0]
    subject.seed(SEED)
    again = subject.run(uniform, values)[0]
    if torch.equal(first, next_ones):
        return Reading(verdict="the same numbers on every call")
    verdict = "a seed repeats them" if torch.equal(first, again) else "a seed does not repeat them"
    return Reading(verdict=verdict, details={"mean": float(first.double().mean())})


INSTRUMENTS: list[Instrument] = [
    single("randomness", "rounding", SIXTEEN_BIT, stochastic_rounding),
    single("randomness", "seed", ("fp32",), seeding),
]
