"""Numbers taken from a loss curve. None skips a loss that is not finite: such curves are judged before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

TARGET_SHARE = 0.75
"""Share of the steps within which every fp32 arm reaches the target; the rest is left to slower arms."""

UNIT_ROUNDOFF = 2.0**-24
"""Of float32, in which every precision computes the loss."""

FUNCTION_ERROR = 8.0
"""Relative error of exp and of log in units of the roundoff: 4 units in the last place, as for operators."""


def evaluation_error(vocabulary: int, loss: float) -> float:
    """How far a device may report a mean loss from the loss of its own logits, at every seed in the same direction.

    The cross-entropy is log(sum exp(x - m)) + m - x_t. An exp that is off by a relative e shifts the logarithm by e;
    a log that is off by e shifts it by e times its value, at most ln V; sum, division and rounding to float32 add a
    few roundoffs of the loss. Accumulation order is left out: it differs from seed to seed and is in the floor. This is
    no learning, and no permitted implementation of one host shows it, as all use the host's one exp and log.
    """
    return UNIT_ROUNDOFF * (FUNCTION_ERROR * (1.0 + math.log(vocabulary)) + 3.0 * abs(loss))


def first_bad_step(losses: Sequence[float]) -> int | None:
    """Step, counted from 1, of the first loss that is not finite."""
    return next((step for step, loss in enumerate(losses, start=1) if not math.isfinite(loss)), None)


def final_loss(losses: Sequence[float], window: int) -> float:
    """Mean of the last `window` losses."""
    return float(np.mean(losses[-window:]))


def loss_drop(losses: Sequence[float], window: int) -> float:
    """The first loss, before any training, minus the final one."""
    return losses[0] - final_loss(losses, window)


def smoothed(losses: Sequence[float], window: int) -> npt.NDArray[np.float64]:
    """Means over `window` successive losses, len(losses) - window + 1 of them."""
    return np.convolve(np.asarray(losses, dtype=np.float64), np.full(window, 1.0 / window), mode="valid")


def target_loss(curves: Sequence[Sequence[float]], window: int) -> float:
    """The smoothed loss that the slowest of the fp32 `curves` reaches within `TARGET_SHARE` of its steps."""
    return max(float(smoothed(losses[: int(TARGET_SHARE * len(losses))], window).min()) for losses in curves)


def samples_to_target(losses: Sequence[float], target: float, window: int, batch: int) -> float:
    """Samples (sequences) trained on until the smoothed loss first is at `target`, interpolated between steps.

    Infinite where it never is.
    """
    curve = smoothed(losses, window)
    below = np.flatnonzero(curve <= target)
    if below.size == 0:
        return math.inf
    step = int(below[0])
    if step == 0:
        return float(batch * window)
    overshoot = float((target - curve[step]) / (curve[step - 1] - curve[step]))
    return batch * (step + window - overshoot)
