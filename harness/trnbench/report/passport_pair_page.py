"""Two passports side by side: where they differ first, then where they are alike. Nothing is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.passport import compare_passports, key, spoken
from trnbench.report.format import count, joined, utc
from trnbench.report.metric_names import capitalised
from trnbench.report.names import passport_page
from trnbench.report.passport_names import passport_label, sides
from trnbench.report.passport_page import found_cell
from trnbench.report.views import Cell, Column, GroupedTable, RowGroup, Table, TableRow, Tag

if TYPE_CHECKING:
    from trnbench.records.passport import Difference, Passport
    from trnbench.report.passport_names import Pair

DIFFERS = Tag("side", "\u2260", "differs")
ALIKE = Tag("", "=", "alike")
OPEN = Tag("", "?", "open")


class PassportPairPage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page of a pair shows."""

    title: str
    a: str
    b: str
    headline: str
    words: str
    both: Table
    differences: GroupedTable
    one_sided: GroupedTable
    alike: GroupedTable


def build_passport_pair(pair: Pair) -> PassportPairPage:
    """The page of two passports. A property that only one side could tell is no difference, and listed apart."""
    a, b = (entry.passport for entry in pair)
    named = sides(pair)
    found = compare_passports(a, b)
    unknown = {each for passport in (a, b) for each in _without_answer(passport)}
    known_keys = [{key(probe) for probe in passport.probes} for passport in (a, b)]
    shared = known_keys[0] & known_keys[1]
    told = [one for one in found if _key(one) in shared and _key(one) not in unknown]
    open_ones = [one for one in found if one not in told]
    return PassportPairPage(
        title=f"{named[0]} against {named[1]}",
        a=named[0],
        b=named[1],
        headline=differences_words(pair),
        words=_by_group(told),
        both=_both(pair, named),
        differences=_unlike("differences-table", "Properties that differ", told, DIFFERS, pair),
        one_sided=_unlike("one-sided-table", "Properties without an answer on a side", open_ones, OPEN, pair),
        alike=_alike(a, b, {_key(one) for one in found}),
    )


def differences_words(pair: Pair) -> str:
    """`12 of 181 properties differ`, of those that both could tell; then how many only one could."""
    a, b = (entry.passport for entry in pair)
    found = compare_passports(a, b)
    both = {key(probe) for probe in a.probes if probe.verdict is not None} & {
        key(probe) for probe in b.probes if probe.verdict is not None
    }
    told = sum(_key(one) in both for one in found)
    shared = count(len(both), "property", "properties")
    text = f"{told:,} of {shared} that both can tell {'differs' if told == 1 else 'differ'}"
    rest = len(found) - told
    return text + (f"; {count(rest, 'more has', 'more have')} no answer on a side" if rest else "")


def _key(one: Difference) -> tuple[str, str, str]:
    return one.group, one.name, one.precision


def _without_answer(passport: Passport) -> list[tuple[str, str, str]]:
    return [key(probe) for probe in passport.probes if probe.verdict is None]


def _by_group(found: list[Difference]) -> str:
    numbers: dict[str, int] = {}
    for one in found:
        numbers[one.group] = numbers.get(one.group, 0) + 1
    return f"They differ in {joined([f'{name} ({each:,})' for name, each in numbers.items()])}." if found else ""


def _both(pair: Pair, named: tuple[str, str]) -> Table:
    """Who the two are; versions of one that the other lacks read `absent`."""
    passports = [entry.passport for entry in pair]
    versions = [dict(passport.environment.versions) for passport in passports]
    rows = [
        ("Passport", [Cell(passport_label(one), passport_page(one)) for one in passports]),
        ("Taken", [Cell(utc(one.started_at)) for one in passports]),
        ("Chip", [Cell(one.device.chip) for one in passports]),
        *(
            (name, [Cell(each.get(name, "absent")) for each in versions])
            for name in sorted({*versions[0], *versions[1]})
            if name == "torch" or versions[0].get(name) != versions[1].get(name)
        ),
    ]
    return Table(
        id="both-table",
        caption="The two passports",
        headed=True,
        columns=[Column("", "name"), Column("a", "found", named[0]), Column("b", "found", named[1])],
        rows=[TableRow([Cell(name), *cells]) for name, cells in rows],
    )


def _unlike(table_id: str, caption: str, found: list[Difference], tag: Tag, pair: Pair) -> GroupedTable:
    groups: dict[str, list[TableRow]] = {}
    indexes = [{key(probe): index for index, probe in enumerate(entry.passport.probes)} for entry in pair]
    for one in found:
        cells = [
            found_cell(entry.passport, known[_key(one)]) if _key(one) in known else Cell(tag=Tag("", "?", "not probed"))
            for entry, known in zip(pair, indexes, strict=True)
        ]
        groups.setdefault(one.group, []).append(TableRow([Cell(one.name, note=one.precision), Cell(tag=tag), *cells]))
    named = sides(pair)
    return GroupedTable(
        id=table_id,
        caption=caption,
        headed=True,
        columns=[
            Column("Property", "name"),
            Column("", "nowrap"),
            Column("a", "found", named[0]),
            Column("b", "found", named[1]),
        ],
        groups=[RowGroup(capitalised(name), rows) for name, rows in groups.items()],
    )


def _alike(a: Passport, b: Passport, unlike: set[tuple[str, str, str]]) -> GroupedTable:
    groups: dict[str, list[TableRow]] = {}
    for index, probe in enumerate(a.probes):
        if key(probe) not in unlike:
            cells = [Cell(probe.name, note=probe.precision), Cell(tag=ALIKE), Cell(spoken(a, index))]
            groups.setdefault(probe.group, []).append(TableRow(cells))
    total = sum(len(rows) for rows in groups.values())
    return GroupedTable(
        id="alike-table",
        caption=f"{count(total, 'property reads', 'properties read')} the same in both",
        columns=[Column("Property", "name"), Column("", "nowrap"), Column("Found in both", "reason")],
        groups=[RowGroup(capitalised(name), rows) for name, rows in groups.items()],
    )
