"""What LoadGen's link drives: a system under test that takes requests and works in steps.

The parent process is single-threaded: it submits what has arrived, then asks the system for one step at a time. So a
system needs neither threads nor locks, and the device is used from one thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Request(NamedTuple):
    """One sample that LoadGen asks for."""

    id: int
    """LoadGen's response id, unique within a test."""
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    """Position of the sample in the query sample library."""


class FirstToken(NamedTuple):
    """The first token of a request has left the device. Must come before the request's `Completion`."""

    id: int
    token: int


class Completion(NamedTuple):
    """A request is answered."""

    id: int
    tokens: list[int]
    """All tokens of the answer in order, the first one included, at least 2; for scoring exactly the predicted one."""


class Step(NamedTuple):
    """What one scheduling step brought: first tokens are reported before completions."""

    first: list[FirstToken]
    complete: list[Completion]


class System(Protocol):
    """A system under test. Any exception it raises ends the test and passes on to the caller unchanged."""

    def submit(self, requests: Sequence[Request]) -> None:
        """Queue the requests and return at once."""

    def step(self) -> Step:
        """Do one scheduling step and wait for the device: admit and prefill a group, and/or one decode step.

        Called only while `busy`.
        """

    @property
    def busy(self) -> bool:
        """Whether any request is queued or running."""
