"""Verdicts in plain words: which side is faster, which is cheaper, and whether both computed the same thing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.schema import FAILED
from trnbench.report.format import count
from trnbench.report.views import Tag
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trnbench.compare.model import Comparison, CostScenario, RunValue, Side
    from trnbench.records.schema import Check, Record

DECIDED = frozenset({"a faster", "b faster", "not distinguishable"})
"""Verdicts that rest on a full comparison: only these take part in counts of speed and cost."""

_OPEN_WORDS: dict[str, str] = {
    "not distinguishable": "No difference that these runs can show",
    "not enough runs": "No verdict: not enough runs",
    "not conformant": "No winner: a side did not conform",
    "not checked": "No winner: numerics were not checked",
    "unlike numerics": "No winner: unlike numerics",
    "no common metric": "No verdict: no common metric",
    "inconsistent timing": "No winner: the timing is inconsistent",
}

Answer = str
YES, NO, OPEN = "yes", "no", "open"


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Whether both sides computed the same thing: `answer` is YES, NO or OPEN; `words` and `why` say it."""

    answer: Answer
    words: str
    why: str


def verdict_words(comparison: Comparison) -> str:
    """The verdict as a headline."""
    if comparison.verdict == "a faster":
        return f"{comparison.a.label} is faster than {comparison.b.label}"
    if comparison.verdict == "b faster":
        return f"{comparison.b.label} is faster than {comparison.a.label}"
    return _OPEN_WORDS[comparison.verdict]


def verdict_tag(comparison: Comparison, short: bool = False) -> Tag:
    """The verdict as a tag of a few words; short ones say a and b where a heading names the sides."""
    if comparison.verdict == "a faster":
        return Tag("side", "\u25b2", "a faster" if short else f"{comparison.a.label} faster")
    if comparison.verdict == "b faster":
        return Tag("side", "\u25bc", "b faster" if short else f"{comparison.b.label} faster")
    if comparison.verdict in ("not conformant", "inconsistent timing"):
        return Tag("bad", "\u2715", comparison.verdict)
    return Tag("", "=" if comparison.verdict == "not distinguishable" else "?", comparison.verdict)


def agreement(comparison: Comparison) -> Agreement:
    """Judge from the checks of the runs that carry values, and of the records left out for not conforming."""
    failing = [
        f"{side.label} does not conform ({_count_failures(side)})"
        for side in (comparison.a, comparison.b)
        if _side_state(side) == NO
    ]
    if failing or comparison.verdict == "not conformant":
        return Agreement(answer=NO, words="No", why="; ".join(failing) or comparison.explanation)
    if comparison.verdict == "unlike numerics":
        return Agreement(answer=OPEN, words="Unlike numerics", why=comparison.explanation)
    unchecked = [side.label for side in (comparison.a, comparison.b) if _side_state(side) == OPEN]
    if unchecked or comparison.verdict == "not checked":
        who = " and ".join(unchecked) or "a side"
        return Agreement(answer=OPEN, words="Not shown", why=f"no complete set of passed checks for {who}")
    return Agreement(
        answer=YES,
        words="Yes, within the limits",
        why=f"every check passed in every run: {_checks(comparison.a)} on {comparison.a.label}, "
        f"{_checks(comparison.b)} on {comparison.b.label}",
    )


def agreement_tag(found: Agreement) -> Tag:
    """The agreement as a tag."""
    kinds: dict[str, Tag] = {
        YES: Tag("good", "\u2713", "yes"),
        NO: Tag("bad", "\u2715", "no"),
        OPEN: Tag("", "?", found.words.lower()),
    }
    return kinds[found.answer]


def conformance_state(checks: Iterable[Check]) -> Answer:
    """NO where any check failed, YES where all of at least one passed, else OPEN, as with a deviation that is listed.

    Values that are only reported decide nothing.
    """
    verdicts = [check.verdict for check in checks if check.verdict != "reported"]
    if any(verdict in FAILED for verdict in verdicts):
        return NO
    return YES if verdicts and all(verdict in ("pass", "unexpected pass") for verdict in verdicts) else OPEN


def checks_words(record: Record) -> str:
    """`12 of 12 passed`, or that none was made."""
    if not record.conformance:
        return "none made"
    passed = sum(check.verdict == "pass" for check in record.conformance)
    return f"{passed:,} of {len(record.conformance):,} passed"


def cheaper(comparison: Comparison, scenario: CostScenario) -> str | None:
    """Label of the cheaper side, "" where the interval holds 1, None where nothing may be said."""
    ratio = scenario.cost_ratio
    if ratio is None or comparison.verdict not in DECIDED:
        return None
    if ratio.high < 1:
        return comparison.a.label
    return comparison.b.label if ratio.low > 1 else ""


def cheaper_tag(comparison: Comparison, scenario: CostScenario, short: bool = False) -> Tag:
    """Who is cheaper in the scenario, as a tag."""
    who = cheaper(comparison, scenario)
    if who is None:
        return Tag("", "?", "no ranking" if scenario.cost_ratio is not None else "n/a")
    if not who:
        return Tag("", "=", "not distinguishable")
    letter = "a" if who == comparison.a.label else "b"
    return Tag("side", "$", f"{letter if short else who} cheaper")


def status_tag(status: Status) -> Tag:
    """A record's status as a tag."""
    words = status.value.replace("_", " ")
    if status is Status.OK:
        return Tag("good", "\u2713", words)
    return Tag("" if status in (Status.SKIPPED, Status.UNSUPPORTED, Status.INTERRUPTED) else "bad", "\u2715", words)


def newest(side: Side) -> Record | None:
    """The side's newest record: of its runs, else of what was left out."""
    if side.runs:
        return side.runs[-1].record
    return side.left_out[-1][0] if side.left_out else None


def _side_state(side: Side) -> Answer:
    states = [conformance_state(run.record.conformance) for run in side.runs]
    if NO in states or (not states and any(record.status is Status.NONCONFORMANT for record, _ in side.left_out)):
        return NO
    return YES if states and all(state == YES for state in states) else OPEN


def _count_failures(side: Side) -> str:
    records = [run.record for run in side.runs] or [record for record, _ in side.left_out]
    bad = sum(conformance_state(record.conformance) == NO for record in records)
    return f"{bad:,} of {count(len(records), 'record')}"


def _checks(side: Side) -> str:
    return count(sum(_number_of_checks(run) for run in side.runs), "check")


def _number_of_checks(run: RunValue) -> int:
    return len(run.record.conformance)
