"""The tables of a record's page: rounds, warm-up, environment, what is unknown, and files beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.report.format import byte_size, number, seconds
from trnbench.report.material import UNKNOWN, shown_path
from trnbench.report.metric_names import capitalised, round_words
from trnbench.report.ordering import natural_key
from trnbench.report.views import Cell, Column, Table, TableRow

if TYPE_CHECKING:
    from trnbench.records.schema import Record
    from trnbench.report.material import Entry


def rounds_table(record: Record) -> Table:
    """Every timed round; the rounds of a served case are in LoadGen's own metric."""
    words = round_words(record.case)
    rounds = record.measurement.rounds if record.measurement else []
    units = sorted({unit for one in rounds for unit in one.items})
    return Table(
        id="rounds-table",
        caption="Every timed round" if words == "duration" else f"Every round, in seconds: {words}",
        columns=[
            Column("Round", "name"),
            Column(capitalised(words), "n"),
            *(Column(unit.replace("_", " ").capitalize(), "n") for unit in units),
            Column("Compiles", "n"),
            Column("Fallbacks", "n"),
            Column("Energy", "n", "joules"),
        ],
        rows=[
            TableRow(
                [
                    Cell(f"{place:,}"),
                    Cell(seconds(one.seconds)),
                    *(Cell(number(one.items.get(unit))) for unit in units),
                    Cell(number(one.compiles)),
                    Cell(number(one.fallbacks)),
                    Cell(number(one.energy_joules)),
                ]
            )
            for place, one in enumerate(rounds, 1)
        ],
    )


def warmup_table(record: Record) -> Table:
    """The steps before the rounds."""
    steps = record.measurement.warmup if record.measurement else []
    return Table(
        id="warmup-table",
        caption="Warm-up steps, before the rounds",
        columns=[Column("Step", "name"), Column("Duration", "n"), Column("Compiles", "n")],
        rows=[
            TableRow([Cell(f"{place:,}"), Cell(seconds(step.seconds)), Cell(number(step.compiles))])
            for place, step in enumerate(steps, 1)
        ],
    )


def environment_table(record: Record) -> Table:
    """Versions, flags, host and checkout."""
    environment = record.environment
    git = environment.git
    groups: list[tuple[str, dict[str, str]]] = [
        ("version", dict(environment.versions)),
        ("flag", {name: str(value) for name, value in environment.flags.items()}),
        ("cpu", {name: str(value) for name, value in environment.cpu.items()}),
        (
            "checkout",
            {
                "commit": git.commit or UNKNOWN,
                "dirty": UNKNOWN if git.dirty is None else str(git.dirty).lower(),
                "diff hash": git.diff_hash or "none",
            },
        ),
        (
            "fingerprint",
            {"value": environment.fingerprint, "version of its rule": str(environment.fingerprint_version)},
        ),
    ]
    return Table(
        id="environment-table",
        caption="Software, flags and host",
        columns=[Column("Kind", "name"), Column("Name", "nowrap"), Column("Value", "name")],
        rows=[
            TableRow([Cell(kind), Cell(name), Cell(values[name])])
            for kind, values in groups
            for name in sorted(values, key=natural_key)
        ],
    )


def unknown_table(record: Record) -> Table:
    """Every null of the record with its reason."""
    return Table(
        id="unknown-table",
        caption="Values that are not known, and why",
        columns=[Column("Value", "name"), Column("Why", "reason")],
        rows=[TableRow([Cell(path), Cell(reason)]) for path, reason in sorted(record.unknown.items())],
    )


def artifacts_table(entry: Entry) -> Table:
    """Files stored beside the record, linked where they still are what was stored."""
    return Table(
        id="artifacts-table",
        caption="Files beside the record",
        columns=[
            Column("Name", "name"),
            Column("Size", "n"),
            Column("Path", "name", "beside the record"),
            Column("SHA-256", "name"),
            Column("Missing", "reason"),
        ],
        rows=[
            TableRow(
                [
                    Cell(one.artifact.name, one.target),
                    Cell(byte_size(len(one.data)) if one.data is not None else "n/a"),
                    Cell(shown_path(one.artifact)),
                    Cell(one.artifact.sha256),
                    Cell(one.problem),
                ]
            )
            for one in entry.files
        ],
    )
