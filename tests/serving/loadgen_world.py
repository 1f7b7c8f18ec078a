"""Systems under test for a real LoadGen: a good one, and one for each thing that a system can do wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from trnbench.serving.profiles import Limits
from trnbench.serving.settings import Test
from trnbench.serving.system import Completion, FirstToken, Request, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLES = 12
WIDE = Limits(ttft=30.0, tpot=30.0, answer=30.0, source="as good as none")


def answer(index: int) -> list[int]:
    """What sample `index` is answered with: 2 to 5 tokens."""
    return [1000 * index + step for step in range(2 + index % 4)]


class Echo:
    """Answers by sample index, all that is queued at once: a first token in one step, the rest in the next one."""

    def __init__(self, *, tokens: bool = True, pause: float = 0.0) -> None:
        self._tokens = tokens
        self._pause = pause
        self._queued: list[Request] = []
        self._running: list[Request] = []

    def submit(self, requests: Sequence[Request]) -> None:
        self._queued.extend(requests)

    def step(self) -> Step:
        time.sleep(self._pause)
        done, self._running, self._queued = self._running, self._queued, []
        first = [FirstToken(request.id, answer(request.index)[0]) for request in self._running]
        complete = [Completion(request.id, self.tokens_of(request)) for request in done]
        return Step(first if self._tokens else [], complete)

    def tokens_of(self, request: Request) -> list[int]:
        return answer(request.index) if self._tokens else answer(request.index)[-1:]

    @property
    def busy(self) -> bool:
        return bool(self._queued or self._running)


def single_stream(**changes: Any) -> Test:
    """64 queries, one after the other."""
    given: dict[str, Any] = {
        "scenario": "single_stream",
        "mode": "performance",
        "token_latencies": True,
        "samples": SAMPLES,
        "least_queries": 64,
        "expected_latency": 0.001,
        "even": False,
    }
    return Test(**{**given, **changes})


def server(**changes: Any) -> Test:
    """459 queries in about half a second."""
    given: dict[str, Any] = {
        "scenario": "server",
        "mode": "performance",
        "token_latencies": True,
        "samples": SAMPLES,
        "least_queries": 459,
        "rate": 900.0,
        "latency_limits": WIDE,
        "even": False,
    }
    return Test(**{**given, **changes})


def accuracy(**changes: Any) -> Test:
    """Every sample once, answers logged."""
    given: dict[str, Any] = {"scenario": "offline", "mode": "accuracy", "token_latencies": True, "samples": SAMPLES}
    return Test(**{**given, **changes})


class Children(list[subprocess.Popen[bytes]]):
    """Processes that were started, in order."""

    def signal_last(self, number: signal.Signals) -> None:
        """Send a signal that the process cannot have seen coming; wait until it stands still where that is asked."""
        os.kill(self[-1].pid, number)
        if number == signal.SIGSTOP:
            os.waitpid(self[-1].pid, os.WUNTRACED)

    def all_gone(self) -> bool:
        """Whether every one has ended and been waited for."""
        return bool(self) and all(child.returncode is not None for child in self)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Children:
    """Every process started during the test."""
    started = Children()

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr("trnbench.serving.process.subprocess.Popen", Noted)
    return started
