"""The query sample library: prompts of unequal length from a seed, each with its own limit of new tokens."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from trnbench.serving.text_samples import has_text, text_prompts
from trnbench.status import UsageError
from trnbench.workloads.data import raw_bits, token_batch

if TYPE_CHECKING:
    from trnbench.workloads.presets import Preset

LEAST_TOKENS = 2
"""Fewest tokens of an answer: LoadGen's time per output token divides by their number less one."""

_LIMITS = 1
"""Keeps the stream of the limits apart from others of the same seed."""


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of a library, on the host; LoadGen knows them by their index alone.

    `prompts[i]` is int64 [L_i] with L_i between half of the longest and the longest; `limits[i]` is the most tokens
    that an answer may have, 1 in a library for scoring. `stop_token` ends an answer early; None where the weights
    are random and no token means an end. `source` says in words what the prompts are.
    """

    prompts: tuple[npt.NDArray[np.int64], ...]
    limits: tuple[int, ...]
    stop_token: int | None
    source: str

    @property
    def total_count(self) -> int:
        """Number of samples."""
        return len(self.prompts)

    @property
    def digest(self) -> str:
        """SHA-256 over every token, length, limit and the stop token: equal digests are equal libraries."""
        digest = hashlib.sha256(f"{self.stop_token} {list(self.limits)} {[len(p) for p in self.prompts]}".encode())
        for prompt in self.prompts:
            digest.update(prompt.astype("<i8").tobytes())
        return digest.hexdigest()


def draw_samples(preset: Preset, sequence: int, new_tokens: int, count: int, seed: int) -> Samples:
    """`count` samples for a case of longest prompt `sequence` and at most `new_tokens` tokens an answer (0: scoring).

    Lengths and limits are spread evenly over their ranges and dealt out by the seed, so that every library of this
    shape asks for the same number of tokens. Token ids are drawn from the seed alone and are the same on every
    machine; the preset with trained weights gets real text instead, see `text_samples`.

    Raises `UsageError` where a size is out of range, and `CaseError(SKIPPED)` where the text's tokenizer is missing.
    """
    if new_tokens < 0 or 0 < new_tokens < LEAST_TOKENS:
        raise UsageError(
            f"samples: new_tokens is {new_tokens}; it must be at least {LEAST_TOKENS} for serving, or 0 for scoring"
        )
    batch = token_batch(preset.vocab_size, count, sequence, seed)
    lengths = [int(length) for length in batch.lengths]
    limits = _limits(count, new_tokens, seed) if new_tokens else (1,) * count
    if has_text(preset):
        text = text_prompts(lengths, seed)
        return Samples(prompts=text.prompts, limits=limits, stop_token=text.stop_token, source=text.source)
    return Samples(
        prompts=tuple(row[:length].copy() for row, length in zip(batch.tokens, lengths, strict=True)),
        limits=limits,
        stop_token=None,
        source=f"token ids from seed {seed}",
    )


def _limits(count: int, new_tokens: int, seed: int) -> tuple[int, ...]:
    spread = [LEAST_TOKENS + index * (new_tokens - LEAST_TOKENS) // max(count - 1, 1) for index in range(count)]
    if count == 1:
        spread = [new_tokens]
    order = np.argsort(raw_bits(count, (seed, count, new_tokens, _LIMITS)), kind="stable")
    return tuple(spread[index] for index in order)
