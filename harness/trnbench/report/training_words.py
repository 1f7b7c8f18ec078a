"""What a training to quality says, in words: its score, its floor, and each run's part in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.records.quality_score import SCORE_RULE, quality_score
from trnbench.report.format import count, minutes, number, seconds
from trnbench.report.views import Tag

if TYPE_CHECKING:
    from trnbench.records.quality_score import QualityScore
    from trnbench.records.schema import Record, TrainingRun


def training_runs(record: Record) -> list[TrainingRun]:
    """The record's runs, in the order of time."""
    return record.measurement.training if record.measurement else []


def score_words(runs: list[TrainingRun]) -> str:
    """The score, or why there is none."""
    found = quality_score(runs)
    if found.seconds is None:
        return f"No score: {found.reason}."
    return f"Score: {minutes(found.seconds)} ({seconds(found.seconds)}) to the target, of {count(len(runs), 'run')}."


def rule_words(runs: list[TrainingRun]) -> str:
    """The rule of the score, and which seeds it dropped."""
    found = quality_score(runs)
    rule = f"Rule of the score: {SCORE_RULE}."
    return rule if found.seconds is None else f"{rule} Dropped: seeds {found.fastest} and {found.slowest}."


def floor_words(record: Record) -> str:
    """What the target is measured against: the floor, or why nobody knows one."""
    runs = training_runs(record)
    targets = sorted({run.target for run in runs})
    if not targets:
        return ""
    aim = f"Target: a loss of {' or '.join(map(number, targets))} nats a token on held-out data."
    floors = sorted({run.floor for run in runs if run.floor is not None})
    if not floors:
        reason = next((why for path, why in record.unknown.items() if _names_floor(path)), "no reason recorded")
        return f"{aim} Floor, the loss of the best possible predictor: unknown, {reason}."
    return f"{aim} Floor, the loss of the best possible predictor: {' or '.join(map(number, floors))}."


def role_tag(run: TrainingRun, found: QualityScore) -> Tag:
    """What the olympic rule made of the run."""
    if found.seconds is None:
        return Tag("", "?", "no score")
    if run.seed == found.fastest:
        return Tag("", "\u2212", "dropped: fastest")
    if run.seed == found.slowest:
        return Tag("", "\u2212", "dropped: slowest")
    return Tag("good", "\u2713", "kept")


def converged_tag(run: TrainingRun) -> Tag:
    """Whether the run reached the target."""
    return Tag("good", "\u2713", "converged") if run.converged else Tag("bad", "\u2715", "did not converge")


def unscored_words(run: TrainingRun) -> str:
    """Why the run's time is no score; empty where it is one."""
    if run.resumed_at:
        return f"resumed after {_joined(run.resumed_at)} samples: its time is no score"
    if not run.converged:
        return "did not reach the target: counts as the slowest"
    return "" if run.scored else "marked as not to be scored"


def seed_words(run: TrainingRun) -> str:
    """A run's line in a legend."""
    told = "converged" if run.converged else "did not converge"
    resumed = f", resumed after {_joined(run.resumed_at)} samples (dotted)" if run.resumed_at else ""
    return f"seed {run.seed}: {told} after {count(run.samples, 'sample')}, {seconds(run.seconds)}{resumed}"


def _joined(samples: list[int]) -> str:
    return " and ".join(f"{number:,}" for number in samples)


def _names_floor(path: str) -> bool:
    return path.startswith("measurement.training[") and path.endswith("].floor")
