"""Clock rules, losses that are no numbers, and counts that must agree: whole measurements of a scripted learner."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quality_world import BATCH, EVERY_STEPS, SEEDS, SEQUENCE, Script, World, open_world, tiny_case, tiny_recipe

from trnbench import mllog
from trnbench.status import CaseError, Status, UsageError
from trnbench.training import outcome
from trnbench.training.measure import measure_quality
from trnbench.workloads import text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trnbench.records.measured import Measured
    from trnbench.records.schema import TrainingRun
    from trnbench.workloads.recipe import Recipe

pytestmark = pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all")


@pytest.fixture
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return open_world(request, monkeypatch, tmp_path / "state")


def measure(
    world: World, scripts: Callable[[int], Script] | Script, recipe: Recipe | None = None, **changes: Any
) -> Measured:
    script = (lambda _: scripts) if isinstance(scripts, Script) else scripts
    world.script(script, recipe)
    options: dict[str, Any] = {"runs": 3, "seeds": SEEDS, **changes}
    return measure_quality(
        world.backend, world.benchmark, case=tiny_case(), clock=world.backend.clock, state=world.state, **options
    )


def runs(measured: Measured) -> list[TrainingRun]:
    return measured.measurement.training


def test_a_run_is_timed_from_run_start_to_run_stop_with_its_evaluations(world: World) -> None:
    """8 steps of 1 s and 2 evaluations of 3 s; the 7 s of building are the initialisation and on no clock."""
    measured = measure(world, Script())
    assert (measured.status, measured.reason) == (Status.OK, "")
    assert [item.seconds for item in measured.measurement.rounds] == pytest.approx([14.0] * 3)
    assert [run.seconds for run in runs(measured)] == [item.seconds for item in measured.measurement.rounds]
    assert [run.init_seconds for run in runs(measured)] == pytest.approx([7.0] * 3)
    assert [(e.samples, e.seconds, e.loss) for e in runs(measured)[0].evaluations] == [(16, 7.0, 1.5), (32, 14.0, 0.5)]
    assert measured.measurement.rounds[0].items == {"tokens": 32 * SEQUENCE, "samples": 32}
    assert all(run.converged and run.scored and run.resumed_at == [] for run in runs(measured))


def test_data_are_drawn_after_the_clock_started(world: World) -> None:
    """Batches and the evaluation set are asked for only after warm-up, run by run."""
    opened = text.open_data

    class Watched:
        def __init__(self, data: Any) -> None:
            self.data, self.drawing = data, False

        def __getattr__(self, name: str) -> Any:
            if name in ("batch", "evaluation"):
                world.events.append(name)
            return getattr(self.data, name)

    world.patch.setattr(text, "open_data", lambda *arguments: Watched(opened(*arguments)))
    measure(world, Script(), runs=1, seeds=[5])
    seen = [event for index, event in enumerate(world.events) if event not in world.events[:index]]
    # The first sight of the evaluation set is that of the data's identity, before anything is built.
    assert seen == ["evaluation", "build", "warm up", "batch", "train", "evaluate"]
    assert world.events.index("batch") > world.events.index("warm up")
    assert world.events[world.events.index("warm up") + 1] == "evaluation"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_between_two_reports_is_found_and_named(world: World, bad: float) -> None:
    """C12: 2.1, NaN, NaN, 2.0 with a report every 4 steps; nothing is averaged over and no speed is kept."""
    script = Script(losses=[2.1, bad, bad, 2.0], evaluated=[0.5])
    measured = measure(world, lambda seed: script if seed == 22 else Script())
    assert measured.status is Status.INVALID
    assert measured.reason == f"the loss is {bad} in run 2 (seed 22): first bad step 2, counted from 1"
    assert measured.measurement.rounds == []
    assert [run.seed for run in runs(measured)] == [11, 22]
    broken = runs(measured)[1]
    assert (broken.converged, broken.scored, broken.losses) == (False, False, pytest.approx([2.1]))
    assert broken.evaluations == []
    stop = [event for event in mllog.parse(measured.files["result_2.txt"].decode(), "log") if event.key == "run_stop"]
    assert stop[0].metadata["status"] == "aborted"
    assert not world.state.exists()


def test_an_evaluation_that_is_no_number_ends_the_case(world: World) -> None:
    measured = measure(world, Script(evaluated=[1.5, math.nan]))
    assert measured.status is Status.INVALID
    assert measured.reason == "the evaluation loss is nan in run 1 (seed 11) after 32 samples"
    assert measured.measurement.rounds == []
    assert [e.loss for e in runs(measured)[0].evaluations] == [1.5]
    events = mllog.parse(measured.files["result_1.txt"].decode(), "log")
    assert [event.value for event in events if event.key == "eval_accuracy"] == [1.5]


def test_every_step_is_waited_for(world: World) -> None:
    """The learner itself refuses a step before the last one was waited for; one wait a step, and one of warm-up."""
    measure(world, Script(), runs=1, seeds=[5])
    assert world.backend.materialized == 1 + 2 * EVERY_STEPS


def test_a_compile_in_the_timed_part_makes_the_case_invalid(world: World) -> None:
    measured = measure(world, lambda seed: Script(compiles_at=3 if seed == 33 else 0))
    assert measured.status is Status.INVALID
    assert measured.reason == "recompiled: 1 compiles in the timed part of 1 of 3 runs, first in run 3"
    assert [item.compiles for item in measured.measurement.rounds] == [0, 0, 1]


def test_an_operator_on_the_host_in_the_timed_part_makes_the_case_invalid(world: World) -> None:
    measured = measure(world, lambda seed: Script(fallback_at=2 if seed != 22 else 0))
    assert measured.status is Status.INVALID
    assert measured.reason == "operators ran on the host in the timed part: aten::odd x4"
    assert [item.fallbacks for item in measured.measurement.rounds] == [2, 0, 2]


def test_unchanged_parameters_are_no_training(world: World) -> None:
    with pytest.raises(CaseError, match=r"the parameters are the same after 8 steps of run 1 \(seed 11\)") as caught:
        measure(world, Script(moves=False))
    assert caught.value.status is Status.INVALID
    assert not world.state.exists()


def test_steps_must_agree_with_the_optimizer(world: World) -> None:
    with pytest.raises(CaseError, match=r"recorded 8 steps and 32 samples .* optimizer made 7 steps; they must agree"):
        measure(world, Script(skips_count_at=5))


def test_one_run_may_miss_the_target_and_is_kept(world: World) -> None:
    measured = measure(world, lambda seed: Script(evaluated=[1.5 if seed == 22 else 0.5]))
    assert measured.status is Status.OK
    assert measured.reason == "1 of 3 runs did not reach the target and counts as the slowest"
    assert [run.converged for run in runs(measured)] == [True, False, True]
    assert [run.samples for run in runs(measured)] == [16, 48, 16]
    events = mllog.parse(measured.files["result_2.txt"].decode(), "log")
    assert events[-1].key == "run_stop"
    assert events[-1].metadata == {"status": "aborted", "samples_count": 48, "epoch_num": 48}


def test_two_of_three_that_miss_the_target_make_the_case_invalid(world: World) -> None:
    measured = measure(world, lambda seed: Script(evaluated=[1.5 if seed != 22 else 0.5]))
    assert (measured.status, measured.reason) == (Status.INVALID, "did not reach the target: 2 of 3 runs")
    assert len(measured.measurement.rounds) == len(runs(measured)) == 3


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_runs_have_no_score_and_none_to_spare(world: World, count: int) -> None:
    measured = measure(world, Script(), runs=count, seeds=SEEDS[:count])
    assert measured.status is Status.OK
    assert measured.reason.startswith("no score: ")
    assert "at least 3" in measured.reason


def test_a_miss_cannot_be_dropped_from_two_runs(world: World) -> None:
    measured = measure(world, lambda seed: Script(evaluated=[1.5 if seed == 22 else 0.5]), runs=2, seeds=[11, 22])
    assert (measured.status, measured.reason) == (Status.INVALID, "did not reach the target: 1 of 2 runs")


@pytest.mark.parametrize(
    ("minutes", "status", "reason"),
    [
        (29.9, Status.OK, ""),
        (
            31.0,
            Status.OK,
            "the initialisation of run 2 took 31.0 min: above the closed division's 30 min, within the open one's 240",
        ),
        (240.0, Status.INVALID, "the initialisation of run 2 took 240.0 min; at most 240 min are allowed"),
    ],
)
def test_initialisation_has_a_limit(world: World, minutes: float, status: Status, reason: str) -> None:
    measured = measure(world, lambda seed: Script(build_seconds=60 * minutes if seed == 22 else 1.0))
    assert (measured.status, measured.reason) == (status, reason)


def test_seeds_come_from_the_operating_system_and_differ(world: World) -> None:
    measured = measure(world, Script(), seeds=())
    seeds = [run.seed for run in runs(measured)]
    assert len(set(seeds)) == 3
    assert all(0 <= seed < 2**32 for seed in seeds)
    logged = [mllog.values(mllog.parse(log.decode(), name))["seed"] for name, log in measured.files.items()]
    assert logged == seeds


@pytest.mark.parametrize("seeds", [[1, 2], [1, 2, 2], [1, 2, -3]])
def test_given_seeds_must_fit_the_runs(world: World, seeds: list[int]) -> None:
    with pytest.raises(UsageError, match="3 runs need as many different seeds that are not negative"):
        measure(world, Script(), seeds=seeds)


def test_samples_that_are_no_multiple_of_the_evaluation_interval_end_with_an_evaluation(world: World) -> None:
    recipe = tiny_recipe(target_loss=1.0, max_samples=6 * BATCH)
    measured = measure(world, Script(evaluated=[1.5]), recipe, runs=1, seeds=[5])
    assert [e.samples for e in runs(measured)[0].evaluations] == [4 * BATCH, 6 * BATCH]


def test_a_target_that_is_an_improvement_is_known_after_a_first_evaluation_on_the_clock(world: World) -> None:
    recipe = tiny_recipe(target_loss=None, improvement=0.5)
    measured = measure(world, Script(evaluated=[2.0, 1.6, 1.5]), recipe)
    for run in runs(measured):
        assert (run.target, run.converged) == (1.5, True)
        assert [(e.samples, e.loss) for e in run.evaluations] == [(0, 2.0), (16, 1.6), (32, 1.5)]
        assert run.seconds == pytest.approx(3 * 3.0 + 8 * 1.0)


@given(steps=st.integers(1, 2000))
def test_losses_are_thinned_evenly_to_what_a_record_holds(steps: int) -> None:
    kept = outcome.thinned([float(step) for step in range(steps)])
    assert len(kept.losses) <= outcome.MOST_LOSSES
    assert kept.losses == [float(step) for step in range(0, steps, kept.every)]
    assert kept.every == 1 or steps / (kept.every - 1) > outcome.MOST_LOSSES
