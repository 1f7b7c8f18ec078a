"""What a rule set asks of a single key: how often, which values, which metadata, and between which milestones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from trnbench.training.rule_data import SAME
from trnbench.wording import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trnbench.mllog import Event
    from trnbench.training.rule_data import Key

KINDS = {
    "text": "a text that is not empty",
    "count": "a whole number",
    "number": "a finite number",
    "flag": "true or false",
    "nothing": "null",
}


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong in which line of which file, and what would be right. Line 0: it is about the file as a whole."""

    file: str
    line: int
    key: str
    wrong: str
    right: str

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{place}: {self.key} {self.wrong}; {self.right}"


def check_key(
    key: Key, events: Sequence[Event], milestones: Mapping[str, int], strangers: Sequence[str], file: str
) -> Iterator[Complaint]:
    """Complaints about the `events` of one key.

    `milestones` holds the line of each that the log has; `strangers` are logged keys that no rule speaks of, among
    which a misspelt one may be.
    """
    if not events and key.count != "any":
        yield Complaint(file=file, line=0, key=key.name, wrong="is missing", right=_how_to_log(key, strangers))
        return
    if key.count == "one" and len(events) > 1:
        yield Complaint(
            file=file,
            line=events[1].line,
            key=key.name,
            wrong=f"is there {len(events)} times, first in line {events[0].line}",
            right="it must be there exactly once",
        )
    for event in events:
        wrong, right = _judge_value(key, event.value)
        if wrong:
            yield Complaint(file=file, line=event.line, key=key.name, wrong=wrong, right=right)
        for name in key.metadata:
            if not _is_count(event.metadata.get(name), 0):
                found = repr(event.metadata[name]) if name in event.metadata else "missing"
                yield Complaint(
                    file=file,
                    line=event.line,
                    key=key.name,
                    wrong=f"has metadata {name} {found}",
                    right=f"{name} must be a whole number of at least 0",
                )
        yield from _judge_place(key, event, milestones, file)


def same_value(first: Any, second: Any) -> bool:
    """Equal, or numbers that differ by no more than `SAME`; whole numbers must be equal."""
    if isinstance(first, float) or isinstance(second, float):
        return is_number(first) and is_number(second) and math.isclose(first, second, rel_tol=SAME)
    return bool(first == second)


def is_number(value: Any) -> bool:
    """A finite number and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _how_to_log(key: Key, strangers: Sequence[str]) -> str:
    place = " and ".join(
        word for word in (key.after and f"after {key.after}", key.before and f"before {key.before}") if word
    )
    times = "exactly once" if key.count == "one" else "at least once"
    parts = [f"it must be there {times}", place, nearest(key.name, strangers, "")]
    return ", ".join(part for part in parts if part)


def _judge_value(key: Key, value: Any) -> tuple[str, str]:
    """What is wrong with a value and what would be right; empty where nothing is."""
    if not _is_kind(key, value):
        least = "" if key.least is None else f" of at least {key.least:g}"
        return f"is {value!r}", f"it must be {KINDS[key.kind]}{least}"
    if key.values and value not in key.values:
        return f"is {value!r}", f"it must be one of {', '.join(key.values)}"
    if key.begins and not str(value).startswith(key.begins):
        return f"is {value!r}", f"it must begin with {key.begins!r}"
    return "", ""


def _is_kind(key: Key, value: Any) -> bool:
    match key.kind:
        case "text":
            return isinstance(value, str) and bool(value.strip())
        case "count":
            return _is_count(value, key.least)
        case "number":
            return is_number(value) and (key.least is None or value >= key.least)
        case "flag":
            return isinstance(value, bool)
        case "nothing":
            return value is None
    return True


def _is_count(value: Any, least: float | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def _judge_place(key: Key, event: Event, milestones: Mapping[str, int], file: str) -> Iterator[Complaint]:
    """A milestone that the log lacks is complained about elsewhere."""
    if key.after in milestones and event.line < milestones[key.after]:
        wrong = f"comes before {key.after} in line {milestones[key.after]}"
        yield Complaint(file=file, line=event.line, key=key.name, wrong=wrong, right=f"it must come after {key.after}")
    if key.before in milestones and event.line > milestones[key.before]:
        wrong = f"comes after {key.before} in line {milestones[key.before]}"
        yield Complaint(
            file=file, line=event.line, key=key.name, wrong=wrong, right=f"it must come before {key.before}"
        )
