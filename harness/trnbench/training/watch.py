"""What is read beside a run: waits and compiles of its warm-up, and whether a time can be true."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trnbench.records.schema import WarmupStep
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from trnbench.backends.base import Backend
    from trnbench.records.measured import Clock

CLOCK_TOLERANCE = 1e-6
"""Relative and absolute (seconds) slack for the difference of two readings around the same work."""


class Waits:
    """The backend's wait, as a learner calls it; between `start` and `stop` it notes every wait as a warm-up step."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend, self._clock = backend, clock
        self._noting = False
        self._steps: list[WarmupStep] = []
        self._since = 0.0
        self._counters = backend.counters()

    def start(self) -> None:
        """Begin to note."""
        self._steps, self._noting = [], True
        self._mark()

    def stop(self) -> list[WarmupStep]:
        """The waits since `start`, each with the time and the compiles since the one before."""
        self._noting = False
        return self._steps

    def __call__(self, outputs: Sequence[torch.Tensor]) -> None:
        """Block until the outputs exist."""
        self._backend.materialize(outputs)
        if self._noting:
            since, counters = self._since, self._counters
            self._mark()
            step = WarmupStep(seconds=self._since - since, compiles=self._counters.since(counters).compiles)
            self._steps.append(step)

    def _mark(self) -> None:
        self._since, self._counters = self._clock(), self._backend.counters()


def check_time(timed: float, own: float, name: str) -> None:
    """Refuse a run whose time, taken around it, is no duration or less than the `own` time taken within it.

    Raises `CaseError` (`INVALID`).
    """
    if not (math.isfinite(timed) and timed > 0):
        raise CaseError(Status.INVALID, f"no valid samples: {name} took {timed} s, which is no duration")
    if own > timed * (1 + CLOCK_TOLERANCE) + CLOCK_TOLERANCE:
        raise CaseError(
            Status.INVALID, f"inconsistent timing: {name} took {timed:.6g} s around it and {own:.6g} s within it"
        )
