"""A passport's page: what each probe found, in groups, with the numbers behind it and the switches in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.ids import instant
from trnbench.report.format import count, number, seconds, utc
from trnbench.report.material import UNKNOWN, Material, PassportEntry
from trnbench.report.metric_names import capitalised
from trnbench.report.names import file_stem, passport_pair_page, passport_stem
from trnbench.report.ordering import natural_key
from trnbench.report.passport_names import pairs_worth_comparing, passport_label, sides
from trnbench.report.views import Cell, Column, Fact, Table, TableRow, Tag

if TYPE_CHECKING:
    from trnbench.device import Scalar
    from trnbench.records.passport import Passport, Probe

_WIDEST = 4
"""Precisions that stand side by side as columns; with more, each probe has a row."""


class ProbeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The probes of one group, and the numbers behind them."""

    id: str
    heading: str
    table: Table
    details: Table


class PassportPage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one passport's page shows."""

    title: str
    words: str
    facts: list[Fact]
    links: list[Cell]
    groups: list[ProbeGroup]
    switches: Table
    environment: Table


def build_passport(entry: PassportEntry, material: Material) -> PassportPage:
    """The page of one passport."""
    passport = entry.passport
    grouped: dict[str, list[tuple[int, Probe]]] = {}
    for index, probe in enumerate(passport.probes):
        grouped.setdefault(probe.group, []).append((index, probe))
    pairs = [pair for _, pair in pairs_worth_comparing(material.passports) if entry in pair]
    return PassportPage(
        title=f"Passport of {passport_label(passport)}",
        words=passport_words(passport),
        facts=_facts(entry),
        links=[
            Cell("The passport as stored (JSON)", f"passports/{passport_stem(passport)}.json"),
            *(
                Cell(" against ".join(sides(pair)), passport_pair_page(pair[0].passport, pair[1].passport))
                for pair in pairs
            ),
        ],
        groups=[_group(passport, name, probes) for name, probes in grouped.items()],
        switches=_switches(passport),
        environment=_environment(passport),
    )


def passport_words(passport: Passport) -> str:
    """`181 probes, 2 of them without an answer.`"""
    unanswered = sum(probe.verdict is None for probe in passport.probes)
    return f"{count(len(passport.probes), 'probe')}, {unanswered:,} of them without an answer."


def found_cell(passport: Passport, index: int) -> Cell:
    """What a probe found, or that it is unknown and why."""
    verdict = passport.probes[index].verdict
    if verdict is None:
        return Cell(tag=Tag("", "?", UNKNOWN), note=passport.unknown[f"probes[{index}].verdict"])
    return Cell(verdict)


def _group(passport: Passport, name: str, probes: list[tuple[int, Probe]]) -> ProbeGroup:
    stem = file_stem(name)
    precisions = list(dict.fromkeys(probe.precision for _, probe in probes))
    names = list(dict.fromkeys(probe.name for _, probe in probes))
    if len(names) < len(probes) and len(precisions) <= _WIDEST:
        table = _side_by_side(passport, name, probes, precisions)
    else:
        table = Table(
            id=f"probes-{stem}",
            caption=capitalised(name),
            headed=True,
            columns=[Column("Property", "name"), Column("Precision", "nowrap"), Column("Found", "reason")],
            rows=[
                TableRow([Cell(probe.name), Cell(probe.precision or "n/a"), found_cell(passport, index)])
                for index, probe in probes
            ],
        )
    return ProbeGroup(id=f"group-{stem}", heading=capitalised(name), table=table, details=_details(stem, probes))


def _side_by_side(passport: Passport, name: str, probes: list[tuple[int, Probe]], precisions: list[str]) -> Table:
    """A row a property, a column a precision."""
    rows: dict[str, dict[str, int]] = {}
    for index, probe in probes:
        rows.setdefault(probe.name, {})[probe.precision] = index
    return Table(
        id=f"probes-{file_stem(name)}",
        caption=capitalised(name),
        headed=True,
        columns=[Column("Property", "name"), *(Column(precision or "any", "found") for precision in precisions)],
        rows=[
            TableRow(
                [
                    Cell(property_name),
                    *(found_cell(passport, found[each]) if each in found else Cell("\u2013") for each in precisions),
                ]
            )
            for property_name, found in rows.items()
        ],
    )


def _details(stem: str, probes: list[tuple[int, Probe]]) -> Table:
    return Table(
        id=f"details-{stem}",
        caption="The numbers behind it",
        columns=[
            Column("Property", "name"),
            Column("Precision", "nowrap"),
            Column("Number", "name"),
            Column("Value", "n"),
        ],
        rows=[
            TableRow([Cell(probe.name), Cell(probe.precision), Cell(name), Cell(_scalar(value))])
            for _, probe in probes
            for name, value in probe.details.items()
        ],
    )


def _scalar(value: Scalar) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else str(value)


def _facts(entry: PassportEntry) -> list[Fact]:
    passport = entry.passport
    device = passport.device
    taken = (instant(passport.finished_at) - instant(passport.started_at)).total_seconds()
    return [
        Fact("Backend", Cell(device.backend)),
        Fact("Mode", Cell(passport.mode)),
        Fact("Chip", Cell(device.chip)),
        Fact("Chips and cores", Cell(f"{device.chips:,} and {device.cores:,}")),
        Fact(
            "Instance type",
            Cell(device.instance_type or UNKNOWN, note=passport.unknown.get("device.instance_type", "")),
        ),
        *(Fact(f"Read back: {name}", Cell(str(value))) for name, value in sorted(device.read_back.items())),
        Fact("Taken", Cell(utc(passport.started_at), note=f"in {seconds(taken)}")),
        Fact("Simulated", Cell("yes" if passport.simulated else "no")),
        Fact("Stored as", Cell(entry.path)),
    ]


def _switches(passport: Passport) -> Table:
    """The numerics switches by precision; a row in which precisions differ is marked."""
    precisions = list(passport.numerics)
    names = sorted({name for each in passport.numerics.values() for name in each}, key=natural_key)
    rows = []
    for name in names:
        values = [str(passport.numerics[precision].get(name, "not set")) for precision in precisions]
        rows.append(TableRow([Cell(name), *(Cell(value) for value in values)], differs=len(set(values)) > 1))
    return Table(
        id="switches-table",
        caption="Numerics switches in force, by precision",
        columns=[Column("Switch", "name"), *(Column(precision) for precision in precisions)],
        rows=rows,
    )


def _environment(passport: Passport) -> Table:
    environment = passport.environment
    values = [
        *(("version", name, value) for name, value in sorted(environment.versions.items())),
        *(("flag", name, str(value)) for name, value in sorted(environment.flags.items())),
        *(("cpu", name, str(value)) for name, value in sorted(environment.cpu.items())),
        ("checkout", "commit", environment.git.commit or UNKNOWN),
        ("fingerprint", "value", environment.fingerprint),
    ]
    return Table(
        id="environment-table",
        caption="Software, flags and host",
        columns=[Column("Kind", "name"), Column("Name", "nowrap"), Column("Value", "name")],
        rows=[TableRow([Cell(text) for text in value]) for value in values],
    )
