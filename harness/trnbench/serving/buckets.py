"""Bucket sizes as data: the few shapes that serving may run, all of which are warmed before the clock starts."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import msgspec

from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.case import Case

MOST_COMPILED = 8
"""Most shapes of one function in compiled mode: TorchDynamo's own limit, and each costs seconds of warm-up."""

LARGEST_GROUP = 4
"""Most prompts of one prefill while answers are being decoded: a larger group would hold up every one of them."""

ALIGNMENT = 8
"""Lengths between the shortest and the longest are rounded up to a multiple of this."""

SPREAD = {"eager": 4, "compiled": 2}
"""Number of lengths of a kind, by mode."""

LEAST_COMPILED = 128
"""Tokens up to which one length is enough in compiled mode: padding costs less there than one more compilation."""


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """Allowed sizes, each tuple ascending.

    A decode step runs `rows` x `contexts` (sequences, cache slots that attention reads), a prefill `prompts` x
    `lengths` (prompts, padded tokens each). `rows` and `contexts` are empty for scoring, which decodes nothing.
    """

    rows: tuple[int, ...]
    contexts: tuple[int, ...]
    prompts: tuple[int, ...]
    lengths: tuple[int, ...]

    def decode_shapes(self) -> list[tuple[int, int]]:
        """Every (rows, context)."""
        return list(product(self.rows, self.contexts))

    def prefill_shapes(self) -> list[tuple[int, int]]:
        """Every (prompts, length)."""
        return list(product(self.prompts, self.lengths))


def plan(case: Case) -> Buckets:
    """The buckets of a serving or scoring case: all powers of two where a shape is free, few where it is compiled."""
    serving = case.new_tokens > 0
    shortest = (case.sequence + 1) // 2
    slots = case.sequence + case.new_tokens
    return Buckets(
        rows=_counts(case.batch, case.mode) if serving else (),
        contexts=_spread(shortest, slots, case.mode) if serving else (),
        prompts=_counts(min(case.batch, LARGEST_GROUP) if serving else case.batch, case.mode),
        lengths=_spread(shortest, case.sequence, case.mode),
    )


def one_at_a_time(buckets: Buckets) -> Buckets:
    """The same lengths for a single sequence: what decoding without any batching may use."""
    return msgspec.structs.replace(buckets, rows=buckets.rows[:1], prompts=buckets.prompts[:1])


def smallest(sizes: Sequence[int], needed: int, what: str) -> int:
    """The smallest of the ascending `sizes` that holds `needed`; `CaseError(INVALID)` where none does."""
    for size in sizes:
        if size >= needed:
            return size
    largest = sizes[-1] if sizes else 0
    raise CaseError(Status.INVALID, f"{what}: {needed} is more than the largest warmed bucket, {largest}")


def _counts(most: int, mode: str) -> tuple[int, ...]:
    """1, 2, 4, ... and `most` itself; in compiled mode only 1, 4 and `most`."""
    powers = [1, 4] if mode == "compiled" else [1 << power for power in range(most.bit_length())]
    return tuple(sorted({*(size for size in powers if size < most), most}))


def _spread(least: int, most: int, mode: str) -> tuple[int, ...]:
    """Sizes evenly spread over (least, most], rounded up to a multiple of `ALIGNMENT`, the last one `most`."""
    parts = 1 if mode == "compiled" and most <= LEAST_COMPILED else SPREAD[mode]
    exact = [most - (most - least) * part // parts for part in range(parts)]
    aligned = {min(most, -(-size // ALIGNMENT) * ALIGNMENT) for size in exact}
    return tuple(sorted(aligned))
