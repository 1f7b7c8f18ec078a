"""Loss curves: every evaluation of every seed over samples and over seconds, with floor and target as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.schema import Record
from trnbench.report import curves
from trnbench.report.curves import Curve, Key, Panel, Rule, Spot
from trnbench.report.format import count, number, seconds
from trnbench.report.training_words import seed_words, training_runs
from trnbench.report.views import Figure

if TYPE_CHECKING:
    from trnbench.records.schema import TrainingRun

_LOSS = "loss on held-out data, in nats a token"


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """One device and stack of a common figure: its name, its record, and its place among the series."""

    name: str
    record: Record
    look: int


def loss_figure(record: Record, name: str, table_id: str) -> Figure | None:
    """The curves of a record's seeds, each with a look of its own; None where nothing was evaluated."""
    runs = training_runs(record)
    if not any(run.evaluations for run in runs):
        return None
    looks = list(enumerate(runs))
    keys = [Key(words=seed_words(run), look=look) for look, run in looks] + _common_keys(runs)
    title = f"Loss of every seed of {record.case.id}"
    said = f"{'; '.join(_said(run) for run in runs)}. {_lines(runs)}"
    return Figure(
        drawing=curves.curves(_panels(looks), keys, title=title, description=said),
        name=name,
        alt=f"{title}, over samples and over seconds. {said}",
        caption="Every evaluation of every seed. A run ends where it first reaches the target, or gives up.",
        table_id=table_id,
    )


def devices_loss_figure(trained: list[Trained], name: str, table_id: str, missing: list[str]) -> Figure | None:
    """All seeds of all devices over common scales, each device with one look; `missing` says who has no curve, why."""
    shown = [one for one in trained if any(run.evaluations for run in training_runs(one.record))]
    if not shown:
        return None
    looks = [(one.look, run) for one in shown for run in training_runs(one.record)]
    every = [run for _, run in looks]
    keys = [
        Key(words=f"{one.name}: {count(len(training_runs(one.record)), 'seed')}, a line each", look=one.look)
        for one in shown
    ]
    keys += [*_common_keys(every), *(Key(words=words) for words in missing)]
    title = f"Loss by device: {shown[0].record.case.id}"
    said = " ".join(f"{one.name}: {'; '.join(_said(run) for run in training_runs(one.record))}." for one in shown)
    return Figure(
        drawing=curves.curves(_panels(looks), keys, title=title, description=said),
        name=name,
        alt=f"{title}, {count(len(shown), 'device')}, over samples and over seconds. {said} {_lines(every)}",
        caption="Over samples devices should agree, whatever their speed; over seconds a faster one is further left.",
        table_id=table_id,
    )


def _panels(looks: list[tuple[int, TrainingRun]]) -> list[Panel]:
    rules = [
        *(Rule(value=target, label=f"target {number(target)}") for target in sorted({run.target for _, run in looks})),
        *(
            Rule(value=floor, label=f"floor {number(floor)}")
            for floor in sorted({run.floor for _, run in looks if run.floor is not None})
        ),
    ]
    by_samples = [
        Curve(look=look, spots=_spots(run, by_seconds=False), uprights=[float(at) for at in run.resumed_at])
        for look, run in looks
    ]
    by_seconds = [Curve(look=look, spots=_spots(run, by_seconds=True)) for look, run in looks]
    return [
        Panel(up=_LOSS, across="training samples", curves=by_samples, rules=rules, from_zero=True),
        Panel(up=_LOSS, across="seconds since the clock started", curves=by_seconds, rules=rules, from_zero=True),
    ]


def _spots(run: TrainingRun, *, by_seconds: bool) -> list[Spot]:
    last = len(run.evaluations) - 1
    return [
        Spot(
            x=one.seconds if by_seconds else float(one.samples),
            y=one.loss,
            crossed=place == last and not run.converged,
        )
        for place, one in enumerate(run.evaluations)
    ]


def _common_keys(runs: list[TrainingRun]) -> list[Key]:
    keys = []
    if any(not run.converged and run.evaluations for run in runs):
        keys.append(Key(words="crossed out: the end of a run that did not converge", sign="cross"))
    keys += [Key(words=f"no curve: seed {run.seed} was never evaluated") for run in runs if not run.evaluations]
    return keys


def _said(run: TrainingRun) -> str:
    if not run.evaluations:
        return f"seed {run.seed} was never evaluated"
    first, last = run.evaluations[0], run.evaluations[-1]
    return (
        f"{seed_words(run)}; loss from {number(first.loss)} to {number(last.loss)} in "
        f"{count(len(run.evaluations), 'evaluation')}, {seconds(last.seconds)}"
    )


def _lines(runs: list[TrainingRun]) -> str:
    floors = sorted({run.floor for run in runs if run.floor is not None})
    targets = " and ".join(number(target) for target in sorted({run.target for run in runs}))
    floor = f"floor {' and '.join(map(number, floors))}" if floors else "no known floor"
    return f"Lines: target {targets}, {floor}."
