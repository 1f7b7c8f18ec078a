"""Verdicts counted: the one place that says how many checks passed, failed, deviated as listed, or were not made."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from trnbench.records.schema import FAILED, Verdict
from trnbench.report.format import count
from trnbench.report.verdicts import status_tag
from trnbench.report.views import Tag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trnbench.records.schema import Check, Record

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
TIER_WORDS: dict[str, str] = {
    "T0": "Inputs whose answer is exact whatever the order of operations, judged without any tolerance.",
    "T1": "A hard bound, which holds for every order of operations.",
    "T2": "A tighter bound, which rounding errors exceed with negligible probability.",
    "T3": "Statistics against the spread of implementations that are all correct.",
}
_TAGS: dict[Verdict, Tag] = {
    "pass": Tag("good", "\u2713", "pass"),
    "fail": Tag("bad", "\u2715", "fail"),
    "non-finite": Tag("bad", "\u2715", "non-finite"),
    "not checked": Tag("", "?", "not checked"),
    "known deviation": Tag("side", "\u2248", "known deviation"),
    "unexpected pass": Tag("side", "!", "unexpected pass"),
    "reported": Tag("", "i", "reported, never judged"),
}
_PLURALS: dict[Verdict, tuple[str, str]] = {
    "pass": ("pass", "pass"),
    "fail": ("failed", "failed"),
    "non-finite": ("not finite", "not finite"),
    "known deviation": ("known deviation", "known deviations"),
    "unexpected pass": ("unexpected pass", "unexpected passes"),
    "not checked": ("not checked", "not checked"),
    "reported": ("reported only", "reported only"),
}
"""In the order in which they are told."""
_LISTED: tuple[Verdict, ...] = ("unexpected pass", "known deviation")


def check_tag(verdict: Verdict) -> Tag:
    """A check's verdict as a tag."""
    return _TAGS[verdict]


def tally(checks: Iterable[Check]) -> dict[Verdict, int]:
    """How many checks have each verdict; every verdict is a key."""
    counted: dict[Verdict, int] = dict.fromkeys(VERDICTS, 0)
    for check in checks:
        counted[check.verdict] += 1
    return counted


def failures(counted: dict[Verdict, int]) -> int:
    """Checks that failed, non-finite results included."""
    return sum(number for verdict, number in counted.items() if verdict in FAILED)


def count_words(counted: dict[Verdict, int], leave_out: tuple[Verdict, ...] = ()) -> str:
    """`41 pass, 2 known deviations, 1 not checked`: every verdict that occurs, save those left out."""
    told = [
        count(counted[verdict], *words)
        for verdict, words in _PLURALS.items()
        if counted[verdict] and verdict not in leave_out
    ]
    return ", ".join(told)


def judged(counted: dict[Verdict, int]) -> int:
    """Checks with a verdict: neither left out nor only reported."""
    return sum(counted.values()) - counted["not checked"] - counted["reported"]


def record_tag(record: Record) -> Tag:
    """The worst that a record's checks say, in a few words: failures first, then what is listed, then passes."""
    counted = tally(record.conformance)
    if not record.conformance:
        return status_tag(record.status)
    if failed := failures(counted):
        return Tag("bad", "\u2715", f"{failed:,} FAILED")
    for verdict in _LISTED:
        if counted[verdict]:
            return Tag("side", _TAGS[verdict].sign, count(counted[verdict], *_PLURALS[verdict]))
    return _TAGS["pass"] if counted["pass"] else _TAGS["not checked"]


def beside_tag(record: Record) -> str:
    """What the tag of the record leaves out, passes aside: `1 not finite, 2 known deviations`."""
    counted = tally(record.conformance)
    told: tuple[Verdict, ...] = ("fail",) if failures(counted) else ()
    if not told:
        told = next(((verdict,) for verdict in _LISTED if counted[verdict]), ())
    if not told and not counted["pass"]:
        told = ("not checked",)
    return count_words(counted, ("pass", *told))


def record_words(record: Record) -> str:
    """`41 of 45 pass`, or that no check was made; what is only reported is no check that could pass."""
    counted = tally(record.conformance)
    tried = len(record.conformance) - counted["reported"]
    return f"{counted['pass']:,} of {tried:,} pass" if record.conformance else "no check made"
