"""The highest rate of arrivals at which a system still answers in time, by bisection.

MLPerf(R) Inference's Server scenario reports the highest Poisson rate whose run is valid, and leaves the search to the
submitter (inference_rules.adoc, "Scenarios"). Here it is part of the measurement, with a stated precision.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_SHARE = 0.95
"""Share of the rate without arrivals to wait for at which the search begins: a first guess, no limit."""

MOST_SHARE = 2.0
"""The highest rate that is offered, as a share of the same: nothing answers for long faster than it can work, but a
short calibration whose last batch is half empty shows too little."""

LEAST_SHARE = 1 / 64
"""Below this share of it the system counts as never valid, or earlier, where a run would take too long."""

FIRST_STEP = 1.21
"""Factor to the second rate; until the bracket is closed, each further step is the square of the one before."""

CONFIRMATIONS = 2
"""So many runs must miss the limits at the upper end of the final bracket: one miss may be the host's hiccup."""


class Bounds(NamedTuple):
    """Rates per second between which is searched, and the relative `precision` of the result."""

    first: float
    least: float
    most: float
    precision: float
    trials: int
    """At most so many runs."""


class Found(NamedTuple):
    """How a search ended.

    `rate` is the highest one that was valid, None where none was. `above` is the lowest rate over it that was not, None
    where none was tried in vain. `said` is one sentence for the record.
    """

    end: Literal["bracketed", "always valid", "never valid", "out of trials"]
    rate: float | None
    above: float | None
    trials: int
    said: str


def bounds_from(capacity: float, precision: float, trials: int, least: float = 0.0) -> Bounds:
    """Bounds around `capacity`, the samples a second that the system completes when it never waits for arrivals.

    No rate below `least` is tried, unless half of the first one lies below it already. Raises `UsageError` for a
    capacity or precision that is not positive and finite.
    """
    for name, value in (("capacity", capacity), ("precision", precision)):
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"the {name} of a search for the highest rate is {value}; it must be positive and finite")
    return Bounds(
        first=FIRST_SHARE * capacity,
        least=min(max(LEAST_SHARE * capacity, least), FIRST_SHARE * capacity / 2),
        most=MOST_SHARE * capacity,
        precision=precision,
        trials=trials,
    )


def highest_valid_rate(trial: Callable[[float], bool], bounds: Bounds) -> Found:
    """The highest rate at which `trial` holds, to within a factor of 1 + `bounds.precision`.

    Every step narrows the bracket between the highest rate that held and the lowest rate above it that did not. For a
    system that holds exactly up to a limit L the result lies in [L / (1 + precision), L]; where the limit of a single
    run strays between L1 and L2, in [L1 / (1 + precision), L2]. The upper end of the last bracket is tried again, and
    where it holds then, the search goes on above it. Raises what `trial` raises.
    """
    history = _History(bounds.precision)
    for count in range(1, bounds.trials + 1):
        rate = history.next_rate(bounds)
        if rate is None:
            return history.ended(bounds, count - 1)
        history.add(rate, trial(rate))
    return history.ended(bounds, bounds.trials)


def _step(tried: int) -> float:
    """Factor from the last rate to the next one after so many on the same side of the limit."""
    return math.pow(FIRST_STEP, 2 ** min(tried - 1, 6))


class _History:
    """What was tried so far."""

    def __init__(self, precision: float) -> None:
        self._precision = precision
        self._valid: list[float] = []
        self._missed: dict[float, int] = {}

    def add(self, rate: float, valid: bool) -> None:
        if valid:
            self._valid.append(rate)
        else:
            self._missed[rate] = self._missed.get(rate, 0) + 1

    @property
    def low(self) -> float | None:
        return max(self._valid, default=None)

    @property
    def high(self) -> float | None:
        """The lowest rate that was missed above every one that held; misses below those were hiccups."""
        low = self.low or 0.0
        return min((rate for rate in self._missed if rate > low), default=None)

    def next_rate(self, bounds: Bounds) -> float | None:
        """The rate to try next, None where the search is at its end."""
        low, high = self.low, self.high
        if low is None and high is None:
            return bounds.first
        if low is None:
            assert high is not None
            if high > bounds.least:
                return max(high / _step(len(self._missed)), bounds.least)
            return self._unconfirmed(high)
        if high is None:
            # A miss that did not repeat says that the limit is near.
            steps = 1 if self._missed else len(self._valid)
            return min(low * _step(steps), bounds.most) if low < bounds.most else None
        if self._doubtful(low):
            # Rates above it that were missed in the same moments deserve a second run before anything finer.
            return self._unconfirmed(high) or self._between(low, high)
        return self._between(low, high) or self._unconfirmed(high)

    def _doubtful(self, low: float) -> bool:
        """Whether a rate was missed that holds, or lies below one that does: the host was disturbed meanwhile."""
        return any(rate <= low for rate in self._missed)

    def _between(self, low: float, high: float) -> float | None:
        return None if self._tight(low, high) else math.sqrt(low * high)

    def _tight(self, low: float, high: float) -> bool:
        return high <= low * (1 + self._precision)

    def _unconfirmed(self, high: float) -> float | None:
        return high if self._missed[high] < CONFIRMATIONS else None

    def ended(self, bounds: Bounds, trials: int) -> Found:
        low, high = self.low, self.high
        if low is None:
            tried = f"{trials} runs between {bounds.first:.4g} and {high or bounds.first:.4g} requests a second"
            return Found("never valid", None, high, trials, f"no rate was valid: {tried} all missed the limits")
        if high is None:
            if low >= bounds.most:
                said = f"valid at {low:.4g} requests a second, the highest rate offered: the limit lies above it"
                return Found("always valid", low, None, trials, said)
        elif self._tight(low, high) and self.next_rate(bounds) is None:
            said = f"valid at {low:.4g} and not at {high:.4g} requests a second, {trials} runs"
            return Found("bracketed", low, high, trials, said)
        upper = "nothing higher was tried" if high is None else f"not at {high:.4g}"
        said = f"the search stopped after {trials} runs: valid at {low:.4g} requests a second, {upper}"
        return Found("out of trials", low, high, trials, said)


def runs_needed(bounds: Bounds) -> int:
    """So many trials suffice for any system that holds exactly up to one limit."""
    down, rate = 0, bounds.first
    while rate > bounds.least:
        down += 1
        rate = max(rate / _step(down), bounds.least)
    up, rate = 0, bounds.first
    while rate < bounds.most:
        up += 1
        rate = min(rate * _step(up), bounds.most)
    widest = max(_step(steps) for steps in (down, up) if steps)
    halvings = math.ceil(math.log2(math.log(widest) / math.log(1 + bounds.precision)))
    return 1 + max(down, up) + max(halvings, 0) + CONFIRMATIONS - 1
