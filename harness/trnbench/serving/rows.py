"""The device side of serving: a static key-value cache whose rows are filled and decoded in buckets.

Nothing of a request is in a graph: rows, lengths and positions reach the device as small integer tensors, so that a
bucket is one graph however its rows are occupied. Buckets are cut out of one cache as views `[:rows, :, :context]`;
in-place writes reach the cache through them in eager mode, through `torch.compile` and on torch-xla alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trnbench.serving.buckets import Buckets, smallest
from trnbench.serving.warming import WarmShapes
from trnbench.status import CaseError, Status
from trnbench.workloads.layers import wide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.workloads.decoder import Cache, Decoder


class Group(NamedTuple):
    """Prompts of one prefill, all int64 on the device: `tokens` [P, T], `lengths` [P], and the cache `rows` [P]."""

    tokens: Tensor
    lengths: Tensor
    rows: Tensor


class Rows:
    """A model, its cache of as many rows as the largest bucket, and the last token of every row.

    One more row, the scratch row, takes what padded members of a prefill group write. Rows without a request are
    computed along with the others inside a bucket: they write slot 0 of their own row, which the next prefill of
    that row overwrites, and no operation mixes rows.

    The case gives precision, mode and the cache's slots. The caller keeps `backend.numerics` in force. `stop_token` is
    never chosen as an answer's first token, so that every answer has at least two (Hugging Face calls this
    `min_new_tokens`).
    """

    def __init__(
        self, model: Decoder, backend: Backend, buckets: Buckets, case: Case, *, stop_token: int | None
    ) -> None:
        self.buckets = buckets
        self.precision = case.precision
        self.count = buckets.rows[-1]
        self._backend, self._device = backend, backend.device
        self._cache = model.new_cache(self.count + 1, case.sequence + case.new_tokens)
        self._tokens = torch.zeros(self.count + 1, dtype=torch.int64).to(self._device)
        barred = torch.zeros(model.preset.vocab_size, dtype=wide(model.compute_dtype))
        if stop_token is not None:
            barred[stop_token] = torch.finfo(barred.dtype).min
        self._barred = barred.to(self._device)
        self._logits: Tensor | None = None
        self._shapes = WarmShapes()

        def run_prefill(group: Group, last: Tensor, barred: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
            return prefill_rows(model, group, last, barred, cache)

        def run_decode(positions: Tensor, last: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
            return decode_rows(model, positions, last, cache)

        self._prefill = backend.compile(run_prefill, case.mode)
        self._decode = backend.compile(run_decode, case.mode)
        # On a lazy device the first step must already start from stored tensors, as all later ones do.
        backend.materialize([self._tokens, self._barred, *(tensor for layer in self._cache for tensor in layer)])

    def warm(self) -> None:
        """Run every bucket until none compiles any more; the rows' content is lost."""
        self._shapes.warm(self._backend, self._run_every_shape)

    def _run_every_shape(self) -> None:
        for prompts, length in self.buckets.prefill_shapes():
            # All into the scratch row: the number of prompts, and not of rows, makes the shape.
            self._run_prefill([np.zeros(length, dtype=np.int64)] * prompts, [self.count] * prompts)
        for rows, context in self.buckets.decode_shapes():
            self._run_decode({rows - 1: context - 1})

    def require_warm(self) -> None:
        """Raises `CaseError(INVALID)` before `warm`."""
        self._shapes.require()

    @property
    def logits(self) -> Tensor:
        """float [bucket, vocab_size] of the last prefill (in the order of its prompts) or decode (in that of rows)."""
        if self._logits is None:
            raise CaseError(Status.INVALID, "no step has run yet, so there are no logits")
        return self._logits

    def prefill(self, prompts: Sequence[npt.NDArray[np.int64]], rows: Sequence[int]) -> list[int]:
        """Fill `rows` with `prompts`, each int64 [L_i]; returns the first token of each answer, read to the host.

        Raises `CaseError(INVALID)` where the group is larger than every bucket, or a row does not exist.
        """
        if any(not 0 <= row < self.count for row in rows) or len(set(rows)) != len(prompts):
            raise CaseError(
                Status.INVALID, f"rows {list(rows)} do not fit {len(prompts)} prompts and {self.count} rows"
            )
        last = self._run_prefill(prompts, rows)
        return [last[row] for row in rows]

    def decode(self, positions: Mapping[int, int]) -> dict[int, int]:
        """One more token for every row of `positions`, whose last token goes to that cache slot; read to the host.

        Raises `CaseError(INVALID)` where a row or position is beyond every bucket.
        """
        last = self._run_decode(positions)
        return {row: last[row] for row in positions}

    def feed(self, tokens: Mapping[int, int]) -> None:
        """Replace the last tokens of all rows, as teacher forcing does; rows that are not named get token 0."""
        self._tokens = self._to_device([tokens.get(row, 0) for row in range(self.count + 1)])

    def _run_prefill(self, prompts: Sequence[npt.NDArray[np.int64]], rows: Sequence[int]) -> list[int]:
        count = smallest(self.buckets.prompts, len(prompts), "prompts of one prefill")
        length = smallest(self.buckets.lengths, max(len(prompt) for prompt in prompts), "prompt length")
        self._shapes.meet(("prefill", count, length))
        padded, lengths = padded_prompts(prompts, count, length)
        targets = [*rows, *[self.count] * (count - len(rows))]
        group = Group(self._to_device(padded), self._to_device(lengths), self._to_device(targets))
        self._tokens, self._logits = self._prefill(group, self._tokens, self._barred, self._cache)
        return self._read_tokens()

    def _run_decode(self, positions: Mapping[int, int]) -> list[int]:
        count = smallest(self.buckets.rows, max(positions) + 1, "rows of one decode step")
        context = smallest(self.buckets.contexts, max(positions.values()) + 1, "cache slots")
        self._shapes.meet(("decode", count, context))
        views = [(keys[:count, :, :context], values[:count, :, :context]) for keys, values in self._cache]
        at = self._to_device([positions.get(row, 0) for row in range(count)])
        self._tokens, self._logits = self._decode(at, self._tokens, views)
        return self._read_tokens()

    def _read_tokens(self) -> list[int]:
        """The last token of every row, once the whole step has run: this read is the wait."""
        self._backend.materialize([self._tokens])
        tokens: list[int] = self._tokens.cpu().tolist()
        return tokens

    def _to_device(self, values: Sequence[int] | npt.NDArray[np.int64]) -> Tensor:
        # Copied from the host each time: a lazy device would make constants of a graph out of anything else.
        return torch.from_numpy(np.asarray(values, dtype=np.int64)).to(self._device)


@torch.no_grad()
def prefill_rows(model: Decoder, group: Group, last: Tensor, barred: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
    """The group's prompts into its rows of `cache` -> last token of every row, logits [P, vocab_size].

    The group runs on a cache of its own and is then copied: a prefill writes neighbouring rows, and free rows are
    seldom neighbours. `last` is [rows]; `barred` [vocab_size] is added to the logits.
    """
    prompts, length = group.tokens.shape
    staged = model.new_cache(prompts, length)
    logits = model.prefill(group.tokens, group.lengths, staged) + barred
    for (keys, values), (new_keys, new_values) in zip(cache, staged, strict=True):
        keys[:, :, :length].index_copy_(0, group.rows, new_keys)
        values[:, :, :length].index_copy_(0, group.rows, new_values)
    return last.index_copy(0, group.rows, logits.argmax(-1)), logits


@torch.no_grad()
def decode_rows(model: Decoder, positions: Tensor, last: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
    """One step of the first B rows at `positions` [B] -> last token of every row, logits [B, vocab_size].

    `cache` is cut to B rows and to the slots that attention reads.
    """
    count = positions.shape[0]
    logits = model.decode(last[:count], positions, cache)
    return torch.cat((logits.argmax(-1), last[count:])), logits


def padded_prompts(
    prompts: Sequence[npt.NDArray[np.int64]], count: int, length: int
) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Prompts as int64 [count, length], padded on the right, and their lengths; missing prompts have length 1."""
    padded = np.zeros((count, length), dtype=np.int64)
    for row, prompt in zip(padded, prompts, strict=False):
        row[: len(prompt)] = prompt
    return padded, [*(len(prompt) for prompt in prompts), *[1] * (count - len(prompts))]
