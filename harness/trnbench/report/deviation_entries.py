"""Known deviations, an entry each: why a check is expected to fail, how to see it, until when, and where it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.report.conformance_tables import checks_of
from trnbench.report.format import count
from trnbench.report.names import deviation_anchor, record_page
from trnbench.report.ordering import natural_key
from trnbench.report.views import Cell, Column, Fact, Table, TableRow

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from trnbench.records.deviations import Deviation
    from trnbench.records.schema import Check, Record
    from trnbench.report.checked_records import Stack
    from trnbench.report.material import Material

Seen = list[tuple["Stack", "Record", "Check"]]
NO_TEXT = "Its text is not at hand: no list of deviations with this id was given when this site was built."


class DeviationEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation. `link` is empty unless it is an https address, which alone a page may lead to."""

    id: str
    title: str
    reason: str
    link: str
    facts: list[Fact]
    reproduction: str
    seen: Table
    seen_words: str


def deviation_entries(stacks: list[Stack], material: Material) -> list[DeviationEntry]:
    """Every deviation that a check of any record names or a list holds: those seen now first, by backend and id."""
    listed = {(backend, one.id): one for backend, entries in material.deviations.items() for one in entries}
    seen: dict[tuple[str, str], Seen] = {}
    for stack, record, check in checks_of(stacks):
        if check.deviation:
            seen.setdefault((record.device.backend, check.deviation), []).append((stack, record, check))
    named = {
        (entry.record.device.backend, check.deviation)
        for entry in material.entries
        for check in entry.record.conformance
        if check.deviation
    }
    keys = sorted({*listed, *named}, key=lambda key: (key not in seen, key[0], natural_key(key[1])))
    return [_entry(key, listed.get(key), seen.get(key, []), material.today) for key in keys]


def _entry(key: tuple[str, str], listed: Deviation | None, seen: Seen, today: date | None) -> DeviationEntry:
    backend, name = key
    anchor = deviation_anchor(backend, name)
    facts = [Fact("Backend", Cell(backend))]
    if listed is not None:
        facts += _facts(listed, today)
    address = listed.link.strip() if listed is not None else ""
    return DeviationEntry(
        id=anchor,
        title=name,
        reason=" ".join(listed.reason.split()) if listed is not None else NO_TEXT,
        link=address if address.startswith("https://") else "",
        facts=facts,
        reproduction=listed.reproduction.strip("\n") if listed is not None else "",
        seen=_seen_table(seen, f"{anchor}-seen"),
        seen_words=_seen_words(seen),
    )


def _facts(listed: Deviation, today: date | None) -> list[Fact]:
    expired = today is not None and today > listed.expires
    scope = {
        "Checks": listed.checks,
        "Only where it looks like": listed.looks_like,
        "Only in precision": listed.precision,
        "Only in mode": listed.mode,
        "Only with": [f"{name} {wanted}" for name, wanted in listed.packages.items()],
    }
    return [
        Fact("Expires", Cell(listed.expires.isoformat(), note=_expiry(today, expired=expired))),
        Fact("Link", Cell(listed.link)),
        *(Fact(name, Cell(", ".join(values))) for name, values in scope.items() if values),
    ]


def _expiry(today: date | None, *, expired: bool) -> str:
    if expired:
        return f"expired by {today}: what it names fails again"
    return "after this day what it names fails again"


def _seen_words(seen: Seen) -> str:
    if not seen:
        return "Seen in no record that counts now."
    excused = [record.record_id for _, record, check in seen if check.verdict == "known deviation"]
    told = f"Seen in {count(len(excused), 'check')} of {count(len(set(excused)), 'record')}"
    passed = len(seen) - len(excused)
    return f"{told}; {count(passed, 'listed check')} passed, which was not expected" if passed else told


def _seen_table(seen: Seen, table_id: str) -> Table:
    """One row a record, with all its checks that the deviation covers."""
    by_record: dict[str, Seen] = {}
    for stack, record, check in seen:
        by_record.setdefault(record.record_id, []).append((stack, record, check))
    return Table(
        id=table_id,
        caption="Where it was seen",
        headed=True,
        columns=[
            Column("Case", "name"),
            Column("Checks", "reason"),
            Column("Looks like", "told"),
        ],
        rows=[
            TableRow(
                [
                    Cell(group[0][1].case.id, record_page(group[0][1]) + "#checks", group[0][0].label),
                    Cell(_distinct(_check_words(check) for _, _, check in group)),
                    Cell(_distinct(check.looks_like for _, _, check in group) or "n/a"),
                ]
            )
            for group in by_record.values()
        ],
    )


def _check_words(check: Check) -> str:
    return check.check + (" (passed)" if check.verdict == "unexpected pass" else "")


def _distinct(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))
