"""What is read beside a run: waits and compiles of its warm-up, differences of counters, whether a time can be true."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from trnbench.records.schema import Compile, WarmupStep
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from trnbench.backends.base import Backend
    from trnbench.device import Counters

Clock = Callable[[], float]
Number = TypeVar("Number", int, float)

CLOCK_TOLERANCE = 1e-6
"""Relative and absolute (seconds) slack for the difference of two readings around the same work."""


class Waits:
    """The backend's wait, as a learner calls it; between `start` and `stop` it notes every wait as a warm-up step."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend, self._clock = backend, clock
        self._noting = False
        self._steps: list[WarmupStep] = []
        self._since = 0.0
        self._compiles: int | None = None

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
            since, compiles = self._since, self._compiles
            self._mark()
            step = WarmupStep(seconds=self._since - since, compiles=difference(self._compiles, compiles))
            self._steps.append(step)

    def _mark(self) -> None:
        self._since, self._compiles = self._clock(), self._backend.counters().compiles


def difference(after: Number | None, before: Number | None) -> Number | None:
    """`after - before`, None where either is not known."""
    return None if after is None or before is None else after - before


def new_fallbacks(after: Counters, before: Counters) -> dict[str, int]:
    """Operators that left the device between two readings, with how often."""
    counts = {name: total - before.fallbacks.get(name, 0) for name, total in after.fallbacks.items()}
    return {name: count for name, count in counts.items() if count > 0}


def compilation(backend: Backend, before: Counters, after: Counters, warmup: Sequence[WarmupStep]) -> Compile:
    """What was compiled between two readings; `warmup` is what was waited for between them.

    Raises `CaseError` (`FAILED`) for a backend that describes its compile cache in a word that is none.
    """
    state = backend.compile_cache_state()
    if state not in ("cold", "warm", "none", None):
        raise CaseError(Status.FAILED, f"backend {backend.name} reports compile cache state {state!r}")
    return Compile(
        count=difference(after.compiles, before.compiles),
        seconds=difference(after.compile_seconds, before.compile_seconds),
        first_step_seconds=warmup[0].seconds,
        cache=cast('Literal["cold", "warm", "none"] | None', state),
    )


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


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's cyclic garbage collector out of the runs, and restore it as it was."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
