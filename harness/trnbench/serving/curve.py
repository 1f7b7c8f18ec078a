"""The latency-throughput curve: load points from light load to beyond the highest valid rate, because one misleads.

A point is a LoadGen test like any other, shorter than one that is judged: it shows latencies at a load, as far up the
tail as its queries carry, and takes seconds also where few requests arrive.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from trnbench.serving.settings import Test

FRACTIONS = (0.15, 0.35, 0.55, 0.75, 0.9, 1.0, 1.15)
"""Loads as shares of the highest valid rate; the last one lies beyond it."""


class PointRules(msgspec.Struct, frozen=True, kw_only=True):
    """How long a point lasts: `seconds` of arrivals, but at least `least_queries` and at most `most_queries`."""

    seconds: float
    least_queries: int
    most_queries: int


POINT_RULES = {
    "quick": PointRules(seconds=1.5, least_queries=64, most_queries=459),
    "full": PointRules(seconds=120.0, least_queries=459, most_queries=24_576),
}
"""By profile. 459 queries carry a p99, 64 a p90, fewer the median (`records.schema.LEAST_COUNT`)."""


def point_tests(test: Test, rate: float, rules: PointRules) -> list[Test]:
    """The tests of all load points, lightest first, like `test` in all but rate and length.

    `rate` is the highest valid one, in queries per second.
    """
    return [_point(test, fraction * rate, rules) for fraction in FRACTIONS]


def _point(test: Test, rate: float, rules: PointRules) -> Test:
    queries = min(max(math.ceil(rate * rules.seconds), rules.least_queries), rules.most_queries)
    # Not padded to whole passes over the library, which would multiply the few queries of a light load.
    return msgspec.structs.replace(
        test, rate=rate, least_queries=queries, least_seconds=0.0, even=False, logged_samples=0, most_waiting=0
    )
