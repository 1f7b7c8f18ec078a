"""All passports: who has one, and which pairs are set side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.passport import PASSPORTS
from trnbench.report.format import count, utc
from trnbench.report.names import passport_page, passport_pair_page
from trnbench.report.passport_names import newest_passports, pairs_worth_comparing, passport_label, sides
from trnbench.report.passport_pair_page import differences_words
from trnbench.report.views import Cell, Column, Table, TableRow

if TYPE_CHECKING:
    from trnbench.report.material import Material, PassportEntry, Refused

_WHAT: dict[str, str] = {
    "backend": "backends or chips",
    "mode": "modes of one device",
    "stack": "software stacks or machines",
}


class PassportsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the list of passports shows."""

    words: str
    table: Table
    pairs: Table
    refused: Table
    left_out: str


def build_passports(material: Material) -> PassportsPage | None:
    """The page, or None where there is neither a passport nor a file that should be one."""
    refused = [one for one in material.refused if one.path.startswith(f"{PASSPORTS}/")]
    if not material.passports and not refused:
        return None
    return PassportsPage(
        words=passports_sentence(material),
        table=_table(material.passports),
        pairs=_pairs(material),
        refused=_refused(refused),
        left_out=f"{count(material.passports_left_out, 'passport')} left out because a simulated device gave it."
        if material.passports_left_out
        else "",
    )


def passports_sentence(material: Material) -> str:
    """What the front page says of the passports."""
    pairs = len(pairs_worth_comparing(material.passports))
    return f"{count(len(material.passports), 'passport')}, {count(pairs, 'pair')} set side by side."


def _table(entries: list[PassportEntry]) -> Table:
    newest = {entry.passport.passport_id for entry in newest_passports(entries)}
    return Table(
        id="passports-table",
        caption="Passports, newest first",
        columns=[
            Column("Passport", "name"),
            Column("Torch", "nowrap"),
            Column("Taken", "nowrap"),
            Column("Probes", "n"),
            Column("Without an answer", "n"),
            Column("Counts", "nowrap"),
        ],
        rows=[
            TableRow(
                [
                    Cell(passport_label(one), passport_page(one), "simulated" if one.simulated else ""),
                    Cell(one.environment.versions.get("torch", "unknown")),
                    Cell(utc(one.started_at)),
                    Cell(f"{len(one.probes):,}"),
                    Cell(f"{sum(probe.verdict is None for probe in one.probes):,}"),
                    Cell("yes" if one.passport_id in newest else "no: a newer one"),
                ]
            )
            for one in (entry.passport for entry in reversed(entries))
        ],
    )


def _pairs(material: Material) -> Table:
    return Table(
        id="pairs-table",
        caption="Side by side",
        headed=True,
        columns=[Column("Pair", "name"), Column("Unlike in", "nowrap"), Column("Differences", "reason")],
        rows=[
            TableRow(
                [
                    Cell(" against ".join(sides(pair)), passport_pair_page(pair[0].passport, pair[1].passport)),
                    Cell(_WHAT[what]),
                    Cell(differences_words(pair)),
                ]
            )
            for what, pair in pairs_worth_comparing(material.passports)
        ],
    )


def _refused(refused: list[Refused]) -> Table:
    return Table(
        id="refused-passports-table",
        caption="Files that could not be read as passports",
        headed=True,
        columns=[Column("File", "name"), Column("Reason", "reason")],
        rows=[TableRow([Cell(one.path), Cell(one.reason)]) for one in refused],
    )
