"""A system that answers at once, and the issue-delay probe that measures what LoadGen and the link cost by themselves.

In server scenarios latency counts from the moment a query was scheduled, so that a late issue, a busy host or a slow
link would pass for a slow device. The probe runs the same arrivals against nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.serving.link import run_loadgen
from trnbench.serving.settings import RATED
from trnbench.serving.system import Completion, FirstToken, Request, Step
from trnbench.status import CaseError, Status, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trnbench.serving.log import LoadGenResult
    from trnbench.serving.settings import Test

PROBE_QUERIES = 459
"""As many as a p99 needs."""

PROBE_SECONDS = 5.0
LARGEST_SHARE = 0.05
"""Of the latency limit that the probe's p99 may take: ours."""


class NullSystem:
    """Answers every request in the step after it came: zeros, `tokens` of them (1 for scoring)."""

    def __init__(self, tokens: int = 2) -> None:
        self._tokens = [0] * tokens
        self._queue: list[Request] = []

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue the requests."""
        self._queue.extend(requests)

    def step(self) -> Step:
        """Answer all that is queued."""
        ids = [request.id for request in self._queue]
        self._queue.clear()
        return Step([FirstToken(one, 0) for one in ids], [Completion(one, self._tokens) for one in ids])

    @property
    def busy(self) -> bool:
        """Whether a request is queued."""
        return bool(self._queue)


def probe(test: Test, *, folder: Path, timeout: float) -> LoadGenResult:
    """Run the arrivals of a server or interactive `test` against a null system.

    It asks 459 queries at the test's rate, or, where these would take more than 5 s, at the rate at which they do not.
    """
    if test.rate is None or test.scenario not in RATED:
        raise UsageError(f"{test.scenario}: only server and interactive tests have arrivals to probe")
    short = msgspec.structs.replace(
        test,
        rate=max(test.rate, PROBE_QUERIES / PROBE_SECONDS),
        least_queries=PROBE_QUERIES,
        least_seconds=0.0,
        most_queries=0,
        most_seconds=0.0,
        even=False,
        draw="random",
        logged_samples=0,
    )
    return run_loadgen(short, NullSystem(2 if test.token_latencies else 1), folder=folder, timeout=timeout)


def issue_delay(result: LoadGenResult) -> float:
    """The probe's p99 in seconds: of the first token where tokens are timed, of the answer otherwise."""
    return result.latencies["ttft" if "ttft" in result.latencies else "latency"].percentiles["99"]


def refuse_delay(delay: float, test: Test) -> None:
    """Raise `CaseError` (invalid) where the issue delay takes more than 5 % of the latency limit."""
    if test.latency_limits is None:
        raise UsageError(f"{test.scenario}: there is no latency limit to hold the issue delay against")
    name, limit = ("TTFT", test.latency_limits.ttft) if test.token_latencies else ("answer", test.latency_limits.answer)
    if delay > LARGEST_SHARE * limit:
        raise CaseError(
            Status.INVALID,
            f"this host issues queries too late to judge a {name} limit of {limit * 1e3:g} ms: with a system that"
            f" answers at once the p99 is {delay * 1e3:.3g} ms, more than {LARGEST_SHARE:.0%} of it",
        )
