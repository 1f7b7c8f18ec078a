"""The checks of a case that measures nothing, in groups: failures, what is listed, what was not made, then passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.schema import FAILED
from trnbench.report.check_tables import checks_table, subject
from trnbench.report.format import count
from trnbench.report.names import file_stem
from trnbench.report.views import Table

if TYPE_CHECKING:
    from trnbench.records.schema import Check, Record, Verdict

_FEW = 15
"""So many passes are shown in one open table; more are folded by operator."""

_GROUPS: tuple[tuple[str, str, str, tuple[Verdict, ...]], ...] = (
    ("failed", "Failed", "", FAILED),
    (
        "unexpected",
        "Unexpected passes",
        "These pass although a deviation lists them: the list may be out of date.",
        ("unexpected pass",),
    ),
    ("known", "Known deviations", "These fail as listed, each with a reason and a date.", ("known deviation",)),
    ("not-checked", "Not checked", "", ("not checked",)),
    ("reported", "Reported, never judged", "What other projects look at, beside their threshold.", ("reported",)),
    ("passed", "Passed", "", ("pass",)),
)


class CheckGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Checks of a kind: open tables, or folded ones."""

    id: str
    heading: str
    words: str
    tables: list[Table]
    folded: bool


def check_groups(record: Record) -> list[CheckGroup]:
    """Every check of the record in exactly one group, failures first; groups without a check are left out."""
    groups = []
    for name, heading, words, verdicts in _GROUPS:
        checks = [check for check in record.conformance if check.verdict in verdicts]
        if checks:
            folded = len(checks) > _FEW and name not in ("failed", "unexpected")
            tables = (
                _by_operator(record, checks, name)
                if folded
                else [checks_table(record, checks, f"checks-{name}", heading, headed=True)]
            )
            title = f"{heading}: {count(len(checks), 'check')}"
            groups.append(CheckGroup(id=f"group-{name}", heading=title, words=words, tables=tables, folded=folded))
    return groups


def _by_operator(record: Record, checks: list[Check], name: str) -> list[Table]:
    grouped: dict[str, list[Check]] = {}
    for check in checks:
        grouped.setdefault(subject(check), []).append(check)
    return [
        checks_table(record, group, f"checks-{name}-{file_stem(operator)}", f"{operator}: {count(len(group), 'check')}")
        for operator, group in grouped.items()
    ]
