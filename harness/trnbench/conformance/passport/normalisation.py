"""How a variance is computed: from deviations (two passes, Welford), or as mean of squares minus squared mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from trnbench.conformance.passport.instrument import Instrument, Reading, Readings, number
from trnbench.conformance.passport.subject import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.passport.subject import Subject
    from trnbench.device import Scalar

TERMS = 4096
GROUPS = 4
OFFSETS = (0.0, 100.0, 1000.0, 10000.0)
"""Means of values that lie one above and one below: exact in float32, with variance 1."""

CANCELS_AT = 10000.0
"""E[x^2] - E[x]^2 loses all digits of a variance of 1 once the squared mean exceeds 2^24, that is from 4096."""


def layer_norm(values: Tensor) -> Tensor:
    """Without weights and epsilon: every element is +1 or -1."""
    return functional.layer_norm(values, (TERMS,), eps=0.0)


def group_norm(values: Tensor) -> Tensor:
    """All channels in one group."""
    rows = values.shape[0]
    return functional.group_norm(values.view(rows, GROUPS, TERMS // GROUPS), 1, eps=0.0).view(rows, TERMS)


def variance(values: Tensor) -> Tensor:
    """Population variance of every row."""
    return values.var(-1, correction=0)


OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "var": variance,
}


def algorithms(subject: Subject, precision: str) -> Readings:
    """For each operator how far its result is from 1 as the mean of the values grows."""
    signs = torch.ones(TERMS)
    signs[1::2] = -1.0
    values = torch.stack([signs + offset for offset in OFFSETS])
    return {name: _reading(outcome) for name, outcome in subject.ask_all(OPERATORS, values).items()}


def _reading(outcome: tuple[Tensor, ...] | Unknown) -> Reading | Unknown:
    if isinstance(outcome, Unknown):
        return outcome
    magnitudes = outcome[0].double().abs().reshape(len(OFFSETS), -1)
    errors = (magnitudes - 1.0).abs().amax(dim=1)
    details: dict[str, Scalar] = {
        f"error at mean {offset:g}": number(error) for offset, error in zip(OFFSETS, errors.tolist(), strict=True)
    }
    worst = float(errors[OFFSETS.index(CANCELS_AT)])
    # Rounding the mean costs a two-pass variance mean^2 * 2^-48 (Chan, Golub and LeVeque 1983): nothing to be seen.
    return Reading(verdict="from deviations" if worst < 0.01 else "one-pass: cancels", details=details)


INSTRUMENTS: list[Instrument] = [
    Instrument(group="variance", names=tuple(OPERATORS), precisions=("fp32",), measure=algorithms)
]
