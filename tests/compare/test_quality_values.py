"""The score of trainings to quality against values calculated by hand, and when there is none."""

from __future__ import annotations

import math
from typing import Any

import pytest
from factory import H100, make_case, make_device, make_measurement, make_record, make_training_run
from hypothesis import given
from hypothesis import strategies as st

from trnbench.compare import metrics
from trnbench.compare.admission import refusal
from trnbench.compare.engine import compare_records
from trnbench.compare.gate import gate
from trnbench.records.quality_score import LEAST_SCORED_RUNS, quality_score
from trnbench.records.schema import Evaluation, Record, TrainingRun


def trained(runs: list[TrainingRun], **fields: Any) -> Record:
    """A record of one set of runs, a round each."""
    rounds = fields.pop("seconds", [run.seconds for run in runs])
    measured = make_measurement(rounds, {"tokens": 65536, "samples": 512}, training=runs, flops=None)
    return make_record(case=make_case(phase=fields.pop("phase", "pretrain")), measurement=measured, **fields)


def seeds(*seconds: float, **changes: Any) -> list[TrainingRun]:
    return [make_training_run(seed, each, **changes) for seed, each in enumerate(seconds, 1)]


def test_the_olympic_mean_by_hand() -> None:
    """Of 90, 100, 120, 130 and 400 s the fastest and slowest go: (100 + 120 + 130) / 3 s."""
    found = quality_score(seeds(120.0, 400.0, 100.0, 90.0, 130.0))
    assert found.seconds == pytest.approx(350 / 3)
    assert (found.fastest, found.slowest) == (4, 2)
    values = metrics.metric_values(trained(seeds(120.0, 400.0, 100.0, 90.0, 130.0)))
    assert values == {"runs_to_quality_per_second": pytest.approx(3 / 350), "seconds_to_quality": found.seconds}
    assert metrics.METRICS["runs_to_quality_per_second"].unit == "run/s"
    assert metrics.METRICS["runs_to_quality_per_second"].higher_is_better
    assert metrics.METRICS["seconds_to_quality"].unit == "s"


@pytest.mark.parametrize("phase", ["pretrain", "finetune_lora"])
def test_three_runs_leave_the_middle_one(phase: str) -> None:
    """Of three the middle one is the score, in both phases, whatever unit the rounds are in."""
    record = trained(seeds(10.0, 40.0, 20.0), phase=phase, seconds=[1.0, 1.0, 1.0])
    assert metrics.metric_values(record)["seconds_to_quality"] == 20.0
    assert metrics.headline_metric(record.case).name == "runs_to_quality_per_second"


def test_a_run_that_did_not_converge_is_the_slowest() -> None:
    """It stopped early, after 5 s, and still counts as the worst: the score is that of the other two's slower one."""
    runs = [*seeds(100.0, 120.0), make_training_run(9, 5.0, converged=False, scored=False)]
    found = quality_score(runs)
    assert (found.seconds, found.fastest, found.slowest) == (120.0, 1, 9)


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        (seeds(1.0), "1 run; a score needs at least 3, as the fastest and the slowest are dropped"),
        (seeds(1.0, 2.0), "2 runs; a score needs at least 3, as the fastest and the slowest are dropped"),
        (
            [*seeds(1.0, 2.0), *(make_training_run(seed, converged=False) for seed in (8, 9))],
            "2 of 4 runs did not reach the target; a score allows at most 1",
        ),
        (
            [*seeds(1.0, 2.0, 3.0), make_training_run(7, resumed_at=[128], scored=False)],
            "the run with seed 7 was resumed after 128 samples; its time is no score",
        ),
        (
            [*seeds(1.0, 2.0), make_training_run(7, scored=False)],
            "the run with seed 7 is marked as not to be scored",
        ),
        (
            [*seeds(1.0, 2.0, 3.0), make_training_run(3)],
            "the run with seed 3 is told 2 times; each run needs a seed of its own",
        ),
        (
            [*seeds(1.0, 2.0), make_training_run(7, evaluations=[Evaluation(samples=1, seconds=1.0, loss=math.nan)])],
            "the run with seed 7 has an evaluation loss of nan after 1 samples",
        ),
    ],
)
def test_sets_without_a_score_say_why(runs: list[TrainingRun], why: str) -> None:
    """No score is no value and no 0: the record is refused with the reason."""
    assert quality_score(runs).seconds is None
    assert quality_score(runs).reason == why
    record = trained(runs)
    assert metrics.metric_values(record) == {}
    refused = refusal(record)
    assert refused is not None
    assert (refused.verdict, refused.reason) == ("no common metric", f"no score: {why}")


def test_runs_that_contradict_themselves_give_no_value() -> None:
    """B14: an evaluation after more samples than were trained on, or no time at all."""
    late = make_training_run(2, evaluations=[Evaluation(samples=513, seconds=1.0, loss=1.0)])
    record = trained([*seeds(1.0), late, make_training_run(3)])
    assert metrics.inconsistency(record) == "the run with seed 2 evaluated after 513 samples, but ended after 512"
    record = trained(seeds(1.0, 0.0, 2.0), seconds=[1.0] * 3)
    assert metrics.inconsistency(record) == "the run with seed 2 took 0.0 s"


def test_no_mfu_no_batch_and_no_drift() -> None:
    """Evaluations are inside the time, rounds are whole trainings, and seeds differ in how long they take."""
    record = trained(seeds(10.0, 11.0, 30.0, 31.0))
    assert metrics.mfu(record).startswith("not computed for trainings to quality")
    assert metrics.batch_mismatch(record) is None
    assert refusal(record) is None
    others = [trained(seeds(10.0, 11.0, 30.0, 31.0), run=f"h{n}", device=make_device(**H100)) for n in range(3)]
    (found,) = compare_records([record, *others], "device")
    assert not any("drift" in note for note in found.notes)


def test_comparison_and_gate_use_the_score() -> None:
    """Twice as fast to the target is a ratio of 2, and half as fast a regression."""

    def sets(score: float, prefix: str, **fields: Any) -> list[Record]:
        return [trained(seeds(1.0, score + n / 100, 900.0), run=f"{prefix}-{n}", **fields) for n in range(3)]

    (found,) = compare_records([*sets(20.0, "c"), *sets(10.0, "h", device=make_device(**H100))], "device")
    assert found.throughput_ratio is not None
    assert found.throughput_ratio.value == pytest.approx(2.0, rel=0.01)
    assert found.metric is not None
    assert found.metric.unit == "run/s"
    assert found.costs == []
    (entry,) = gate(sets(10.0, "old"), sets(20.0, "new")).entries
    assert (entry.outcome, entry.metric) == ("regressed", "runs_to_quality_per_second")


times = st.lists(st.floats(1e-2, 1e6), min_size=LEAST_SCORED_RUNS, max_size=12)


@given(seconds=times, data=st.data())
def test_the_score_lies_among_the_runs_whatever_their_order(seconds: list[float], data: st.DataObject) -> None:
    """Between the second fastest and the second slowest; another order of runs is the same score."""
    runs = seeds(*seconds)
    found = quality_score(runs).seconds
    assert found is not None
    ordered = sorted(seconds)
    assert ordered[1] * (1 - 1e-12) <= found <= ordered[-2] * (1 + 1e-12)
    assert quality_score(data.draw(st.permutations(runs))).seconds == pytest.approx(found)


@given(seconds=times, early=st.floats(1e-3, 1e7))
def test_giving_up_never_makes_a_score_better(seconds: list[float], early: float) -> None:
    """Whenever the run that does not converge gives up, the score is that of a run that took for ever."""
    failed = make_training_run(99, early, converged=False)
    endless = make_training_run(99, 1e9)
    assert quality_score([*seeds(*seconds), failed]).seconds == quality_score([*seeds(*seconds), endless]).seconds
