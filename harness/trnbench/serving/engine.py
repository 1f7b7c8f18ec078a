"""Continuous batching: requests join and leave a running batch between decode steps (Orca, OSDI 2022, section 3)."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

from trnbench.serving.system import Completion, FirstToken, Request, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.serving.rows import Rows
    from trnbench.serving.samples import Samples


class _Answer:
    """A request in a row: the tokens produced so far; the last of them goes to cache slot `position` next."""

    def __init__(self, request: Request, prompt_length: int, first: int) -> None:
        self.request = request
        self.position = prompt_length
        self.tokens = [first]


class Engine:
    """A serving system: first come, first served, into the lowest free row, greedy decoding.

    While both new and running requests are there, prefills of a group and decode steps take turns, so neither a
    full queue nor a full batch holds up the other. An answer ends with the samples' stop token, which counts as
    produced, or at its sample's limit. With `continuous` False one request is decoded at a time: the other side of
    the comparison that shows what batching brings.
    """

    def __init__(self, rows: Rows, samples: Samples, *, continuous: bool = True) -> None:
        self.rows = rows
        self.samples = samples
        self.continuous = continuous
        self._waiting: deque[Request] = deque()
        self._running: dict[int, _Answer] = {}
        self._free = list(range(rows.count))
        self._decode_is_due = False

    def warm(self) -> None:
        """Run every bucket before the clock starts; see `Rows.warm`."""
        self.rows.warm()

    @property
    def busy(self) -> bool:
        """Whether any request is queued or running."""
        return bool(self._waiting or self._running)

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue the requests."""
        self._waiting.extend(requests)

    def step(self) -> Step:
        """Prefill one group of waiting requests, or decode one token of every running one; waits for the device.

        First tokens are returned at once and not after a decode step. Raises `CaseError(INVALID)` before `warm` and
        where a shape would have to run that was not warmed.
        """
        self.rows.require_warm()
        room = len(self._free) if self.continuous else 1 - len(self._running)
        if self._waiting and room and not (self._running and self._decode_is_due):
            self._decode_is_due = True
            return Step(self._admit(room), [])
        self._decode_is_due = False
        return Step([], self._decode() if self._running else [])

    def _admit(self, room: int) -> list[FirstToken]:
        """Prefill the requests that have waited longest, at most as many as there is room for and a group holds."""
        count = min(len(self._waiting), room, self.rows.buckets.prompts[-1])
        group = [self._waiting.popleft() for _ in range(count)]
        prompts = [self.samples.prompts[request.index] for request in group]
        rows = [heapq.heappop(self._free) for _ in group]
        tokens = self.rows.prefill(prompts, rows)
        for request, prompt, row, token in zip(group, prompts, rows, tokens, strict=True):
            self._running[row] = _Answer(request, len(prompt), token)
        return [FirstToken(request.id, token) for request, token in zip(group, tokens, strict=True)]

    def _decode(self) -> list[Completion]:
        """One token more for every running answer; those that end leave their rows."""
        produced = self.rows.decode({row: answer.position for row, answer in self._running.items()})
        complete = []
        for row, token in produced.items():
            answer = self._running[row]
            answer.tokens.append(token)
            answer.position += 1
            at_limit = len(answer.tokens) == self.samples.limits[answer.request.index]
            if at_limit or token == self.samples.stop_token:
                del self._running[row]
                heapq.heappush(self._free, row)
                complete.append(Completion(answer.request.id, answer.tokens))
        return complete
