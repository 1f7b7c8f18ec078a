"""Token streams from a seed: the same bits on every machine, no download, sequences of unequal length.

Only NumPy's PCG64 bit generator and integer arithmetic are used. NumPy promises the bit generator's stream for
good, and does not promise that of its distributions (NEP 19), so none of them appears here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

PADDING_TOKEN = 0
"""Token at positions beyond a sequence's length; computed on, never counted as real."""

IGNORED_TARGET = -100
"""Target at padded positions: the default `ignore_index` of torch's cross-entropy."""

NOISE_ONE_IN = 4
"""One token in this many is drawn at random, the others follow from their predecessor.

A model that learns the rule reaches a loss near (ln V + 2.2) / 4 instead of ln V, so training visibly learns.
"""


class TokenBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Right-padded token sequences.

    `tokens` and `targets` are int64 [B, T]; `targets[b, t]` is the token after `tokens[b, t]`, or `IGNORED_TARGET`
    at padding. `lengths` is int64 [B]. `real_tokens` is the sum of the lengths; `padded_tokens` is B x T, padding
    included: what a throughput that counts the shape would divide by time.
    """

    tokens: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    real_tokens: int
    padded_tokens: int


def raw_bits(count: int, key: Sequence[int]) -> npt.NDArray[np.uint64]:
    """`count` random 64-bit words, the same on every machine and NumPy version for the same `key` of integers >= 0."""
    return np.random.PCG64(np.random.SeedSequence(list(key))).random_raw(count)


def length_set(batch: int, sequence: int) -> list[int]:
    """Lengths that every batch of this shape holds, longest first: evenly spread from `sequence` down to half of it.

    Fixed by the shape alone, so every step has the same number of real tokens and rounds can be compared; only
    which sequence has which length depends on the seed. A batch of one is not padded.
    """
    shortest = (sequence + 1) // 2
    return [sequence - index * (sequence - shortest) // max(batch - 1, 1) for index in range(batch)]


def token_batch(vocab_size: int, batch: int, sequence: int, seed: int) -> TokenBatch:
    """Sequences in which the next token is mostly a fixed function of the one before, see `NOISE_ONE_IN`.

    Raises `UsageError` where a size is not positive or the seed is negative.
    """
    for name, value, least in (
        ("vocab_size", vocab_size, 2),
        ("batch", batch, 1),
        ("sequence", sequence, 1),
        ("seed", seed, 0),
    ):
        if value < least:
            raise UsageError(f"token batch: {name} is {value}; it must be at least {least}")

    words = raw_bits(batch * (2 * sequence + 3), (seed, batch, sequence, vocab_size))
    order, words = words[:batch], words[batch:]
    # A stable sort makes ties, however unlikely, the same everywhere.
    lengths = np.array(length_set(batch, sequence), dtype=np.int64)[np.argsort(order, kind="stable")]

    coins, draws = words.reshape(2, batch, sequence + 1)
    stream = (draws % np.uint64(vocab_size)).astype(np.int64)
    is_random = coins % np.uint64(NOISE_ONE_IN) == 0
    is_random[:, 0] = True
    for position in range(1, sequence + 1):
        follows = (5 * stream[:, position - 1] + 7) % vocab_size
        stream[:, position] = np.where(is_random[:, position], stream[:, position], follows)

    is_real = np.arange(sequence) < lengths[:, None]
    return TokenBatch(
        tokens=np.where(is_real, stream[:, :-1], PADDING_TOKEN),
        targets=np.where(is_real, stream[:, 1:], IGNORED_TARGET),
        lengths=lengths,
        real_tokens=int(lengths.sum()),
        padded_tokens=batch * sequence,
    )
