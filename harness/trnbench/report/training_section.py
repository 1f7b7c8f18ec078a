"""The part of a record's page that shows a training to quality: loss curves, runs, score, and every evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.case import QUALITY_PHASES
from trnbench.records.quality_score import quality_score
from trnbench.report.format import minutes, number, seconds
from trnbench.report.training_curves import loss_figure
from trnbench.report.training_words import (
    converged_tag,
    floor_words,
    role_tag,
    rule_words,
    score_words,
    training_runs,
    unscored_words,
)
from trnbench.report.views import Cell, Column, Figure, Table, TableRow

if TYPE_CHECKING:
    from trnbench.records.schema import Record


class TrainingSection(msgspec.Struct, frozen=True, kw_only=True):
    """What the section shows; `nothing` says why there is no run, and is empty otherwise."""

    score: str
    rule: str
    floor: str
    nothing: str
    figure: Figure | None
    runs: Table
    evaluations: Table
    learning: Table


def training_section(record: Record) -> TrainingSection | None:
    """The section of a record that trained to a quality, None for any other."""
    if record.case.phase not in QUALITY_PHASES:
        return None
    runs = training_runs(record)
    evaluations = _evaluations(record)
    return TrainingSection(
        score=score_words(runs) if runs else "",
        rule=rule_words(runs),
        floor=floor_words(record),
        nothing="" if runs else record.reason or "no run was kept",
        figure=loss_figure(record, f"record-{record.record_id}-training", evaluations.id),
        runs=runs_table(record, "training-table"),
        evaluations=evaluations,
        learning=_learning(record),
    )


def runs_table(record: Record, table_id: str) -> Table:
    """Every run, in the order of time, with its part in the score."""
    runs = training_runs(record)
    found = quality_score(runs)
    return Table(
        id=table_id,
        caption="Every run of the set",
        columns=[
            Column("Seed", "name"),
            Column("Target", "nowrap"),
            Column("Samples", "n", "until it stopped"),
            Column("Time", "n", "evaluations included"),
            Column("Initialisation", "n", "before the clock"),
            Column("Last loss", "n", "nats a token"),
            Column("Olympic rule", "nowrap"),
            Column("Not scored", "reason"),
        ],
        rows=[
            TableRow(
                [
                    Cell(str(run.seed)),
                    Cell(tag=converged_tag(run)),
                    Cell(number(run.samples), note=f"{run.tokens:,} tokens"),
                    Cell(minutes(run.seconds), note=seconds(run.seconds)),
                    Cell(seconds(run.init_seconds)),
                    Cell(number(run.evaluations[-1].loss) if run.evaluations else "n/a"),
                    Cell(tag=role_tag(run, found)),
                    Cell(unscored_words(run)),
                ]
            )
            for run in runs
        ],
    )


def _evaluations(record: Record) -> Table:
    return Table(
        id="evaluations-table",
        caption="Every evaluation of every seed",
        columns=[
            Column("Seed", "name"),
            Column("Samples", "n"),
            Column("Time", "n", "since the clock started"),
            Column("Loss", "n", "nats a token"),
        ],
        rows=[
            TableRow(
                [Cell(str(run.seed)), Cell(number(one.samples)), Cell(seconds(one.seconds)), Cell(number(one.loss))]
            )
            for run in training_runs(record)
            for one in run.evaluations
        ],
    )


def _learning(record: Record) -> Table:
    """Hyperparameters, those that every seed shares in one row each."""
    runs = training_runs(record)
    names = list(dict.fromkeys(name for run in runs for name in run.learning))
    values = {name: list(dict.fromkeys(str(run.learning.get(name, "absent")) for run in runs)) for name in names}
    return Table(
        id="learning-table",
        caption="Hyperparameters",
        columns=[Column("Name", "name"), Column("Value", "name")],
        rows=[TableRow([Cell(name.replace("_", " ")), Cell(", ".join(found))]) for name, found in values.items()],
    )
