"""AdamW in float64, and how far one step in float32 may be off: a bound on the update, not on the weight alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from trnbench.workloads.training import BETAS, EPSILON, LEARNING_RATE, WEIGHT_DECAY

if TYPE_CHECKING:
    from trnbench.conformance.arithmetic import Arithmetic

UNIT = 2.0**-24
"""Unit roundoff of float32, in which state and update are computed whatever the precision of the weights."""

LEAST = 2.0**-150
"""Half the least subnormal of float32."""


class Step(msgspec.Struct, frozen=True):
    """float64 tensors of one shape: weight, mean and variance after a step, or the error allowed to each."""

    weight: Tensor
    mean: Tensor
    variance: Tensor


def adamw_exactly(
    weight: Tensor, gradient: Tensor, mean: Tensor, variance: Tensor, step: float, *, rate: float = LEARNING_RATE
) -> Step:
    """One AdamW step in float64 (arXiv:1711.05101, algorithm 2, with torch.optim.AdamW's place of epsilon).

    `step` counts from 1. Hyperparameters are those of the training workload.
    """
    weight, gradient, mean, variance = (tensor.double() for tensor in (weight, gradient, mean, variance))
    mean = BETAS[0] * mean + (1.0 - BETAS[0]) * gradient
    variance = BETAS[1] * variance + (1.0 - BETAS[1]) * gradient.square()
    root = (variance / (1.0 - BETAS[1] ** step)).sqrt()
    update = rate / (1.0 - BETAS[0] ** step) * mean / (root + EPSILON)
    return Step(weight * (1.0 - rate * WEIGHT_DECAY) - update, mean, variance)


def _correction_error(beta: float, step: float, arithmetic: Arithmetic) -> float:
    """Relative error of 1 - beta^t computed in float32.

    beta^t = exp(t log beta): beta is rounded (t u relative), the logarithm and its product with t carry
    |t log beta| (e_log + 2 u), the exponential e_exp; the difference rounds once more.
    """
    exponent = abs(step * math.log(beta))
    power = math.pow(beta, step)
    relative = step * UNIT + exponent * (arithmetic.function("log") + 2.0 * UNIT) + arithmetic.function("exp")
    return relative * power / (1.0 - power) + UNIT


def adamw_bound(
    before: Step, gradient: Tensor, step: float, allowed: Step, arithmetic: Arithmetic, *, rate: float = LEARNING_RATE
) -> Step:
    """Error of one step in float32, from `before` and the errors `allowed` to it so far, before any 16-bit rounding.

    With u = 2^-24 and M = b1 |m| + (1 - b1) |g|: each way of writing the mean (interpolation, or two products and a
    sum) makes at most 4 roundings of quantities no larger than M, and the variance 4 of quantities no larger than v',

        dm' = b1 dm + 4 u M + 3 tau,      dv' = b2 dv + 4 u v' + 3 tau

    where tau is underflow. The update s m' / (sqrt(v' / c2) + eps), s = rate / c1, is monotone in each of its parts,
    so it is bounded by its values at the ends of their intervals: m' and v' as above, c1 and c2 within
    `_correction_error`, a division and a square root correct to one unit in the last place (2 u) each, other
    operations to u: together 6 u on the denominator and 6 u on the quotient. The weight is multiplied by the constant
    1 - rate * decay (rounded, product rounded: 2 u |w|) and the difference rounded once,

        dw' = dw + 2 u |w| + u |w'| + du + tau (1 + 1 / eps)

    with du the larger distance of the interval's ends from the exact update; the last term is an underflow of s m'
    ahead of the division. It is the bound of facts on one step (3 [u (|w| + |w'|) + 8 u |update|]) without the
    constants: where weights are zero it holds the update itself.
    """
    tau = torch.finfo(torch.float32).tiny if arithmetic.flushes_subnormals else LEAST
    gradient = gradient.double()
    after = adamw_exactly(before.weight, gradient, before.mean, before.variance, step, rate=rate)
    magnitude = BETAS[0] * before.mean.abs() + (1.0 - BETAS[0]) * gradient.abs()
    mean_error = BETAS[0] * allowed.mean + 4.0 * UNIT * magnitude + 3.0 * tau
    # Flushed gradients below the least normal number lose themselves and their squares.
    variance_error = BETAS[1] * allowed.variance + 4.0 * UNIT * after.variance + 3.0 * tau
    corrections = [1.0 - beta**step for beta in BETAS]
    errors = [_correction_error(beta, step, arithmetic) for beta in BETAS]

    def denominator(variance: Tensor, correction: float) -> Tensor:
        return (variance.clamp(min=0.0) / correction).sqrt() + EPSILON

    exact = rate / corrections[0] * after.mean / denominator(after.variance, corrections[1])
    least = denominator(after.variance - variance_error, corrections[1] * (1.0 + errors[1])) * (1.0 - 6.0 * UNIT)
    most = denominator(after.variance + variance_error, corrections[1] * (1.0 - errors[1])) * (1.0 + 6.0 * UNIT)
    small = rate / corrections[0] * (1.0 - errors[0] - 6.0 * UNIT)
    large = rate / corrections[0] * (1.0 + errors[0] + 6.0 * UNIT)
    size = exact.abs()
    high = large * (after.mean.abs() + mean_error) / least
    low = after.mean.abs() - mean_error
    low = torch.where(low >= 0.0, small * low / most, large * low / least)
    update_error = torch.maximum(high - size, size - low)
    weight_error = (
        allowed.weight
        + UNIT * (2.0 * before.weight.abs() + after.weight.abs())
        + update_error
        + tau * (1.0 + 1.0 / EPSILON)
    )
    return Step(weight_error, mean_error, variance_error)
