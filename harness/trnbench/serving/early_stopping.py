"""How many queries a percentile needs, and the estimate that so many support.

A test of n queries stands for an endless stream of which a share p is fast enough. If only p were, the number of slow
ones among n would follow the binomial distribution with n trials and probability 1 - p. The claim "at least p are
fast" holds with confidence c as long as so few slow ones as were seen would then have probability less than 1 - c.
Source: MLCommons inference_rules.adoc, appendix "Early Stopping Criterion", with c = 0.99 and tolerance 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scipy.stats import binom

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.99


def supported(queries: int, misses: int, percentile: float, confidence: float = CONFIDENCE) -> bool:
    """Whether `misses` slow ones among `queries` still show that a share `percentile` (0 to 1) is fast."""
    return bool(binom.cdf(misses, queries, 1 - percentile) < 1 - confidence)


def queries_needed(percentile: float, misses: int = 0, confidence: float = CONFIDENCE) -> int:
    """The fewest queries with which `misses` slow ones are few enough: 459 for the 0.99 with none, 64 for 0.9 with one.

    An estimate of the percentile itself needs `misses=1`, since the slowest query bounds nothing from above.
    """
    high = misses + 1
    while not supported(high, misses, percentile, confidence):
        high *= 2
    low = misses
    while high - low > 1:
        middle = (low + high) // 2
        if supported(middle, misses, percentile, confidence):
            high = middle
        else:
            low = middle
    return high


def misses_allowed(queries: int, percentile: float, confidence: float = CONFIDENCE) -> int | None:
    """The most slow ones among `queries` that are still few enough; None where even none are too many."""
    if not supported(queries, 0, percentile, confidence):
        return None
    low, high = 0, queries
    while high - low > 1:
        middle = (low + high) // 2
        if supported(queries, middle, percentile, confidence):
            low = middle
        else:
            high = middle
    return low


def estimate(latencies: Sequence[float], percentile: float, confidence: float = CONFIDENCE) -> float | None:
    """An upper bound of the percentile that holds with `confidence`; None where the latencies are too few.

    With t misses allowed it is the t-th largest latency, so that exactly t queries took at least as long.
    """
    allowed = misses_allowed(len(latencies), percentile, confidence)
    if not allowed:
        return None
    return sorted(latencies)[len(latencies) - allowed]
