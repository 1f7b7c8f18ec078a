"""Prefill only: the likeliest next token of each prompt, for scenarios without token generation."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from trnbench.serving.buckets import Buckets, smallest
from trnbench.serving.rows import padded_prompts
from trnbench.serving.system import Completion, Request, Step
from trnbench.serving.warming import WarmShapes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from trnbench.backends.base import Backend
    from trnbench.serving.samples import Samples
    from trnbench.workloads.decoder import Decoder


class Scorer:
    """A serving system that answers each prompt with one token, in batches up to the largest bucket of prompts.

    The caller keeps `backend.numerics` in force.
    """

    def __init__(self, model: Decoder, backend: Backend, buckets: Buckets, mode: str, samples: Samples) -> None:
        self.buckets = buckets
        self.samples = samples
        self._backend = backend
        self._waiting: deque[Request] = deque()
        self._shapes = WarmShapes()

        def run(tokens: Tensor, lengths: Tensor) -> Tensor:
            return score_prompts(model, tokens, lengths)

        self._score = backend.compile(run, mode)

    def warm(self) -> None:
        """Run every bucket until none compiles any more, before the clock starts."""
        self._shapes.warm(self._backend, self._run_every_shape)

    def _run_every_shape(self) -> None:
        for prompts, length in self.buckets.prefill_shapes():
            self._predict([np.zeros(length, dtype=np.int64)] * prompts)

    @property
    def busy(self) -> bool:
        """Whether any request is queued."""
        return bool(self._waiting)

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue the requests."""
        self._waiting.extend(requests)

    def step(self) -> Step:
        """Score the prompts that have waited longest, as many as one batch holds; waits for the device.

        Raises `CaseError(INVALID)` before `warm` and where a prompt is longer than every bucket.
        """
        self._shapes.require()
        count = min(len(self._waiting), self.buckets.prompts[-1])
        if not count:
            return Step([], [])
        group = [self._waiting.popleft() for _ in range(count)]
        tokens = self._predict([self.samples.prompts[request.index] for request in group])
        return Step([], [Completion(request.id, [token]) for request, token in zip(group, tokens, strict=True)])

    def _predict(self, prompts: Sequence[npt.NDArray[np.int64]]) -> list[int]:
        count = smallest(self.buckets.prompts, len(prompts), "prompts of one batch")
        length = smallest(self.buckets.lengths, max(len(prompt) for prompt in prompts), "prompt length")
        self._shapes.meet(("scoring", count, length))
        padded, lengths = padded_prompts(prompts, count, length)
        tokens = self._score(
            torch.from_numpy(padded).to(self._backend.device), torch.tensor(lengths).to(self._backend.device)
        )
        self._backend.materialize([tokens])
        predicted: list[int] = tokens.cpu().tolist()
        return predicted[: len(prompts)]


@torch.no_grad()
def score_prompts(model: Decoder, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Prompts [P, T] of `lengths` [P] -> the likeliest next token of each, int64 [P]."""
    prompts, length = tokens.shape
    return model.prefill(tokens, lengths, model.new_cache(prompts, length)).argmax(-1)
