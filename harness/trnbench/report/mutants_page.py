"""Are the checks themselves any good? What they, and simpler schemes, say of implementations broken on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.mutation import missed
from trnbench.report import bars
from trnbench.report.bars import Bar, BarGroup
from trnbench.report.format import count, percent, utc
from trnbench.report.ordering import natural_key
from trnbench.report.views import Cell, Column, Figure, GroupedTable, RowGroup, Table, TableRow, Tag

if TYPE_CHECKING:
    from trnbench.records.mutation import MutantResult, MutationReport

OURS = "these checks"
_OURS_WORDS = (
    "exact answers, derived bounds and measured noise floors, as on the other pages; they alone name the fault"
)


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Of the implementations that a scheme applies to: broken ones it caught, and correct ones it objected to."""

    name: str
    words: str
    caught: int
    wrong: int
    alarms: int
    right: int


class MutantsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page shows."""

    headline: str
    made: str
    missed: list[str]
    scores: Table
    figure: Figure
    wrong: GroupedTable
    right: GroupedTable
    export: Cell


def build_mutants(report: MutationReport) -> MutantsPage:
    """The page of a mutation report."""
    found = scores(report)
    versions = ", ".join(f"{name} {version}" for name, version in sorted(report.versions.items()))
    return MutantsPage(
        headline=headline(report),
        made=f"Tried {utc(report.made_at)} with {versions or 'unknown versions'}.",
        missed=missed(report.results),
        scores=_scores_table(found, report),
        figure=_figure(found),
        wrong=_results(report, report.wrong, "wrong-table", "Broken on purpose"),
        right=_results(report, report.right, "right-table", "Correct variants"),
        export=Cell("The same as data (JSON)", "mutants.json"),
    )


def headline(report: MutationReport) -> str:
    """`Caught 58 of 58, named 57 of 58, false alarms 0 of 21 correct variants`."""
    ours = scores(report)[0]
    return (
        f"Caught {ours.caught:,} of {ours.wrong:,}, named {_named(report):,} of {ours.wrong:,}, false alarms "
        f"{ours.alarms:,} of {count(ours.right, 'correct variant')}"
    )


def scores(report: MutationReport) -> list[Score]:
    """Ours first, then each simpler scheme."""
    ours = {place: one.caught for place, one in enumerate(report.results)}
    found = [_score(OURS, _OURS_WORDS, report, ours)]
    for name, words in report.schemes.items():
        said = {place: one.schemes[name] for place, one in enumerate(report.results) if name in one.schemes}
        found.append(_score(name, words, report, said))
    return found


def _score(name: str, words: str, report: MutationReport, objects: dict[int, bool]) -> Score:
    """`objects` says by place in the report whether the scheme objects, for those it applies to."""
    wrong = [said for place, said in objects.items() if not report.results[place].correct]
    right = [said for place, said in objects.items() if report.results[place].correct]
    return Score(name=name, words=words, caught=sum(wrong), wrong=len(wrong), alarms=sum(right), right=len(right))


def _named(report: MutationReport) -> int:
    return sum(one.named for one in report.wrong)


def _scores_table(found: list[Score], report: MutationReport) -> Table:
    return Table(
        id="scores-table",
        caption="Catches and false alarms, of the implementations that a scheme applies to",
        columns=[
            Column("Scheme", "name"),
            Column("Caught", "n", "broken ones"),
            Column("Named", "n", "rightly"),
            Column("False alarms", "n", "correct ones"),
            Column("What it is", "reason"),
        ],
        rows=[
            TableRow(
                [
                    Cell(one.name),
                    Cell(f"{one.caught:,} of {one.wrong:,}", note=_share(one.caught, one.wrong)),
                    Cell(f"{_named(report):,} of {one.wrong:,}") if one.name == OURS else Cell("n/a"),
                    Cell(f"{one.alarms:,} of {one.right:,}", note=_share(one.alarms, one.right)),
                    Cell(one.words),
                ]
            )
            for one in found
        ],
    )


def _share(part: int, whole: int) -> str:
    return percent(part / whole) if whole else "n/a"


def _figure(found: list[Score]) -> Figure:
    groups = [
        BarGroup(
            name=one.name,
            bars=[
                Bar(value=one.caught, whole=one.wrong, text=f"{one.caught:,} of {one.wrong:,}"),
                Bar(value=one.alarms, whole=one.right, text=f"{one.alarms:,} of {one.right:,}"),
            ],
        )
        for one in found
    ]
    title = "Catches and false alarms by scheme"
    said = "; ".join(
        f"{one.name}: caught {one.caught:,} of {one.wrong:,}, false alarms {one.alarms:,} of {one.right:,}"
        for one in found
    )
    return Figure(
        drawing=bars.shares(
            groups,
            kinds=(
                "caught, of the broken ones: longer is better",
                "false alarms, of the correct ones: shorter is better",
            ),
            title=title,
            description=said,
            axis="share of the implementations that the scheme applies to, in percent",
        ),
        name="mutants-schemes",
        alt=f"{title}, as bars. {said}.",
        caption="Plain bars: broken implementations that were caught. Hatched bars: correct ones that raised an alarm.",
        table_id="scores-table",
    )


def _results(report: MutationReport, results: list[MutantResult], table_id: str, caption: str) -> GroupedTable:
    """By subject; a cell of a scheme is good where the scheme is right about this implementation."""
    groups: dict[str, list[TableRow]] = {}
    for one in sorted(results, key=lambda one: natural_key(one.subject)):
        cells = [
            Cell(one.name, note=one.precision),
            _caught(one),
            _name(one),
            *(_scheme(one, name) for name in report.schemes),
        ]
        groups.setdefault(one.subject, []).append(TableRow(cells))
    return GroupedTable(
        id=table_id,
        caption=caption,
        headed=True,
        columns=[
            Column("Implementation", "name"),
            Column("Caught by", "nowrap", "tier"),
            Column("Named as", "found"),
            *(Column(name, "nowrap") for name in report.schemes),
        ],
        groups=[RowGroup(name, rows) for name, rows in groups.items()],
    )


def _caught(one: MutantResult) -> Cell:
    tiers = ", ".join(one.tiers)
    if one.correct:
        return Cell(tag=Tag("bad", "\u2715", "false alarm"), note=tiers) if one.caught else _good("silent")
    return Cell(tag=Tag("good", "\u2713", tiers)) if one.caught else Cell(tag=Tag("bad", "\u2715", "missed"))


def _name(one: MutantResult) -> Cell:
    if one.correct:
        return Cell(one.found or "n/a")
    if one.named:
        return Cell(one.found)
    expected = f"expected {' or '.join(one.expected)}"
    return Cell(one.found or "no name", note=expected, tag=Tag("bad", "\u2715", "misnamed" if one.caught else "missed"))


def _scheme(one: MutantResult, name: str) -> Cell:
    """A scheme objects to broken implementations and is silent on correct ones, or it is wrong."""
    if name not in one.schemes:
        return Cell("n/a")
    words = "objects" if one.schemes[name] else "silent"
    return _good(words) if one.schemes[name] != one.correct else Cell(tag=Tag("bad", "\u2715", words))


def _good(words: str) -> Cell:
    return Cell(tag=Tag("good", "\u2713", words))
