"""A token source with a known answer: its Bayes-optimal loss is computable exactly, from the tokens themselves.

Every sequence hides which of a few permutation tables it follows. The next token is the table's entry for the last
one, except one time in `NOISE_ONE_IN`, when it is uniform. Single tokens are uniform, and pairs of tokens are a mixture
over all tables, so counting either takes a model to a known loss and no further: it must infer the hidden table from
the context. The source is a hidden Markov model whose hidden state never changes, and the forward filter over that
state (Rabiner, Proceedings of the IEEE 77(2), 1989, section III.A) is the best predictor that there is.

Tokens are decided by `data.raw_bits` and integers alone, so they are the same on every machine. A draw modulo a number
of symbols that is not a power of two favours some symbols by less than one part in 2^58; the floors leave that out.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from trnbench.status import UsageError
from trnbench.workloads.data import NOISE_ONE_IN, TokenBatch, raw_bits

Purpose = Literal["train", "evaluation"]
Tokens = npt.NDArray[np.int64]
Losses = npt.NDArray[np.float64]

_DOMAIN = 0x736F7572
"""Leads every key, so that no key of this source is one of `data.token_batch`."""

_PURPOSES: dict[Purpose, int] = {"train": 1, "evaluation": 2}
_TABLES = 3


def halves(value: int) -> list[int]:
    """`value`, 0 to 2^64 - 1, as two integers below 2^32."""
    # NumPy joins the 32-bit words of a key's integers: without a fixed width two keys could mean the same.
    return [value & 0xFFFFFFFF, value >> 32]


def whole_batch(sequences: Tokens) -> TokenBatch:
    """Sequences [B, T + 1] as B rows of T tokens and the T tokens that follow them, none padded."""
    batch, positions = sequences.shape
    length = positions - 1
    return TokenBatch(
        tokens=np.ascontiguousarray(sequences[:, :-1]),
        targets=np.ascontiguousarray(sequences[:, 1:]),
        lengths=np.full(batch, length, dtype=np.int64),
        real_tokens=batch * length,
        padded_tokens=batch * length,
    )


class TokenSource:
    """`tables` hidden permutations of `symbols` tokens, the same for every seed: they are what there is to learn.

    `rows` is int64 [tables, symbols]: `rows[z, x]` follows x under table z. Raises `UsageError` where there are fewer
    than two symbols or no table.
    """

    def __init__(self, symbols: int, tables: int) -> None:
        for name, value, least in (("symbols", symbols, 2), ("tables", tables, 1)):
            if value < least:
                raise UsageError(f"token source: {name} is {value}; it must be at least {least}")
        self.symbols, self.tables = symbols, tables
        words = raw_bits(tables * symbols, [_DOMAIN, _TABLES, *halves(symbols), *halves(tables)])
        # A stable sort makes ties, however unlikely, the same everywhere.
        self.rows: Tokens = np.argsort(words.reshape(tables, symbols), axis=1, kind="stable").astype(np.int64)

    def sequences(self, purpose: Purpose, seed: int, first: int, count: int, length: int) -> Tokens:
        """Sequences `first` to `first + count` of a seed's endless list, int64 [count, length + 1].

        A sequence depends on purpose, seed, its place in the list and its length, and not on how the list is cut into
        batches. Raises `UsageError` for a seed outside 0 to 2^64 - 1 or sizes below 1.
        """
        if not 0 <= seed < 2**64 or first < 0:
            raise UsageError(f"token source: seed {seed} and place {first} must be from 0 to 2^64 - 1")
        if count < 1 or length < 1:
            raise UsageError(f"token source: {count} sequences of {length} tokens; both must be at least 1")
        keys = [[_DOMAIN, _PURPOSES[purpose], *halves(seed), *halves(first + row), length] for row in range(count)]
        words = np.stack([raw_bits(2 * length + 2, key) for key in keys])
        hidden = (words[:, 0] % np.uint64(self.tables)).astype(np.int64)
        stream = (words[:, 1 : length + 2] % np.uint64(self.symbols)).astype(np.int64)
        is_random = words[:, length + 2 :] % np.uint64(NOISE_ONE_IN) == 0
        for position in range(length):
            follows = self.rows[hidden, stream[:, position]]
            stream[:, position + 1] = np.where(is_random[:, position], stream[:, position + 1], follows)
        return stream

    def bayes_losses(self, sequences: Tokens) -> Losses:
        """Loss in nats of the best predictor at each position, [B, T] for sequences [B, T + 1]: float64, log space.

        Position t is the loss on token t + 1 given tokens 0 to t, where the tables are known and the one in use is not.
        """
        log_hit, log_miss = self._log_probabilities()
        belief = np.full((sequences.shape[0], self.tables), -math.log(self.tables))
        losses = np.empty((sequences.shape[0], sequences.shape[1] - 1))
        for position in range(losses.shape[1]):
            predicted = self.rows[:, sequences[:, position]].T
            belief = belief + np.where(predicted == sequences[:, position + 1, None], log_hit, log_miss)
            evidence = np.logaddexp.reduce(belief, axis=1)
            losses[:, position] = -evidence
            belief -= evidence[:, None]
        return losses

    def bigram_losses(self, sequences: Tokens) -> Losses:
        """Loss in nats, [B, T], of the best predictor that sees the last token alone: the mixture of all tables."""
        return -np.log(self._mixture()[sequences[:, :-1], sequences[:, 1:]])

    def floor(self, sequences: Tokens) -> float:
        """Mean Bayes-optimal loss of these sequences in nats per token: no model can be expected to stay below."""
        return float(self.bayes_losses(sequences).mean())

    def bigram_floor(self, sequences: Tokens) -> float:
        """Mean loss, over the same positions as `floor`, that can be reached from the last token alone."""
        return float(self.bigram_losses(sequences).mean())

    @property
    def unigram_floor(self) -> float:
        """Loss of a predictor without context, ln(symbols): every token is equally frequent at every position."""
        return math.log(self.symbols)

    @property
    def entropy_rate(self) -> float:
        """Mean loss in nats of a predictor that is told the table; what the floor tends to with length."""
        hit, miss = (math.exp(value) for value in self._log_probabilities())
        return -hit * math.log(hit) - (self.symbols - 1) * miss * math.log(miss)

    def expected_floor(self, length: int) -> tuple[float, float]:
        """Bounds of the mean floor over all sequences of `length` tokens, in nats.

        By the chain rule the sum of a sequence's optimal losses is, on average, `length` times the entropy rate plus
        what the sequence tells about its table, which is at least nothing and at most ln(tables).
        """
        return self.entropy_rate, self.entropy_rate + math.log(self.tables) / length

    @property
    def expected_bigram_floor(self) -> float:
        """The mean of `bigram_floor` over all sequences, exactly: the last token is uniform."""
        mixture = self._mixture()
        return float(-(mixture * np.log(mixture)).sum(axis=1).mean())

    def _log_probabilities(self) -> tuple[float, float]:
        """Log probability of the token that the table names, and of any single other one."""
        noise = 1 / (NOISE_ONE_IN * self.symbols)
        return math.log(1 - 1 / NOISE_ONE_IN + noise), math.log(noise)

    def _mixture(self) -> Losses:
        """Probability of each next token [after, next] when every table is equally likely."""
        counts = np.zeros((self.symbols, self.symbols))
        np.add.at(counts, (np.arange(self.symbols)[None, :], self.rows), 1)
        return counts / self.tables * (1 - 1 / NOISE_ONE_IN) + 1 / (NOISE_ONE_IN * self.symbols)
