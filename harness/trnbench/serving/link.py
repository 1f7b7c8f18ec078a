"""Drives a system under test with LoadGen, which runs in a child process.

One thread does it all: take what LoadGen has issued, let the system do one step, hand its answers to LoadGen. While
the system has work nothing here waits; while it has none, everything waits for LoadGen.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

from trnbench.serving.log import Tally, read_result
from trnbench.serving.process import LoadGenProcess
from trnbench.serving.protocol import Answer, Failed, Finished, Flushed, Issue, Responses, Start
from trnbench.serving.settings import Hints, check
from trnbench.serving.system import Request
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.serving.log import LoadGenResult
    from trnbench.serving.protocol import FromChild, FromParent
    from trnbench.serving.settings import Test
    from trnbench.serving.system import Completion, FirstToken, Step, System

STALL_SECONDS = 2.0
"""A sample that the system still owes while it has nothing left to do is lost after so long."""


POLL_SECONDS = 0.1


def run_loadgen(
    test: Test, system: System, *, folder: Path, timeout: float, stall: float = STALL_SECONDS
) -> LoadGenResult:
    """Run one LoadGen test against `system` and read its logs, which stay in `folder` (must exist and hold none).

    `timeout` seconds cover the child's start, the test and the writing of the logs. The child is gone when this
    returns or raises. A system that hangs inside `step` is beyond reach: the case's own process must be ended.

    Raises `UsageError` for settings that clash, before anything starts, and else `CaseError`: timeout; crashed (the
    child was killed by a signal); invalid (a lost sample, an answer that LoadGen would take for a valid one or crash
    on); failed (no place for the logs, no readable logs); unsupported (LoadGen is not installed). What the system
    raises, and KeyboardInterrupt, pass on unchanged.
    """
    check(test)
    with LoadGenProcess(timeout) as process:
        drive = _Drive(test, system, process, stall)
        try:
            drive.run(Start(test, str(folder.absolute())))
        except _Disconnected:
            raise process.gone(drive.progress()) from None
    return read_result(test, folder, drive.tally)


def hints_of(result: LoadGenResult) -> Hints:
    """What a calibration (`settings.calibration_test`) says of the real test. The result itself is no measurement.

    Raises `CaseError` (invalid) where LoadGen logged an error.
    """
    if result.errors:
        raise CaseError(Status.INVALID, f"the calibration failed: {result.reasons[-1]}")
    return Hints(latency=result.latencies["latency"].mean, rate=result.rates.get("samples"))


class _Disconnected(Exception):
    """The connection has ended before the test."""


class _Drive:
    """The loop, and what it knows of every sample that LoadGen has asked for."""

    def __init__(self, test: Test, system: System, process: LoadGenProcess, stall: float) -> None:
        self.tally = Tally()
        self._test = test
        self._system = system
        self._process = process
        self._stall = stall
        self._finished = False
        self._first: dict[int, int | None] = {}
        """First token of every sample that is owed an answer, None before it came; by response id, oldest first."""
        self._idle_since: dict[int, float] = {}
        """When the system was first seen to be idle although it owed this sample."""
        self._began: float | None = None

    def progress(self) -> str:
        """How far the test is, in words, for a message about its end."""
        owed = len(self._first)
        silent = sum(token is None for token in self._first.values())
        of_these = f", {silent} of them not even a first token" if self._test.token_latencies and silent else ""
        return f"{self.tally.samples} samples were answered and {owed} waited for an answer{of_these}"

    def run(self, start: Start) -> None:
        """Drive the system until LoadGen has finished."""
        self._send(start)
        while True:
            self._take_messages()
            if self._finished:
                return
            if self._process.timed_out:
                raise _Disconnected
            if self._system.busy:
                self._hand_out(self._system.step())
            else:
                self._look_for_lost_samples()
                self._wait()

    def _take_messages(self) -> None:
        """Submit whatever has arrived, without waiting for more."""
        requests: list[Request] = []
        while not self._finished and self._arrived(0.0):
            message = self._receive()
            match message:
                case Issue(ids, indices):
                    self.tally.queries += 1
                    requests += map(Request, ids, indices)
                case Finished():
                    self._finished = True
                case Failed(status, reason):
                    raise CaseError(status, reason)
                case Flushed():
                    pass
        if not requests:
            return
        if self._began is None:
            self._began = time.monotonic()
        for request in requests:
            self._first[request.id] = None
            self.tally.issued[request.index] = self.tally.issued.get(request.index, 0) + 1
        self._system.submit(requests)

    def _hand_out(self, step: Step) -> None:
        """Check a step's answers and pass them to LoadGen, which checks nothing."""
        first = [self._checked_first(token) for token in step.first] if self._test.token_latencies else []
        complete = [self._checked(completion) for completion in step.complete]
        if not (first or complete):
            return
        self._send(Responses(first, complete))
        if complete and self._began is not None:
            self.tally.seconds = time.monotonic() - self._began

    def _checked_first(self, token: FirstToken) -> FirstToken:
        if self._first.get(token.id, 0) is not None:
            what = "a second first token for" if token.id in self._first else "a first token for nothing asked:"
            raise CaseError(Status.INVALID, f"the system gave {what} sample {token.id:#x}")
        self._first[token.id] = token.token
        return token

    def _checked(self, completion: Completion) -> Answer:
        identifier, tokens = completion
        if identifier not in self._first:
            raise CaseError(
                Status.INVALID,
                f"the system completed sample {identifier:#x}, which was never asked or is already complete",
            )
        first = self._first.pop(identifier)
        if self._test.token_latencies:
            if first is None:
                raise CaseError(
                    Status.INVALID, f"the system completed sample {identifier:#x} without having given its first token"
                )
            if len(tokens) < 2:
                raise CaseError(
                    Status.INVALID,
                    f"the answer to sample {identifier:#x} has {len(tokens)} tokens; to time them it needs 2 or more",
                )
            if tokens[0] != first:
                raise CaseError(
                    Status.INVALID,
                    f"the answer to sample {identifier:#x} begins with token {tokens[0]}, its first token was {first}",
                )
        self.tally.samples += 1
        self.tally.produced += len(tokens)
        length = len(tokens) if self._test.token_latencies else 0
        return Answer(identifier, array("i", tokens).tobytes(), length)

    def _look_for_lost_samples(self) -> None:
        """Nothing is queued or running any more: what is still owed has been lost, unless it comes very soon."""
        now = time.monotonic()
        self._idle_since = {identifier: self._idle_since.get(identifier, now) for identifier in self._first}
        lost = [identifier for identifier, since in self._idle_since.items() if now - since > self._stall]
        if lost:
            raise CaseError(
                Status.INVALID,
                f"lost sample: the system has nothing left to do and owes {len(lost)} of"
                f" {self.tally.samples + len(self._first)} samples an answer",
            )

    def _wait(self) -> None:
        # Short enough to notice a lost sample and the end of the time; a query ends the wait at once.
        self._arrived(POLL_SECONDS)

    def _arrived(self, timeout: float) -> bool:
        try:
            return self._process.channel.waiting(timeout)
        except (EOFError, OSError):
            raise _Disconnected from None

    def _receive(self) -> FromChild:
        try:
            return self._process.channel.receive()
        except (EOFError, OSError):
            raise _Disconnected from None

    def _send(self, message: FromParent) -> None:
        try:
            self._process.channel.send(message)
        except OSError:
            raise _Disconnected from None
