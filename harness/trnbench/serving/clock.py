"""The timer that pytest-benchmark is given for served cases: it moves by LoadGen's metric and by nothing else.

The wall time of a LoadGen test is its least duration plus start-up and logs; it stays the same however fast the system
is. So one round is one test, and its time is the scenario's metric in seconds. A plain function, because
pytest-benchmark writes the timer's name into its files and an object has none that stays the same.
"""

from __future__ import annotations

import math

from trnbench.status import CaseError, Status

_NOW = [0.0]


def loadgen_clock() -> float:
    """Seconds of LoadGen's metric that all rounds of this process add up to."""
    return _NOW[0]


def advance(seconds: float) -> None:
    """Move the clock. Raises `CaseError` (`INVALID`) for what is no duration: not finite, or not above 0."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise CaseError(Status.INVALID, f"no valid samples: LoadGen's metric is {seconds} s, which is no duration")
    _NOW[0] += seconds
