"""Rounds as pytest-benchmark really runs them, on a scripted device and clock."""

from __future__ import annotations

import concurrent.futures
import gc
import math
import statistics
import time
from typing import TYPE_CHECKING

import pytest
import torch
from fake_backend import FakeBackend, FakeProgram, Step, StepClock, fake_case

from trnbench.measure.rounds import measure_program
from trnbench.records.schema import MAX_ROUNDS
from trnbench.status import CaseError, Status, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trnbench.case import Case
    from trnbench.records.measured import Measured

pytestmark = pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all")


class Bench:
    """A scripted backend with the real `benchmark` fixture on the same clock."""

    def __init__(self, benchmark, clock: StepClock) -> None:
        self.benchmark = benchmark
        self.backend = FakeBackend(clock)
        self.program: FakeProgram

    def __call__(self, script: Sequence[Step], rounds: int = 5, case: Case | None = None, **changes) -> Measured:
        case = case or fake_case()
        self.program = changes.pop("program", None) or FakeProgram(self.backend, script, case)
        return measure_program(
            self.backend, self.program, self.benchmark, case=case, rounds=rounds, clock=self.backend.clock, **changes
        )


@pytest.fixture(autouse=True)
def scripted_rounds_stay_out_of_the_table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Times of a scripted clock are no benchmark of anything: take them out of pytest-benchmark's summary."""
    yield
    request.config.pluginmanager.get_plugin("pytest-benchmark").benchmarks.clear()


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Bench:
    clock = StepClock()
    request.node.add_marker(pytest.mark.benchmark(timer=clock))
    return Bench(request.getfixturevalue("benchmark"), clock)


def seconds(measured: Measured) -> list[float]:
    return [item.seconds for item in measured.measurement.rounds]


def test_asynchronous_work_is_waited_for_inside_the_round(bench: Bench) -> None:
    """A1: 20 ms of queued work a step are read as 20 ms a round, not as the time to queue it."""
    measured = bench([Step(seconds=0.020)], rounds=10)
    assert seconds(measured) == pytest.approx([0.020] * 10)
    assert sum(seconds(measured)) == pytest.approx(0.200)
    assert measured.status is Status.OK
    assert measured.measurement.sync == FakeBackend.sync_method


class ThreadedBackend(FakeBackend):
    """T1: work runs on a thread and only `materialize` waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.futures: list[concurrent.futures.Future[None]] = []

    def materialize(self, outputs: Sequence[torch.Tensor]) -> None:
        while self.futures:
            self.futures.pop(0).result()


class ThreadedProgram(FakeProgram):
    """Queues a real sleep of 20 ms; a reset leaves 150 ms of untimed work in the queue."""

    def reset(self) -> None:
        self.backend.futures.append(self.backend.pool.submit(time.sleep, 0.150))

    def step(self) -> list[torch.Tensor]:
        self.backend.futures.append(self.backend.pool.submit(time.sleep, 0.020))
        self.moved += 1
        return [torch.tensor(1.0)]


def test_a_real_asynchronous_thread_is_waited_for_and_drained_first(benchmark) -> None:
    """A1: on a real clock a round holds its own 20 ms; the 150 ms that the reset queued are paid before it."""
    backend = ThreadedBackend()
    program = ThreadedProgram(backend, [], fake_case())
    measured = measure_program(backend, program, benchmark, case=fake_case(), rounds=5)
    assert min(seconds(measured)) >= 0.0199
    assert min(seconds(measured)) < 0.150
    assert measured.measurement.clock == "time.perf_counter"


@pytest.mark.parametrize("rounds", [1, 10, 100])
def test_a_step_costs_the_same_whatever_the_number_of_rounds(bench: Bench, rounds: int) -> None:
    """A4: 10 ms a step for 1, 10 and 100 rounds, never multiplied or divided by their number."""
    assert seconds(bench([Step(seconds=0.010)], rounds=rounds)) == pytest.approx([0.010] * rounds)


class TwoPartProgram(FakeProgram):
    """A forward and a backward part, each 20 ms of queued work."""

    def step(self) -> list[torch.Tensor]:
        return [super().step()[0], self._play(Step(seconds=0.020))]


def test_both_parts_of_a_step_are_inside_the_round(bench: Bench) -> None:
    """A4: backward is waited for as forward is."""
    program = TwoPartProgram(bench.backend, [Step(seconds=0.020)], fake_case())
    assert seconds(bench([], program=program)) == pytest.approx([0.040] * 5)


def test_recompiling_rounds_are_invalid_and_counted(bench: Bench) -> None:
    """A5: compiles inside timed rounds are stored per round, and the record is not a speed."""
    script = [Step(compiles=1), *[Step()] * 3, Step(compiles=2), Step(), Step(compiles=1)]
    measured = bench(script, rounds=4)
    assert measured.status is Status.INVALID
    assert [item.compiles for item in measured.measurement.rounds] == [0, 2, 0, 1]
    assert "recompiled: 3 compiles in 2 of 4 timed rounds, first in round 2" in measured.reason


def test_a_new_shape_every_step_never_reaches_the_rounds(bench: Bench) -> None:
    """A5: a step that compiles each time ends after a bounded warm-up, named as recompiling."""
    with pytest.raises(
        CaseError, match=r"recompiled: still compiling after 20 warm-up steps \(20 compiles\)"
    ) as caught:
        bench([Step(compiles=1)])
    assert caught.value.status is Status.INVALID
    assert bench.program.steps == 20


def test_warmup_goes_on_until_a_step_compiles_nothing(bench: Bench) -> None:
    """A5: ten lengths then one: ten compiling steps, one clean step, and the rounds are clean."""
    measured = bench([*[Step(compiles=1)] * 10, Step()])
    assert [step.compiles for step in measured.measurement.warmup] == [1] * 10 + [0]
    assert measured.measurement.compile.count == 10
    assert measured.status is Status.OK


def test_the_first_step_is_stored_apart(bench: Bench) -> None:
    """A6: a first step of 500 ms leaves the rounds at 10 ms and is kept with the compile and the warm-up."""
    first = Step(seconds=0.500, compiles=1, compile_seconds=0.480)
    measurement = bench([first, Step(seconds=0.010)]).measurement
    assert [item.seconds for item in measurement.rounds] == pytest.approx([0.010] * 5)
    assert measurement.compile.first_step_seconds == pytest.approx(0.500)
    assert (measurement.compile.count, measurement.compile.cache) == (1, "cold")
    assert measurement.compile.seconds == pytest.approx(0.480)
    assert [step.seconds for step in measurement.warmup] == pytest.approx([0.500, 0.010, 0.010])


def test_steps_run_are_steps_stored(bench: Bench) -> None:
    """A7: no calibration, no extra call: 3 warm-up steps and 5 rounds are 8 steps, each after its own reset."""
    measured = bench([Step()], rounds=5)
    assert bench.program.steps == len(measured.measurement.warmup) + len(measured.measurement.rounds) == 8
    assert bench.program.resets == 8


def test_a_profiler_that_adds_a_step_is_found(request: pytest.FixtureRequest) -> None:
    """A7: pytest-benchmark's profiler runs the step once more than it times; such rounds are refused."""
    clock = StepClock()
    request.node.add_marker(pytest.mark.benchmark(timer=clock, cprofile=True))
    bench = Bench(request.getfixturevalue("benchmark"), clock)
    with pytest.raises(CaseError, match="9 steps ran, 3 warm-up steps and 5 rounds"):
        bench([Step()], rounds=5)


def test_training_inside_the_suite_equals_a_plain_loop(benchmark) -> None:
    """A7: after 3 warm-up steps and 5 rounds the loss is that of a plain loop of 8 steps from the same seed."""
    from trnbench.workloads.steps import build

    case = fake_case(batch=2, sequence=8)
    backend = FakeBackend()

    def recording(losses: list[float]):
        program = build(case, backend.device, backend.compile, seed=7)
        run = program.step

        def step() -> list[torch.Tensor]:
            outputs = run()
            losses.append(float(outputs[0]))
            return outputs

        program.step = step
        return program

    measured_losses: list[float] = []
    measured = measure_program(backend, recording(measured_losses), benchmark, case=case, rounds=5)
    plain_losses: list[float] = []
    plain = recording(plain_losses)
    for _ in range(8):
        plain.step()
    assert measured_losses == plain_losses
    assert len(measured.measurement.rounds) == 5


def test_raw_samples_are_kept(bench: Bench) -> None:
    """A10: five unequal rounds are stored as five numbers whose median and mean differ."""
    times = [0.008, 0.009, 0.010, 0.011, 0.040]
    values = seconds(bench([*[Step()] * 3, *[Step(seconds=value) for value in times]]))
    assert values == pytest.approx(times)
    assert statistics.median(values) == pytest.approx(0.010)
    assert statistics.mean(values) == pytest.approx(0.0156)


def test_operators_on_the_host_make_a_fallback_not_a_slow_row(bench: Bench) -> None:
    """A11: operators that leave the device in timed rounds are named, with how often."""
    measured = bench([*[Step()] * 3, Step(fallbacks={"aten::sort": 2})], rounds=3)
    assert measured.status is Status.FALLBACK
    assert "aten::sort x6" in measured.reason
    assert [item.fallbacks for item in measured.measurement.rounds] == [2, 2, 2]


@pytest.mark.parametrize(
    ("cache", "status"), [("cold", Status.FALLBACK), ("none", Status.FALLBACK), ("warm", Status.OK)]
)
def test_compiled_mode_that_compiles_nothing_fell_back(bench: Bench, cache: str, status: Status) -> None:
    """A11: 'compiled' without one compiled graph is no compiled run, unless a warm cache held them all."""
    bench.backend.cache_state = cache
    measured = bench([Step()], case=fake_case(mode="compiled"))
    assert measured.status is status
    assert ("compile fell back" in measured.reason) == (status is Status.FALLBACK)


def test_drift_names_both_halves(bench: Bench) -> None:
    """A12: fifty rounds of 10 ms then fifty of 13 ms carry a warning with both medians."""
    script = [*[Step(seconds=0.010)] * 53, Step(seconds=0.013)]
    measured = bench(script, rounds=100)
    assert measured.status is Status.OK
    assert "drift" in measured.reason
    assert "0.01 s in the first half" in measured.reason
    assert "0.013 s in the second (+30 %)" in measured.reason


def test_steady_rounds_carry_no_drift_warning(bench: Bench) -> None:
    """A12: the counterpart: equal halves say nothing."""
    assert bench([Step()], rounds=100).reason == ""


def test_rounds_without_duration_are_no_samples(bench: Bench) -> None:
    """A13: where every round is unusable the status says so and there is no measurement."""
    with pytest.raises(CaseError, match="no valid samples: none of 5 rounds") as caught:
        bench([Step(seconds=0.0)])
    assert caught.value.status is Status.INVALID


def test_the_batch_that_ran_is_stored_and_a_wrong_one_refused(bench: Bench) -> None:
    """B9: a model that keeps batch 1 where 8 was asked stores 1 and is invalid."""
    case = fake_case(batch=8)
    program = FakeProgram(bench.backend, [Step()], case)
    program.sequences = [1]
    measured = bench([], case=case, program=program)
    assert measured.status is Status.INVALID
    assert "effective batch 1" in measured.reason
    assert {item.items["sequences"] for item in measured.measurement.rounds} == {1}


def test_a_last_partial_batch_is_counted_as_it_is(bench: Bench) -> None:
    """B9: batches of 4, 4 and 2 samples in 3 s are 3.33 samples a second, not 4."""
    program = FakeProgram(bench.backend, [Step(seconds=1.0)], fake_case())
    program.sequences = [4] * 5 + [2]
    rounds = bench([], rounds=3, program=program).measurement.rounds
    assert sum(item.items["sequences"] for item in rounds) / sum(item.seconds for item in rounds) == pytest.approx(
        10 / 3
    )


@pytest.mark.parametrize("micro_batch", [1, 2, 4, 16])
def test_the_global_batch_counts_however_it_is_divided(bench: Bench, micro_batch: int) -> None:
    """B8: at an equal global batch of 16 and steps of 1 s every division gives 16 sequences a second."""
    case = fake_case(batch=16, micro_batch=micro_batch)
    rounds = bench([Step(seconds=1.0)], case=case).measurement.rounds
    assert {item.items["sequences"] / item.seconds for item in rounds} == {16.0}


def test_a_clock_that_contradicts_itself_is_inconsistent(bench: Bench) -> None:
    """B14: rounds that add up to more than the loop took are refused, never clipped."""

    class Doubled(FakeProgram):
        def loss_like(self, outputs: Sequence[torch.Tensor]) -> torch.Tensor:
            self.backend.clock.now -= 0.009
            return super().loss_like(outputs)

    with pytest.raises(CaseError, match=r"inconsistent timing: the rounds add up to 0\.05 s"):
        bench([], program=Doubled(bench.backend, [Step(seconds=0.010)], fake_case()))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("position", "where"), [(2, "warm-up"), (6, "the timed rounds")])
def test_a_loss_that_is_not_finite_names_its_first_step(bench: Bench, bad: float, position: int, where: str) -> None:
    """C12: losses 2.1, NaN, NaN, 2.0 are invalid with first bad step 2, in warm-up and in rounds alike."""
    script = [*[Step(loss=2.1)] * (position - 1), Step(loss=bad), Step(loss=bad), Step(loss=2.0)]
    with pytest.raises(CaseError, match=f"in {where}: first bad step {position},") as caught:
        bench(script)
    assert caught.value.status is Status.INVALID


def test_steps_that_change_nothing_are_refused(bench: Bench) -> None:
    """A1: a training step that leaves the parameters as they were did not run."""
    with pytest.raises(CaseError, match="the parameters are the same after the last step as before the first"):
        bench([Step(moves=False)])


def test_parameters_must_move_in_the_rounds_too(bench: Bench) -> None:
    """A1: warm-up alone having changed the parameters is not enough."""
    with pytest.raises(CaseError, match="did not change during the timed rounds"):
        bench([*[Step()] * 3, Step(moves=False)])


def test_outputs_elsewhere_than_on_the_device_are_a_fallback(bench: Bench) -> None:
    """G2: outputs that lie on another device than the backend's are named, not timed."""

    class Elsewhere(FakeProgram):
        def step(self) -> list[torch.Tensor]:
            super().step()
            return [torch.zeros(1, device="meta")]

    with pytest.raises(CaseError, match="outputs are on meta, the backend's device is cpu") as caught:
        bench([], program=Elsewhere(bench.backend, [Step()], fake_case()))
    assert caught.value.status is Status.FALLBACK


def test_first_tokens_are_timed_apart_and_after_warming_up(bench: Bench) -> None:
    """Time to first token: compiling repetitions are warm-up, up to ten clean ones are stored in seconds."""
    case = fake_case(phase="decode", new_tokens=4)
    program = FakeProgram(bench.backend, [Step()], case)
    program.first_token = [Step(seconds=3.0, compiles=1), Step(seconds=1.0, compiles=1), *[Step(seconds=0.25)] * 20]
    measured = bench([], rounds=4, case=case, program=program)
    assert measured.measurement.timings == {"ttft_seconds": pytest.approx([0.25] * 4)}
    assert seconds(measured) == pytest.approx([0.010] * 4)


def test_a_first_token_that_compiles_again_is_invalid(bench: Bench) -> None:
    """A5: a compile in a timed first token is no slow first token."""
    case = fake_case(phase="decode", new_tokens=4)
    program = FakeProgram(bench.backend, [Step()], case)
    program.first_token = [*[Step()] * 3, Step(compiles=1), Step()]
    with pytest.raises(CaseError, match="repetition 2 of the first token compiled"):
        bench([], rounds=4, case=case, program=program)


@pytest.mark.parametrize("rounds", [0, -1, MAX_ROUNDS + 1, 70_000])
def test_more_rounds_than_a_record_holds_are_refused_before_the_first_step(bench: Bench, rounds: int) -> None:
    """D7: 70 000 rounds are refused before anything runs."""
    with pytest.raises(UsageError, match=f"a record holds between 1 and {MAX_ROUNDS}"):
        bench([Step()], rounds=rounds)
    assert bench.backend.materialized == 0


def test_rounds_on_another_timer_are_refused(benchmark) -> None:
    """A4: a timer that is not the wall clock of the rest, such as processor time, makes no comparable round."""
    backend = FakeBackend(StepClock())
    program = FakeProgram(backend, [Step()], fake_case())
    with pytest.raises(CaseError, match=r"rounds were timed with time\.perf_counter, the rest with .*StepClock"):
        measure_program(backend, program, benchmark, case=fake_case(), rounds=3, clock=backend.clock)


def test_uncounted_compiles_are_null_with_a_reason(bench: Bench) -> None:
    """Unknown is null with a reason: a backend that cannot count compiles stores no zero."""
    bench.backend.compiles = None
    measured = bench([Step()])
    assert [step.compiles for step in measured.measurement.warmup] == [None] * 3
    assert measured.measurement.compile.count is None
    assert {"measurement.rounds[*].compiles", "measurement.warmup[*].compiles", "measurement.compile.count"} <= set(
        measured.unknown
    )


def test_the_garbage_collector_is_paused_and_restored(bench: Bench) -> None:
    """No collection starts inside a round, and the process is left as it was, also after a failure."""
    seen = []

    class Looking(FakeProgram):
        def step(self) -> list[torch.Tensor]:
            seen.append(gc.isenabled())
            return super().step()

    frozen = gc.get_freeze_count()
    bench([], program=Looking(bench.backend, [Step()], fake_case()))
    assert seen == [True] * 3 + [False] * 5
    assert gc.isenabled()
    assert gc.get_freeze_count() <= frozen


def test_a_step_that_fails_leaves_the_collector_restored(bench: Bench) -> None:
    """G7: an out-of-memory error in a round passes through and leaves nothing behind."""
    with pytest.raises(RuntimeError, match="out of memory"):
        bench([*[Step()] * 4, Step(raises=RuntimeError("out of memory"))])
    assert gc.isenabled()
