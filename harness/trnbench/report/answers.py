"""The headline: for each pair of sides, is one faster, is it cheaper, and does it compute the same thing?

Counts and ranges only: ratios of different cases are never averaged into one number, and purchase terms never blended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.compare.labels import device_label
from trnbench.compare.model import Axis, Comparison
from trnbench.report.cost_words import no_dollars, price_cancels
from trnbench.report.format import count, ratio, ratio_interval
from trnbench.report.names import comparison_page
from trnbench.report.verdicts import DECIDED, NO, OPEN, YES, agreement, cheaper, newest, verdict_words
from trnbench.report.views import Cell

if TYPE_CHECKING:
    from trnbench.compare.model import Ratio

AXES: dict[Axis, str] = {
    "device": "Devices",
    "mode": "Modes",
    "precision": "Precisions",
    "stack": "Software stacks",
}
"""The axes in the order in which the index lists them: precisions, which differ in numerics, seldom have a winner."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """All comparisons of one axis between the same two sides; `where` is the device, unless devices are the sides."""

    axis: Axis
    a: str
    b: str
    comparisons: list[Comparison]
    where: str = ""

    @property
    def answered(self) -> bool:
        """Whether any comparison has a ratio to show."""
        return any(one.throughput_ratio for one in self.comparisons)

    @property
    def decided(self) -> bool:
        """Whether any comparison says something about speed."""
        return bool(_with_ratio(self.comparisons))

    @property
    def place(self) -> str:
        """` on 8 x H100 SXM (cuda)`, or nothing where the devices are what is compared."""
        return f" on {self.where}" if self.where else ""

    @property
    def sides(self) -> str:
        """`a over b`, in words."""
        return f"{self.a} over {self.b}"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one pair: a headline, a sentence, and three parts, each a figure or words with its basis."""

    question: str
    headline: str
    why: str
    speed: Cell
    cost: Cell
    costs: list[str]
    numerics: Cell
    target: Cell


def pairs(comparisons: list[Comparison]) -> list[Pair]:
    """Comparisons by axis and pair of sides, in the order given; none is lost."""
    grouped: dict[tuple[Axis, str, str, str], list[Comparison]] = {}
    for comparison in comparisons:
        key = (comparison.axis, comparison.a.label, comparison.b.label, device_in_common(comparison))
        grouped.setdefault(key, []).append(comparison)
    order = list(AXES)
    return [
        Pair(axis=axis, a=a, b=b, comparisons=group, where=where)
        for (axis, a, b, where), group in sorted(grouped.items(), key=lambda item: order.index(item[0][0]))
    ]


def device_in_common(comparison: Comparison) -> str:
    """The device that both sides ran on, in words; empty where the devices are the sides."""
    record = newest(comparison.a)
    if comparison.axis == "device" or record is None:
        return ""
    instance = record.device.instance_type
    return device_label(record) + (f", {instance}" if instance else "")


def answer(pair: Pair) -> Answer:
    """What the pair's comparisons say together."""
    question = f"Is {pair.a} (a) faster or cheaper than {pair.b} (b){pair.place}, and does it compute the same thing?"
    if len(pair.comparisons) == 1:
        only = pair.comparisons[0]
        return Answer(
            question=question,
            headline=verdict_words(only),
            why=only.explanation,
            speed=_speed(only.throughput_ratio, pair.a),
            cost=_break_even(pair.a, pair.b, [only]),
            costs=_scenarios(pair),
            numerics=Cell(agreement(only).words, note=agreement(only).why),
            target=Cell("The whole comparison", href=comparison_page(only.id)),
        )
    return Answer(
        question=question,
        headline=_headline(pair),
        why=_why(pair),
        speed=_speeds(pair),
        cost=_break_even(pair.a, pair.b, pair.comparisons),
        costs=_scenarios(pair),
        numerics=_numerics(pair),
        target=Cell(f"All {count(len(pair.comparisons), 'comparison')}", href="#comparisons"),
    )


def unanswered(pair: Pair) -> str:
    """One line for a pair without any ratio: why there is none."""
    if len(pair.comparisons) == 1:
        only = pair.comparisons[0]
        return f"{pair.a} against {pair.b}{pair.place}: {only.verdict}. {only.explanation}"
    return f"{pair.a} against {pair.b}{pair.place}: {_reasons(pair)}."


def _headline(pair: Pair) -> str:
    total = len(pair.comparisons)
    faster = {side: sum(one.verdict == f"{side} faster" for one in pair.comparisons) for side in ("a", "b")}
    if faster["a"] and faster["b"]:
        return (
            f"It depends: {pair.a} is faster in {faster['a']:,} of {count(total, 'case')}, {pair.b} in {faster['b']:,}"
        )
    for side, name, other in (("a", pair.a, pair.b), ("b", pair.b, pair.a)):
        if faster[side]:
            return f"{name} is faster than {other} in {faster[side]:,} of {count(total, 'case')}"
    if any(one.verdict == "not distinguishable" for one in pair.comparisons):
        return f"No difference between {pair.a} and {pair.b} that these runs can show"
    if pair.answered:
        return f"{pair.a} and {pair.b} are shown side by side, without a winner"
    return f"No verdict yet between {pair.a} and {pair.b}"


def _why(pair: Pair) -> str:
    reasons = _reasons(pair)
    return f"Without a winner: {reasons}." if reasons else "Every case has a winner."


def _reasons(pair: Pair) -> str:
    """The verdicts that name no winner, each with its number of cases."""
    counted: dict[str, int] = {}
    for one in pair.comparisons:
        if one.verdict not in ("a faster", "b faster"):
            counted[one.verdict] = counted.get(one.verdict, 0) + 1
    return ", ".join(f"{words} in {count(number, 'case')}" for words, number in sorted(counted.items()))


def _speed(found: Ratio | None, a: str) -> Cell:
    if found is None:
        return Cell("n/a", note="no throughput ratio: see the verdict")
    return Cell(
        f"{ratio(found.value)} \u00d7",
        note=f"{found.confidence:.0%} interval {ratio_interval(found.low, found.high)}; above 1: more work on {a}",
    )


def _speeds(pair: Pair) -> Cell:
    counted = _with_ratio(pair.comparisons) or pair.comparisons
    ratios = [one.throughput_ratio.value for one in counted if one.throughput_ratio]
    if not ratios:
        return Cell("n/a", note="no case has a verdict with a ratio")
    if not pair.decided:
        return Cell(
            f"{ratio(min(ratios))} to {ratio(max(ratios))} \u00d7", note=f"of {count(len(ratios), 'case')}; not ranked"
        )
    return Cell(
        f"{ratio(min(ratios))} to {ratio(max(ratios))} \u00d7",
        note=f"from lowest to highest of {count(len(ratios), 'case')}; above 1: more work on {pair.a}",
    )


def _break_even(a: str, b: str, comparisons: list[Comparison]) -> Cell:
    found = [one.break_even_price_ratio for one in _with_ratio(comparisons) if one.break_even_price_ratio is not None]
    if not found:
        return Cell("n/a", note="no break-even price without a verdict on speed")
    low, high = ratio(min(found)), ratio(max(found))
    shown = low if low == high else f"{low} to {high}"
    return Cell(f"{shown} \u00d7", note=f"work on {a} costs less where its price is below this multiple of {b}'s")


def _scenarios(pair: Pair) -> list[str]:
    """One line a purchase term: how often which side is cheaper; terms that rank nothing share a line a reason.

    Where the price cancels and the speed is decided, a last line says so.
    """
    names = list(dict.fromkeys(scenario.name for one in pair.comparisons for scenario in one.costs))
    sentences: list[str] = []
    unranked: list[str] = []
    for name in names:
        outcomes = [
            cheaper(one, scenario) for one in pair.comparisons for scenario in one.costs if scenario.name == name
        ]
        if all(outcome is None for outcome in outcomes):
            unranked.append(name)
            continue
        if len(outcomes) == 1:
            sentences.append(f"{name}: {outcomes[0]} cheaper" if outcomes[0] else f"{name}: not distinguishable")
            continue
        parts = [
            f"{words} in {outcomes.count(outcome):,}"
            for outcome, words in (
                (pair.a, f"{pair.a} cheaper"),
                (pair.b, f"{pair.b} cheaper"),
                ("", "not distinguishable"),
                (None, "n/a"),
            )
            if outcome in outcomes
        ]
        sentences.append(f"{name}: {', '.join(parts)} of {len(outcomes):,}")
    sentences += _no_dollars(pair, unranked, in_full=not sentences)
    cancels = price_cancels(pair.comparisons) if pair.decided else ""
    return [*sentences, cancels] if cancels else sentences


def _no_dollars(pair: Pair, names: list[str], *, in_full: bool) -> list[str]:
    """One sentence a reason, with the purchase terms it holds for; details only where no other term has dollars."""
    terms: dict[str, list[str]] = {}
    for name in names:
        found = [no_dollars(one, cost) for one in pair.comparisons for cost in one.costs if cost.name == name]
        reason = "; ".join(dict.fromkeys(one.full if in_full else one.why for one in found))
        terms.setdefault(reason, []).append(name)
    return [f"Dollars, {', '.join(found)}: n/a, {reason}." for reason, found in terms.items()]


def _numerics(pair: Pair) -> Cell:
    found = [agreement(one) for one in pair.comparisons]
    total = len(found)
    yes, no, unclear = (sum(one.answer == wanted for one in found) for wanted in (YES, NO, OPEN))
    if yes == total:
        return Cell("Yes, within the limits", note=f"both sides passed every check in all {count(total, 'case')}")
    if all(one.verdict == "unlike numerics" for one in pair.comparisons):
        return Cell("Unlike numerics", note=f"{_unlike(pair)}, in all {count(total, 'case')}; never ranked")
    headline = f"No in {no:,} of {total:,}" if no else ("Not shown" if not yes else f"Yes in {yes:,} of {total:,}")
    return Cell(headline, note=f"yes in {yes:,}, no in {no:,}, not shown in {unclear:,} of {count(total, 'case')}")


def _unlike(pair: Pair) -> str:
    """In what the numerics differ: the precision where it is the axis, else what every comparison's page names."""
    if pair.axis == "precision":
        return f"{pair.a} and {pair.b} round differently"
    return "the sides differ in format, accumulator or rounding"


def _with_ratio(comparisons: list[Comparison]) -> list[Comparison]:
    return [one for one in comparisons if one.verdict in DECIDED and one.throughput_ratio is not None]
