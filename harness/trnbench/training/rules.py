"""Checks logs of training runs against a rule set: one log by itself, and the logs of one set of runs together.

Modelled on the rules of the MLPerf(R) Training benchmarks and on what mlperf_logging's compliance checker looks for,
and stricter where that is lenient: a run that says `aborted` is no pass here, and `success` has to be borne out by the
evaluations in the same log. Which keys there are, what they hold, in which order they come and which way the metric is
better is data (see `rule_data`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from trnbench.training.rule_course import check_course
from trnbench.training.rule_data import BENCHMARK_KEY, MILESTONES, RULE_SET_KEY, rule_sets
from trnbench.training.rule_keys import Complaint, check_key, same_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from trnbench.mllog import Event
    from trnbench.training.rule_data import Key, RuleSet


def check_log(events: Sequence[Event], file: str, rules: RuleSet) -> list[Complaint]:
    """All complaints about one log, by line; none for a run that reached its target by the rules.

    A log that says it follows another rule set gets that one complaint: what else there is to say would be about the
    choice of the rule set and not about the log.
    """
    by_key: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_key[event.key].append(event)
    for event in by_key[RULE_SET_KEY]:
        if event.value != rules.name:
            return [_other_rule_set(event, file, rules)]
    keys = rules.keys(_benchmark(by_key))
    milestones = {name: by_key[name][0].line for name in MILESTONES if by_key[name]}
    spoken_of = {key.name for key in rules.key}
    strangers = [name for name, found in by_key.items() if found and name not in spoken_of]
    complaints = [
        complaint for key in keys for complaint in check_key(key, by_key[key.name], milestones, strangers, file)
    ]
    complaints += check_course(events, file, rules)
    return sorted(complaints, key=lambda complaint: complaint.line)


def check_set(logs: Mapping[str, Sequence[Event]], rules: RuleSet) -> list[Complaint]:
    """Complaints about logs, by file name, that are runs of one set: what must be the same, and what must differ."""
    return [complaint for key in rules.key if key.in_a_set for complaint in _check_across(key, logs)]


def _check_across(key: Key, logs: Mapping[str, Sequence[Event]]) -> Iterator[Complaint]:
    seen: list[tuple[str, Event]] = []
    for file, events in logs.items():
        event = next((event for event in events if event.key == key.name), None)
        if event is None:
            continue
        if key.in_a_set == "differs":
            twin = next((other for other, before in seen if before.value == event.value), None)
            wrong = f"is {event.value!r} as in {twin}" if twin is not None else ""
            right = "each run of a set needs its own"
        else:
            differs = bool(seen) and not same_value(seen[0][1].value, event.value)
            wrong = f"is {event.value!r}, and {seen[0][1].value!r} in {seen[0][0]}" if differs else ""
            right = "it must be the same in all runs of a set"
        if wrong:
            yield Complaint(file=file, line=event.line, key=key.name, wrong=wrong, right=right)
        seen.append((file, event))


def _other_rule_set(event: Event, file: str, rules: RuleSet) -> Complaint:
    known = event.value in rule_sets()
    return Complaint(
        file=file,
        line=event.line,
        key=RULE_SET_KEY,
        wrong=f"does not fit: the log says rule set {event.value}, it was checked against {rules.name}",
        right=f"check it with --rules {event.value}" if known else f"there are rule sets {', '.join(rule_sets())} here",
    )


def _benchmark(by_key: Mapping[str, Sequence[Event]]) -> str:
    found = by_key[BENCHMARK_KEY]
    return found[0].value if found and isinstance(found[0].value, str) else ""
