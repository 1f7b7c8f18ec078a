"""A look over the system's shoulder: what was asked, what was answered and how long it took, for the audits.

LoadGen's logs hold percentiles and a few answers. Whether every answer is whole, and how long one sample took against
another, only the process that has the system can say.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trnbench.serving.system import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.serving.samples import Samples
    from trnbench.serving.system import Completion, FirstToken, Step, System


class Observed:
    """`system`, with every answer looked at on its way out.

    `ask_instead`, where given, names the samples to ask for in the order of arrival, whatever LoadGen asks for; the
    audits of caching need samples that LoadGen does not know.
    """

    def __init__(self, system: System, samples: Samples, ask_instead: Sequence[int] = ()) -> None:
        self._system = system
        self._samples = samples
        self._ask_instead = ask_instead
        self._open: dict[int, tuple[int, float, int | None]] = {}
        """By response id: the sample's index, when it was asked, and the first token where it has come."""
        self._asked = 0
        self.seconds: list[float] = []
        """From request to answer, in the order of the answers."""
        self.answers = 0
        self.asked_tokens = 0
        """The most tokens that all answers together were allowed."""
        self.faulty = 0
        self.first_fault = ""
        """What is wrong with the first of the `faulty` answers."""

    def submit(self, requests: Sequence[Request]) -> None:
        """Pass the requests on and note when they came."""
        now = time.perf_counter()
        passed = []
        for request in requests:
            index = self._ask_instead[self._asked] if self._ask_instead else request.index
            self._asked += 1
            self._open[request.id] = (index, now, None)
            passed.append(Request(request.id, index))
        self._system.submit(passed)

    def step(self) -> Step:
        """One step of the system; its answers are looked at after their time is taken."""
        step = self._system.step()
        now = time.perf_counter()
        for token in step.first:
            self._note_first(token)
        for completion in step.complete:
            self._note(completion, now)
        return step

    @property
    def busy(self) -> bool:
        """Whether the system is."""
        return self._system.busy

    def _note_first(self, token: FirstToken) -> None:
        if token.id in self._open:
            index, asked, _ = self._open[token.id]
            self._open[token.id] = (index, asked, token.token)

    def _note(self, completion: Completion, now: float) -> None:
        found = self._open.pop(completion.id, None)
        if found is None:
            return  # The link refuses an answer to nothing.
        index, asked, first = found
        self.answers += 1
        self.seconds.append(now - asked)
        self.asked_tokens += self._samples.limits[index]
        fault = answer_fault(completion.tokens, first, self._samples.limits[index], self._samples.stop_token)
        if fault:
            self.faulty += 1
            self.first_fault = self.first_fault or f"sample {index}: {fault}"


def answer_fault(tokens: Sequence[int], first: int | None, limit: int, stop_token: int | None) -> str:
    """What is wrong with an answer in itself, in words; empty where nothing is.

    An answer ends at its `limit` of tokens or with the first `stop_token` that stands at its second place or later,
    since at least two tokens are always produced. `first` is the token that was reported before the answer, None where
    none was.
    """
    if not tokens:
        return "the answer is empty"
    if first is not None and tokens[0] != first:
        return f"the answer begins with token {tokens[0]}, the first token was {first}"
    if len(tokens) > limit:
        return f"the answer has {len(tokens)} tokens, {limit} were allowed"
    if stop_token is not None and stop_token in tokens[1:-1]:
        return "the answer goes on after its end token"
    ended = stop_token is not None and len(tokens) > 1 and tokens[-1] == stop_token
    if len(tokens) < limit and not ended:
        return f"the answer has {len(tokens)} tokens without an end token, {limit} were asked"
    return ""
