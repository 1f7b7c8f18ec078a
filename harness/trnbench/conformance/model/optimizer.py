"""One optimizer step, checked on the device's own gradients: the step alone is judged, not what led to it.

AdamW's first step turns a gradient into nearly its sign, so a gradient within its own noise of zero moves the weight
by a full learning rate either way. Comparing updates made from different gradients would measure that, so the
reference repeats the step in float64 from the gradients and weights that the device itself held.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import torch

from trnbench.workloads.training import BETAS, CLIP_NORM, EPSILON, LEARNING_RATE, WEIGHT_DECAY

if TYPE_CHECKING:
    from trnbench.conformance.model.runs import OptimizerResult, Weights

UNIT_ROUNDOFF = 2.0**-24
"""Of float32, the dtype of master weights, gradients and optimizer state."""

CLIP_EPSILON = 1e-6
"""Added to the norm by torch.nn.utils.clip_grad_norm_ before dividing."""

DEVIATIONS = 6.0
"""lambda of the probabilistic bound on an accumulated sum (Higham and Mary, SIAM J. Sci. Comput. 41, 2019)."""


class StepError(msgspec.Struct, frozen=True):
    """Largest error of an updated weight over its own bound, and the parameter that holds it."""

    value: float
    parameter: str


def reference_step(before: Weights, gradients: Weights) -> Weights:
    """Weights after clipping and the first AdamW step (arXiv:1711.05101, algorithm 2), in float64."""
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients.values()))
    shrink = min(1.0, CLIP_NORM / (norm + CLIP_EPSILON))
    after = {}
    for name, weight in before.items():
        gradient = gradients[name] * shrink
        first, second = (1 - BETAS[0]) * gradient, (1 - BETAS[1]) * gradient.square()
        mean, variance = first / (1 - BETAS[0]), second / (1 - BETAS[1])
        after[name] = weight * (1 - LEARNING_RATE * WEIGHT_DECAY) - LEARNING_RATE * mean / (variance.sqrt() + EPSILON)
    return after


def step_error(result: OptimizerResult) -> StepError:
    """Largest |w - w*| over its bound, for w the device's new weights and w* the reference's.

    With u the unit roundoff of float32, the update D = w* - w0 is rounded into a weight twice (decay, step), and is
    itself computed by fewer than 8 rounded operations from a gradient whose clipping factor carries the error of a
    sum of n squares, at most lambda * sqrt(n) * u / 2 relative with near certainty. The bound is

        3 * (u * (|w0| + |w*|) + (8 u + lambda sqrt(n) u / 2) * |D|)

    with 3 covering second-order terms, a division and a square root that are correct to 2 units in the last place
    instead of one half, and the decay term's own rounding.
    """
    expected = reference_step(result.before, result.gradients)
    elements = sum(gradient.numel() for gradient in result.gradients.values())
    relative = (8.0 + DEVIATIONS * math.sqrt(elements) / 2.0) * UNIT_ROUNDOFF
    worst = StepError(value=0.0, parameter="")
    for name, reference in expected.items():
        before, after = result.before[name], result.after[name]
        bound = 3.0 * (UNIT_ROUNDOFF * (before.abs() + reference.abs()) + relative * (reference - before).abs())
        # A weight of zero with a gradient of zero must stay exactly where it is: 0 / 0 is no error.
        error = (after - reference).abs()
        ratio = float(torch.where(error == 0, error, error / bound).max())
        if ratio > worst.value:
            worst = StepError(value=ratio, parameter=name)
    return worst
