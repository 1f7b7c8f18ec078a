"""`:::MLLOG` lines: the event format that MLCommons' LoadGen and training logs share, read and written in one place.

A line is the prefix and a JSON object with `key`, `value`, `time_ms`, `event_type` and `metadata` (mlperf_logging's
`mllog.py`). Whatever else stands in a file is left alone: launchers and libraries write into the same stream.
"""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = ":::MLLOG "
NAMESPACE = "trnbench"

EventType = Literal["POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `time_ms` is Unix time in milliseconds (LoadGen: since its test began), `line` counts from 1."""

    key: str
    value: Any
    time_ms: float
    event_type: str
    metadata: dict[str, Any]
    line: int


class _Line(msgspec.Struct, frozen=True):
    """What this project reads of a line; other fields may come and go."""

    key: str
    value: Any
    time_ms: float
    metadata: dict[str, Any] = {}
    event_type: str = "POINT_IN_TIME"


def parse(text: str, name: str) -> list[Event]:
    """Every event of a log, in order; lines without the prefix are passed over.

    Raises `UsageError` with `name` and the line for one whose JSON is broken or that lacks a key, value or time.
    """
    events = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith(PREFIX):
            continue
        try:
            found = msgspec.json.decode(line[len(PREFIX) :], type=_Line, strict=True)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise UsageError(f"{name}, line {number}: not an {PREFIX.strip()} event: {error}") from None
        events.append(
            Event(
                key=found.key,
                value=found.value,
                time_ms=found.time_ms,
                event_type=found.event_type,
                metadata=found.metadata,
                line=number,
            )
        )
    return events


def values(events: list[Event]) -> dict[str, Any]:
    """The last value of every key."""
    return {event.key: event.value for event in events}


def wall_clock_ms() -> int:
    """Unix time in whole milliseconds."""
    return time.time_ns() // 1_000_000


class Writer:
    """Collects events in order. Times never go back, whatever the clock does."""

    def __init__(self, clock_ms: Callable[[], int] = wall_clock_ms, namespace: str = NAMESPACE) -> None:
        self._clock_ms = clock_ms
        self._namespace = namespace
        self._lines: list[str] = []
        self._latest = 0

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Something that happened or holds."""
        self._write("POINT_IN_TIME", key, value, metadata)

    def start(self, key: str, value: Any = None, **metadata: Any) -> None:
        """The beginning of something that takes time."""
        self._write("INTERVAL_START", key, value, metadata)

    def end(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Its end."""
        self._write("INTERVAL_END", key, value, metadata)

    def text(self) -> str:
        """The log so far, one event a line."""
        return "".join(f"{line}\n" for line in self._lines)

    def restore(self, text: str) -> None:
        """Go on after the events of an earlier, interrupted process."""
        events = parse(text, "the log of the interrupted run")
        self._lines = [line for line in text.splitlines() if line.startswith(PREFIX)]
        self._latest = max((int(event.time_ms) for event in events), default=0)

    def _write(self, event_type: EventType, key: str, value: Any, metadata: dict[str, Any]) -> None:
        for what in (value, *metadata.values()):
            if isinstance(what, float) and not math.isfinite(what):
                raise ValueError(f"event {key}: {what} is no finite number, and JSON has no word for it")
        self._latest = max(self._latest, self._clock_ms())
        line = {
            "namespace": self._namespace,
            "time_ms": self._latest,
            "event_type": event_type,
            "key": key,
            "value": value,
            "metadata": metadata,
        }
        self._lines.append(PREFIX + json.dumps(line, allow_nan=False))
