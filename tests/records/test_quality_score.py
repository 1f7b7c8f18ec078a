"""The olympic mean against a plain statement of it, and every reason for which there is none."""

from __future__ import annotations

import math
import statistics

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.records.quality_score import quality_score
from trnbench.records.schema import Evaluation, TrainingRun

times = st.floats(min_value=1e-3, max_value=1e6)


def run(seed: int, seconds: float, **changes: object) -> TrainingRun:
    plain = TrainingRun(
        seed=seed,
        converged=True,
        scored=True,
        resumed_at=[],
        samples=1280,
        tokens=81_920,
        seconds=seconds,
        init_seconds=0.8,
        target=2.1,
        floor=1.46,
        evaluations=[Evaluation(samples=1280, seconds=seconds, loss=2.0)],
        losses=[8.4, 2.9, 2.1],
        loss_every=32,
        learning={},
    )
    return msgspec.structs.replace(plain, **changes)


def runs_of(seconds: list[float]) -> list[TrainingRun]:
    return [run(seed, value) for seed, value in enumerate(seconds)]


@given(st.lists(times, min_size=3, max_size=12))
def test_the_mean_without_the_fastest_and_the_slowest(seconds: list[float]) -> None:
    rest = list(seconds)
    rest.remove(min(rest))
    rest.remove(max(rest))
    found = quality_score(runs_of(seconds))
    assert found.seconds == pytest.approx(statistics.fmean(rest))
    assert min(rest) <= found.seconds <= max(rest)
    assert found.reason == ""
    assert seconds[found.fastest] == min(seconds)
    assert seconds[found.slowest] == max(seconds)
    assert found.fastest != found.slowest


@given(st.lists(times, min_size=3, max_size=8), st.randoms(use_true_random=False), st.booleans())
def test_order_does_not_matter(seconds: list[float], random: object, missed: bool) -> None:
    runs = runs_of(seconds)
    if missed:
        runs[0] = msgspec.structs.replace(runs[0], converged=False)
    shuffled = list(runs)
    random.shuffle(shuffled)
    assert quality_score(shuffled) == quality_score(runs)


@given(st.lists(times, min_size=2, max_size=8), times)
def test_a_run_that_missed_the_target_is_the_dropped_slowest(seconds: list[float], its_time: float) -> None:
    missed = run(1000, its_time, converged=False, scored=False)
    found = quality_score([*runs_of(seconds), missed])
    assert found.slowest == 1000
    assert found.seconds == pytest.approx(statistics.fmean(sorted(seconds)[1:]))


@given(st.lists(times, min_size=3, max_size=8), st.integers(0, 7))
def test_a_slower_run_never_betters_the_score(seconds: list[float], which: int) -> None:
    runs = runs_of(seconds)
    which %= len(runs)
    slower = [*runs[:which], run(which, seconds[which] * 2), *runs[which + 1 :]]
    missed = [*runs[:which], msgspec.structs.replace(runs[which], converged=False), *runs[which + 1 :]]
    least = quality_score(runs).seconds * (1 - 1e-12)
    assert quality_score(slower).seconds >= least
    assert quality_score(missed).seconds >= least


def test_ten_runs_by_hand() -> None:
    found = quality_score(runs_of([10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 99.0]))
    assert found.seconds == 14.5
    assert (found.fastest, found.slowest) == (0, 9)


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ([], "0 runs; a score needs at least 3"),
        (runs_of([1.0]), "1 run; a score needs at least 3"),
        (runs_of([1.0, 2.0]), "2 runs; a score needs at least 3"),
        (
            [run(1, 1.0), run(2, 2.0, converged=False), run(3, 3.0, converged=False), run(4, 4.0)],
            "2 of 4 runs did not reach the target; a score allows at most 1",
        ),
        (
            [run(1, 1.0), run(2, 2.0, scored=False, resumed_at=[640]), run(3, 3.0)],
            "seed 2 was resumed after 640 samples",
        ),
        # Whatever the flag says: time that another process spent is not in it.
        ([run(1, 1.0), run(2, 2.0, resumed_at=[640]), run(3, 3.0)], "seed 2 was resumed after 640 samples"),
        ([run(1, 1.0), run(2, 2.0, scored=False), run(3, 3.0)], "seed 2 is marked as not to be scored"),
        ([run(1, 1.0), run(2, math.inf), run(3, 3.0)], "seed 2 took inf s"),
        ([run(1, 1.0), run(2, 0.0), run(3, 3.0)], "seed 2 took 0.0 s"),
    ],
)
def test_no_score_and_why(runs: list[TrainingRun], reason: str) -> None:
    found = quality_score(runs)
    assert found.seconds is None
    assert reason in found.reason
    assert (found.fastest, found.slowest) == (None, None)


def test_a_loss_that_is_not_finite_leaves_no_score() -> None:
    # Field case C12: the last loss is fine again, and the run claims success.
    runs = [run(1, 1.0), run(2, 2.0, losses=[2.1, math.nan, math.nan, 2.0], loss_every=1), run(3, 3.0)]
    found = quality_score(runs)
    assert found.seconds is None
    assert found.reason == "the run with seed 2 has a training loss of nan (value 2 of 4, one every 1 steps)"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_evaluation_that_is_not_finite_leaves_no_score(bad: float) -> None:
    evaluations = [Evaluation(samples=640, seconds=1.0, loss=bad), Evaluation(samples=1280, seconds=2.0, loss=2.0)]
    # Not even where the run would be dropped.
    found = quality_score([run(1, 1.0, evaluations=evaluations), run(2, 2.0), run(3, 3.0)])
    assert found.seconds is None
    assert f"evaluation loss of {bad} after 640 samples" in found.reason


@given(st.lists(times, min_size=2, max_size=5))
def test_a_seed_twice_leaves_no_score(seconds: list[float]) -> None:
    found = quality_score([*runs_of(seconds), run(0, 1.0)])
    assert found.seconds is None
    assert found.reason == "the run with seed 0 is told 2 times; each run needs a seed of its own"
