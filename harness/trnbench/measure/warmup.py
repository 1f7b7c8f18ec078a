"""Warm-up: at least a few steps, then until no step compiles, within a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.schema import WarmupStep

if TYPE_CHECKING:
    from collections.abc import Callable


MIN_WARMUP = 3
"""First the compile, then the recompile that optimizer state or donated buffers cause, then one clean step."""

MAX_WARMUP = 20


class Warmup(msgspec.Struct, frozen=True, kw_only=True):
    """The untimed steps in order, and whether the last one compiled nothing, as far as the backend can tell."""

    steps: list[WarmupStep]
    settled: bool


def warm_up(step: Callable[[], WarmupStep], min_steps: int = MIN_WARMUP, max_steps: int = MAX_WARMUP) -> Warmup:
    """Call `step`, which runs and describes one step, until the device has stopped compiling.

    Where compiles cannot be counted, `min_steps` steps run. Whoever calls decides what an unsettled warm-up means.
    """
    steps: list[WarmupStep] = []
    while True:
        steps.append(step())
        if len(steps) >= min_steps and not steps[-1].compiles:
            return Warmup(steps=steps, settled=True)
        if len(steps) >= max_steps:
            return Warmup(steps=steps, settled=False)
