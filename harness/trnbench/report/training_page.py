"""How long until it has learned? Trainings to quality by case, devices beside each other, with their loss curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.case import QUALITY_PHASES
from trnbench.compare.metrics import metric_values
from trnbench.records.quality_score import SCORE_RULE, quality_score
from trnbench.report.format import count, minutes, number, seconds, utc
from trnbench.report.metric_names import PHASE_WORDS
from trnbench.report.names import file_stem, record_page
from trnbench.report.newest_cases import CaseRecords, Newest, devices_in, newest_cases, version_note, without_values
from trnbench.report.training_curves import Trained, devices_loss_figure
from trnbench.report.training_words import converged_tag, floor_words, role_tag, training_runs
from trnbench.report.verdicts import status_tag
from trnbench.report.views import Cell, Column, Figure, Table, TableRow

if TYPE_CHECKING:
    from trnbench.report.material import Material

TRAINING, TRAINING_TITLE, TRAINING_SHORT = "training.html", "How long until it has learned?", "Training"
EXPORTS = (
    Cell("Every run of every training to quality (CSV)", "training.csv"),
    Cell("The same with every evaluation and the scores (JSON)", "training.json"),
)


class TrainingCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case on all its devices."""

    id: str
    heading: str
    words: str
    floors: list[str]
    table: Table
    figure: Figure | None
    nothing: str
    runs: Table


class TrainingPage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page shows."""

    headline: str
    rule: str
    cases: list[TrainingCase]
    exports: list[Cell]

    @property
    def figures(self) -> list[Figure]:
        """All its figures."""
        return [one.figure for one in self.cases if one.figure]


def build_training(material: Material) -> TrainingPage | None:
    """The page, or None where no record trains to a quality."""
    cases = newest_cases(material, QUALITY_PHASES)
    if not cases:
        return None
    devices = count(devices_in(cases), "device and stack", "devices and stacks")
    scored = sum(any(_seconds(one) is not None for one in case.newest) for case in cases)
    return TrainingPage(
        headline=f"{count(len(cases), 'training')} to quality on {devices}, {scored:,} with a score. "
        "The newest record of each is shown.",
        rule=f"Rule of the score: {SCORE_RULE}.",
        cases=[_case(one) for one in cases],
        exports=list(EXPORTS),
    )


def _seconds(one: Newest) -> float | None:
    return metric_values(one.record).get("seconds_to_quality") if one.counts else None


def _case(case: CaseRecords) -> TrainingCase:
    stem = file_stem(case.case.id)
    counted = [one for one in case.newest if one.counts]
    shown = [Trained(name=one.name, record=one.record, look=look) for look, one in enumerate(counted)]
    missing = without_values(case)
    runs = _runs(case, f"runs-{stem}")
    return TrainingCase(
        id=f"case-{stem}",
        heading=case.case.id,
        words=PHASE_WORDS[case.case.phase],
        floors=list(dict.fromkeys(filter(None, (floor_words(one.record) for one in case.newest)))),
        table=_table(case, f"scores-{stem}"),
        figure=devices_loss_figure(
            shown, f"training-{case.case.id}", runs.id, [f"no curve: {line}" for line in missing]
        ),
        nothing="; ".join(missing) or "No run was evaluated.",
        runs=runs,
    )


def _table(case: CaseRecords, table_id: str) -> Table:
    return Table(
        id=table_id,
        caption=f"{case.case.id}: the newest record on each device and stack",
        headed=True,
        columns=[
            Column("Device and stack", "name"),
            Column("Status", "nowrap"),
            Column("Score", "n", "time to quality"),
            Column("Converged", "n", "of all runs"),
            Column("Samples to target", "n", "converged runs"),
            Column("Initialisation", "n", "longest"),
            Column("Measured", "nowrap"),
            Column("Why no score", "reason"),
        ],
        rows=[_row(one, case) for one in case.newest],
    )


def _row(one: Newest, case: CaseRecords) -> TableRow:
    record, page, runs = one.record, record_page(one.record), training_runs(one.record)
    score = _seconds(one)
    samples = [run.samples for run in runs if run.converged]
    return TableRow(
        [
            Cell(one.name, page, note=version_note(one, case)),
            Cell(tag=status_tag(record.status)),
            Cell(minutes(score), page + "#values", note=seconds(score)) if score is not None else Cell("n/a"),
            Cell(f"{sum(run.converged for run in runs):,} of {len(runs):,}", page + "#training"),
            Cell(_range(samples)),
            Cell(seconds(max(run.init_seconds for run in runs)) if runs else "n/a"),
            Cell(utc(record.started_at)),
            Cell("; ".join(filter(None, (record.reason, quality_score(runs).reason if runs else "")))),
        ]
    )


def _range(samples: list[int]) -> str:
    if not samples:
        return "n/a"
    low, high = min(samples), max(samples)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _runs(case: CaseRecords, table_id: str) -> Table:
    """Every seed of every device: where its curve starts and ends."""
    rows = []
    for one in case.newest:
        runs = training_runs(one.record)
        found = quality_score(runs)
        rows += [
            TableRow(
                [
                    Cell(one.name, record_page(one.record) + "#training"),
                    Cell(str(run.seed)),
                    Cell(tag=converged_tag(run)),
                    Cell(number(run.samples)),
                    Cell(minutes(run.seconds), note=seconds(run.seconds)),
                    Cell(number(run.evaluations[0].loss) if run.evaluations else "n/a"),
                    Cell(number(run.evaluations[-1].loss) if run.evaluations else "n/a"),
                    Cell(tag=role_tag(run, found)),
                ]
            )
            for run in runs
        ]
    return Table(
        id=table_id,
        caption=f"Every seed of {case.case.id}; the evaluations between are on the records' pages",
        columns=[
            Column("Device and stack", "name"),
            Column("Seed", "n"),
            Column("Target", "nowrap"),
            Column("Samples", "n"),
            Column("Time", "n"),
            Column("First loss", "n"),
            Column("Last loss", "n"),
            Column("Olympic rule", "nowrap"),
        ],
        rows=rows,
    )
