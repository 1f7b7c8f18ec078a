"""Time to first token: one prefill and one token for the whole batch, timed apart from the decoding rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.measure.warmup import MAX_WARMUP
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.backends.base import Backend
    from trnbench.measure.settle import Settle
    from trnbench.workloads.program import Program

MOST_REPETITIONS = 10
LEAST_WARMUP = 2


def first_token_seconds(
    backend: Backend, program: Program, settle: Settle, clock: Callable[[], float], repetitions: int
) -> dict[str, list[float]]:
    """`{"ttft_seconds": [...]}` with up to ten repetitions, or an empty dict for a program that has no first token.

    Warms up until nothing compiles. Raises `CaseError` (`INVALID`) if a timed repetition compiles all the same, or
    the warm-up never settles: the prefill belongs to the case, so its faults are the case's.
    """
    first_token = program.time_to_first_token(backend.materialize)
    if first_token is None:
        return {}

    def timed() -> tuple[float, int]:
        settle()
        before = backend.counters()
        start = clock()
        first_token()
        seconds = clock() - start
        return seconds, backend.counters().since(before).compiles or 0

    for count in range(1, MAX_WARMUP + 1):
        _, compiles = timed()
        if count >= LEAST_WARMUP and not compiles:
            break
    else:
        raise CaseError(Status.INVALID, f"recompiled: the first token still compiles after {MAX_WARMUP} tries")

    values = []
    for index in range(1, min(repetitions, MOST_REPETITIONS) + 1):
        seconds, compiles = timed()
        if compiles:
            raise CaseError(Status.INVALID, f"recompiled: repetition {index} of the first token compiled {compiles}x")
        values.append(seconds)
    return {"ttft_seconds": values}
