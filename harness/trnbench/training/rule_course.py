"""What a rule set asks of a log as a whole: times, the untimed part's limit, blocks and evaluations, the outcome."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from trnbench.training.rule_data import DIVISION_KEY, SAMPLES
from trnbench.training.rule_keys import Complaint, is_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trnbench.mllog import Event
    from trnbench.training.rule_data import RuleSet

MILLISECONDS_A_MINUTE = 60_000
SUCCESS, ABORTED = "success", "aborted"


def check_course(events: Sequence[Event], file: str, rules: RuleSet) -> Iterator[Complaint]:
    """Complaints about what spans several events. What is missing or malformed is complained about key by key."""
    for event, wrong, right in (
        *_time(events),
        *_untimed_part(events, rules),
        *_samples(events),
        *_intervals(events, "block", None),
        *_intervals(events, "eval", rules.metric.key),
        *_outcome(events, rules),
    ):
        yield Complaint(file=file, line=event.line, key=event.key, wrong=wrong, right=right)


Finding = tuple["Event", str, str]
"""The event, what is wrong with it, and what would be right."""


def _time(events: Sequence[Event]) -> Iterator[Finding]:
    for before, event in pairwise(events):
        if event.time_ms < before.time_ms:
            earlier = before.time_ms - event.time_ms
            wrong = f"is {earlier:.0f} ms earlier than {before.key} in line {before.line}"
            yield event, wrong, "events must be in the order of their times"


def _untimed_part(events: Sequence[Event], rules: RuleSet) -> Iterator[Finding]:
    start, stop, division = (_first(events, key) for key in ("init_start", "init_stop", DIVISION_KEY))
    if start is None or stop is None or division is None or division.value not in rules.init_minutes:
        return
    limit = rules.init_minutes[division.value]
    minutes = (stop.time_ms - start.time_ms) / MILLISECONDS_A_MINUTE
    if minutes >= limit:
        yield (
            stop,
            f"comes {minutes:.1f} minutes after init_start",
            f"initialisation and compilation may take less than {limit:g} minutes in division {division.value}",
        )


def _samples(events: Sequence[Event]) -> Iterator[Finding]:
    before: Event | None = None
    for event in events:
        count = event.metadata.get(SAMPLES)
        if not is_number(count):
            continue
        if before is not None and count < before.metadata[SAMPLES]:
            wrong = f"is after {count} samples, {before.key} in line {before.line} after {before.metadata[SAMPLES]}"
            yield event, wrong, f"{SAMPLES} must never fall"
        before = event


def _intervals(events: Sequence[Event], what: str, inside: str | None) -> Iterator[Finding]:
    """`<what>_start` and `<what>_stop` must alternate, with exactly one event of key `inside` between them."""
    start, stop = f"{what}_start", f"{what}_stop"
    opened: Event | None = None
    reported = 0
    for event in events:
        if event.key == start:
            if opened is not None:
                yield event, f"comes before the {stop} of line {opened.line}", f"{start} and {stop} must alternate"
            opened, reported = event, 0
        elif event.key == inside:
            reported += 1
            if opened is None:
                yield event, "is outside of an evaluation", f"it must come between {start} and {stop}"
            elif reported > 1:
                yield event, f"is there twice in the evaluation of line {opened.line}", "once an evaluation"
        elif event.key == stop:
            yield from _closed(event, opened, inside, reported)
            opened = None
        elif event.key == "run_stop" and opened is not None:
            yield event, f"comes before the {stop} of line {opened.line}", f"every {start} needs its {stop}"
            opened = None


def _closed(stop: Event, opened: Event | None, inside: str | None, reported: int) -> Iterator[Finding]:
    if opened is None:
        yield stop, "has no start", "a start must come before it"
    elif inside is not None and not reported:
        right = f"{inside} must be reported; a run whose loss is no finite number has failed"
        yield stop, f"ends an evaluation that reported no {inside}", right
    elif inside is None and opened.metadata.get(SAMPLES) == stop.metadata.get(SAMPLES):
        yield stop, f"ends a block without samples, begun in line {opened.line}", f"{SAMPLES} must grow in a block"


def _outcome(events: Sequence[Event], rules: RuleSet) -> Iterator[Finding]:
    metric = rules.metric
    stop, target = _first(events, "run_stop"), _first(events, metric.target)
    if stop is None:
        return
    status = stop.metadata.get("status")
    evaluations = [event for event in events if event.key == metric.key and is_number(event.value)]
    goal = "" if target is None else f"{metric.target} {target.value}"
    if target is None or not is_number(target.value):
        met = []
    else:
        met = [event for event in evaluations if metric.met(event.value, target.value)]
    if met and met[0] is not evaluations[-1]:
        wrong = f"is {met[0].value} and meets {goal}, but the run went on"
        yield met[0], wrong, "run_stop must follow the evaluation that meets the target"
    must = f"the last {metric.key} must be {metric.relation} {goal or metric.target}"
    if status == ABORTED:
        wrong = f"has status {ABORTED}" + (f" although line {met[0].line} meets {goal}" if met else "")
        yield stop, wrong, f"only status {SUCCESS} is a pass: {must}"
    elif status != SUCCESS:
        found = "no status" if status is None else f"status {status!r}"
        yield stop, f"has {found}", f"the status must be {SUCCESS} or {ABORTED}"
    elif not met:
        last = f"the last {metric.key} is {evaluations[-1].value}" if evaluations else f"there is no {metric.key}"
        yield stop, f"has status {SUCCESS}, but {last}", must


def _first(events: Sequence[Event], key: str) -> Event | None:
    return next((event for event in events if event.key == key), None)
