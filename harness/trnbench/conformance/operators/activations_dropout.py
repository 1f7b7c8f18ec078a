"""Dropout: its rate, scale, independence and seeds, as statistics (tier T3), and the rates 0 and 1 exactly.

Each statistic raises a false alarm with probability `FALSE_ALARM` / `STATISTICS`, so that, by Bonferroni, a correct
implementation fails any of them in one run out of a million.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.nn.functional import dropout

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import generator, rounded
from trnbench.conformance.operators.base import Direction, Finding, Operator, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Implementation

RATES = (0.1, 0.5)
"""Probabilities of an element to be dropped: the usual one, whose scale 1 / 0.9 rounds, and one with an exact scale."""

SHAPE = (512, 512)
"""At rate 0.1 the rate's standard deviation over 262144 elements is 5.9e-4: 0.11 lies 17 of them away."""

LAGS = tuple(2**power for power in range(17))
"""Distances at which the mask must not repeat: 1 to 65536, each power of two."""

FALSE_ALARM = 1e-6
"""Of all statistics of one run together."""

STATISTICS = len(RATES) * (1 + len(LAGS)) + len(RATES)
"""Rate and each lag, for each probability; and agreement of the masks of two seeds."""


def dropout_at_rates(x: Tensor) -> tuple[Tensor, ...]:
    """Dropout with the probabilities 0.1, 0.5, 0 and 1 of one tensor, in one graph."""
    return (*(dropout(x, rate, training=True) for rate in RATES), dropout(x, 0.0), dropout(x, 1.0))


def _input(precision: str, seed: int) -> Tensor:
    """Normal values, none of them near zero, so that a zero in the output was dropped."""
    drawn = generator("dropout", seed).standard_normal(SHAPE)
    return rounded(np.sign(drawn) * np.maximum(np.abs(drawn), 2.0**-4), STORAGE[precision])


def dropout_statistics(
    implementation: Implementation, precision: str, plan: Plan, arithmetic: Arithmetic
) -> Iterator[Finding]:
    """Scale, rate, independence of neighbours and of seeds; and repeatability under one seed, which is reported."""
    seed = plan.seeds[0]
    x = _input(precision, seed)
    torch.manual_seed(seed)
    first = implementation.forward((x,))
    yield from _fixed_rates(first, x)
    # A device without a seed of its own may go on from call to call, which is no error.
    torch.manual_seed(seed)
    again = implementation.forward((x,))
    torch.manual_seed(seed + 1)
    other = implementation.forward((x,))
    repeats = all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    yield _finding("repeated under one seed", True, None, "yes" if repeats else "no; reported, not judged")
    for place, rate in enumerate(RATES):
        output = first[place]
        kept = (output != 0.0).reshape(-1)
        yield _scale(output, x, rate, arithmetic)
        yield _rate(kept, rate)
        yield from _lags(kept, rate)
        yield _seeds(kept, (other[place] != 0.0).reshape(-1), rate)
    if repeats:
        yield from _backward(implementation, x, first, seed)


def _fixed_rates(outputs: tuple[Tensor, ...], x: Tensor) -> Iterator[Finding]:
    """Rate 0 changes nothing, rate 1 leaves zeros."""
    for output, right, rate in ((outputs[-2], x, 0), (outputs[-1], torch.zeros_like(x), 1)):
        wrong = int((output != right).sum())
        words = f"{wrong} of {x.numel()} values are wrong" if wrong else "every value is right"
        yield _finding(f"rate {rate}", wrong == 0, None, words, looks_like="wrong dropout rate")


def _scale(output: Tensor, x: Tensor, rate: float, arithmetic: Arithmetic) -> Finding:
    """Kept values are x / (1 - p) up to 2 u_o + u_o^2 + 2 u_a, relatively: the factor and the product are rounded.

    The factor 1 / (1 - p) is held in the format of x by PyTorch on the CPU, where the mask is a tensor of it; in
    float32 it takes two roundings. At rate 0.5 the factor is 2 and nothing is rounded.
    """
    unit = arithmetic.output_unit
    allowed = 0.0 if rate == 0.5 else 2.0 * unit + unit * unit + 2.0 * arithmetic.accumulator_unit
    kept = output != 0.0
    wide, right = output.double()[kept], (x.double() / (1.0 - rate))[kept]
    error = float(((wide - right).abs() / right.abs()).max()) if wide.numel() else 0.0
    passes = error <= allowed
    unscaled = bool(((wide - x.double()[kept]).abs() <= unit * wide.abs()).all())
    looks_like = "dropout without rescaling" if unscaled else "wrong dropout scale"
    value = error / allowed if allowed and math.isfinite(error) else None
    words = f"largest relative error {error:.3g}, {allowed:.3g} allowed"
    return _finding(f"scale at rate {rate}", passes, value, words, looks_like=looks_like)


def _rate(kept: Tensor, rate: float) -> Finding:
    """Exact two-sided binomial test of the number of kept elements."""
    number, total = int(kept.sum()), kept.numel()
    probability = float(stats.binomtest(number, total, 1.0 - rate).pvalue)
    deviation = abs(number - total * (1.0 - rate)) / math.sqrt(total * rate * (1.0 - rate))
    words = f"{1.0 - number / total:.5f} of {total} elements dropped, {deviation:.2f} standard deviations off"
    passes = probability >= FALSE_ALARM / STATISTICS
    return _finding(f"rate at {rate}", passes, deviation / _limit(), words, looks_like="wrong dropout rate")


def _lags(kept: Tensor, rate: float) -> Iterator[Finding]:
    """z-test of the autocorrelation of the mask at each lag; the worst lag is the finding.

    With m = (kept - (1 - p)) / sqrt(p (1 - p)), of mean 0 and variance 1, the products m_i m_i+k of independent
    elements have mean 0 and variance 1 and are uncorrelated with each other, so their sum over n of them, divided by
    sqrt n, is normal by the central limit theorem.
    """
    mask = (kept.double() - (1.0 - rate)) / math.sqrt(rate * (1.0 - rate))
    scores = {lag: float((mask[:-lag] * mask[lag:]).sum()) / math.sqrt(mask.numel() - lag) for lag in LAGS}
    worst = max(scores, key=lambda lag: abs(scores[lag]))
    passes = abs(scores[worst]) <= _limit()
    words = f"correlation at lag {worst} is {scores[worst]:.2f} standard deviations off, {_limit():.2f} allowed"
    value = abs(scores[worst]) / _limit()
    yield _finding(f"independence at rate {rate}", passes, value, words, looks_like="dropout mask repeats")


def _seeds(kept: Tensor, other: Tensor, rate: float) -> Finding:
    """z-test of the correlation between the masks of two seeds, as `_lags`."""
    scale = rate * (1.0 - rate)
    products = (kept.double() - (1.0 - rate)) * (other.double() - (1.0 - rate)) / scale
    score = float(products.sum()) / math.sqrt(products.numel())
    words = f"correlation between two seeds is {score:.2f} standard deviations off, {_limit():.2f} allowed"
    value = abs(score) / _limit()
    return _finding(
        f"seeds at rate {rate}", value <= 1.0, value, words, looks_like="dropout mask independent of the seed"
    )


def _backward(implementation: Implementation, x: Tensor, outputs: tuple[Tensor, ...], seed: int) -> Iterator[Finding]:
    """Under one seed the gradient's mask is that of the forward pass; with gradients of one, it is the mask itself."""
    for place, rate in enumerate(RATES):
        ones = tuple(torch.ones_like(x) if other == place else torch.zeros_like(x) for other in range(len(outputs)))
        torch.manual_seed(seed)
        (gradient,) = implementation.backward((x,), ones, (0,))
        wrong = int(((gradient != 0.0) != (outputs[place] != 0.0)).sum())
        words = f"{wrong} of {x.numel()} elements are dropped in one direction only"
        yield _finding(
            f"mask at rate {rate}",
            wrong == 0,
            None,
            words,
            looks_like="backward draws its own mask",
            direction="backward",
        )


def _limit() -> float:
    """Two-sided normal quantile of one statistic's share of the false alarms."""
    return float(stats.norm.isf(FALSE_ALARM / STATISTICS / 2.0))


def _finding(
    name: str,
    passes: bool,
    value: float | None,
    where: str,
    *,
    looks_like: str = "",
    direction: Direction = "forward",
) -> Finding:
    """A finding that says what it looks like where it fails."""
    return Finding(
        operator="dropout",
        direction=direction,
        input=name,
        tier="T3",
        verdict="pass" if passes else "fail",
        value=value,
        where=f"{where}; {SHAPE[0]}x{SHAPE[1]}",
        looks_like="" if passes else looks_like,
    )


OPERATORS: list[Operator] = [
    Operator(name="dropout", family="activations", function=dropout_at_rates, statistics=dropout_statistics),
]
