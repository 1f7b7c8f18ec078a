"""A training that is killed goes on where it was, bit by bit, and says so; state that cannot be used is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from quality_world import SEEDS, install, tiny_case

from trnbench import mllog
from trnbench.backends.select import open_backend
from trnbench.records import store
from trnbench.records.schema import Compile
from trnbench.status import CaseError, Status
from trnbench.training import checkpoint, keeper
from trnbench.training.checkpoint import Identity, Preparation, Progress, StateFolder
from trnbench.training.measure import measure_quality
from trnbench.workloads.quality import Learner

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from trnbench.records.measured import Measured
    from trnbench.records.schema import TrainingRun

pytestmark = pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all")

HERE = Path(__file__).parent
RESUMED = "resumed at 24 samples in run 2 (seed 22): its time is not a score; to start anew, run again without --resume"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(keeper, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(keeper, "CHECKPOINT_SHARE", 1.0)


def measure(benchmark: BenchmarkFixture, state: Path, seeds: list[int] = SEEDS, **changes: Any) -> Measured:
    backend = open_backend("cpu")
    options: dict[str, Any] = {"case": tiny_case(), "runs": 3, **changes}
    with backend.numerics("fp32"):
        return measure_quality(backend, benchmark, clock=time.perf_counter, state=state, seeds=seeds, **options)


def killed_child(state: Path, number: signal.Signals, seeds: list[int] = SEEDS) -> subprocess.Popen[bytes]:
    """A process that was stopped by `number` in the middle of the second run."""
    environment = {
        **os.environ,
        "CHILD_STATE": str(state),
        "CHILD_SEEDS": ",".join(map(str, seeds)),
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(HERE / "quality_child.py")]
    child = subprocess.Popen(
        command, env=environment, cwd=HERE.parents[1], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert child.stderr is not None
    said = b""
    while b"waiting" not in said:
        line = child.stderr.readline()
        assert line, f"the child ended by itself: {said.decode()}"
        said += line
    child.send_signal(number)
    child.communicate(timeout=60)
    return child


class _Bench:
    """Runs every round of pedantic on the real clock, without pytest-benchmark: a fixture can be used only once."""

    disabled = False

    def __init__(self) -> None:
        self.stats: Any = self
        self.data: list[float] = []
        self.options = {"timer": time.perf_counter}

    def pedantic(self, target: Any, *, setup: Any, teardown: Any, rounds: int, **_: Any) -> None:
        self.stats = type("Stats", (), {"options": self.options, "stats": self})()
        for _number in range(rounds):
            setup()
            start = time.perf_counter()
            target()
            self.data.append(time.perf_counter() - start)
            teardown()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[TrainingRun]:
    """The runs of the same seeds without an interruption."""
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        measured = measure(_Bench(), tmp_path_factory.mktemp("whole") / "state")
    return measured.measurement.training


def same_learning(run: TrainingRun) -> tuple[Any, ...]:
    """What must not depend on when a run was interrupted."""
    evaluations = [(one.samples, one.loss) for one in run.evaluations]
    return run.seed, run.samples, run.tokens, evaluations, run.losses, run.learning["final_parameters"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_training_is_finished_by_another_process(
    benchmark: BenchmarkFixture, tmp_path: Path, whole: list[TrainingRun], number: signal.Signals
) -> None:
    """Killed at step 7 of run 2 of 3: run 1 is taken over, run 2 goes on from step 6, and ends in the same bits."""
    state = tmp_path / "interrupted" / "state"
    child = killed_child(state, number)
    assert child.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 2)
    kept = StateFolder(state, identity_in(state)).finished(1, 11)
    assert kept is not None

    measured = measure(benchmark, state)
    assert measured.status is Status.INVALID
    assert measured.reason == f"{RESUMED}; did not reach the target: 3 of 3 runs"
    runs = measured.measurement.training
    assert [same_learning(run) for run in runs] == [same_learning(run) for run in whole]
    assert [run.resumed_at for run in runs] == [[], [24], []]
    assert [run.scored for run in runs] == [True, False, True]
    assert runs[0] == kept.run
    assert measured.files["result_1.txt"].decode() == kept.log
    assert [item.seconds for item in measured.measurement.rounds] == [run.seconds for run in runs]
    # Two of the three were timed by this process.
    assert len(benchmark.stats.stats.data) == 2
    assert not state.parent.exists()


def identity_in(state: Path) -> Identity:
    """The identity that the files of a folder carry."""
    return msgspec.json.decode((state / "plan").read_bytes().partition(b"\n")[2], type=checkpoint.Plan).identity


def test_the_log_of_a_resumed_run_goes_on_and_tells(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    stopped(tmp_path / "state")
    measured = measure(benchmark, tmp_path / "state")
    events = mllog.parse(measured.files["result_2.txt"].decode(), "log")
    keys = [event.key for event in events]
    assert keys.count("run_start") == keys.count("init_stop") == keys.count("seed") == 1
    assert keys.count("block_start") == keys.count("block_stop") == 3
    resumed = events[keys.index("trnbench_resumed")]
    assert (resumed.value, resumed.metadata["samples_count"]) == (24, 24)
    assert keys.index("run_start") < keys.index("trnbench_resumed") < keys.index("run_stop")
    times = [event.time_ms for event in events]
    assert times == sorted(times)


class Stop(BaseException):
    """Ends a measurement as an interrupt does."""


def stopped(state: Path, seeds: list[int] = SEEDS, *, run: int = 2, before_step: int = 7) -> None:
    """Leave in `state` what an interrupt in this process leaves."""
    original, seen = Learner.train, []

    def train(learner: Learner, batch: Any) -> Any:
        if learner.seed not in seen:
            seen.append(learner.seed)
        if len(seen) == run and learner.steps == before_step - 1:
            raise Stop
        return original(learner, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "train", train)
        with pytest.raises(Stop):
            measure(_Bench(), state, seeds)
    assert state.exists()


def test_seeds_that_were_drawn_stay(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    stopped(tmp_path / "state", [])
    plan = msgspec.json.decode((tmp_path / "state" / "plan").read_bytes().partition(b"\n")[2], type=checkpoint.Plan)
    measured = measure(benchmark, tmp_path / "state", [])
    assert [run.seed for run in measured.measurement.training] == plan.seeds


def test_a_run_that_was_stopped_twice_says_so(
    benchmark: BenchmarkFixture, tmp_path: Path, whole: list[TrainingRun]
) -> None:
    stopped(tmp_path / "state", before_step=4)
    stopped(tmp_path / "state", run=1, before_step=10)
    measured = measure(benchmark, tmp_path / "state")
    assert measured.measurement.training[1].resumed_at == [12, 36]
    assert not measured.measurement.training[1].scored
    assert measured.reason.startswith("resumed at 12, 36 samples in run 2 (seed 22)")
    assert same_learning(measured.measurement.training[1]) == same_learning(whole[1])


def test_a_run_stopped_before_its_first_checkpoint_starts_anew_and_may_count(
    benchmark: BenchmarkFixture, tmp_path: Path, whole: list[TrainingRun]
) -> None:
    stopped(tmp_path / "state", before_step=1)
    measured = measure(benchmark, tmp_path / "state")
    assert [run.scored for run in measured.measurement.training] == [True] * 3
    assert [same_learning(run) for run in measured.measurement.training] == [same_learning(run) for run in whole]


def test_a_case_whose_runs_had_all_ended_only_takes_them_over(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    stopped(tmp_path / "state", run=3, before_step=1)
    measured = measure(benchmark, tmp_path / "state", SEEDS[:2], runs=2)
    assert [run.seed for run in measured.measurement.training] == SEEDS[:2]
    assert len(measured.measurement.rounds) == 2
    assert measured.measurement.warmup


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    "fault",
    [
        ("run_2.checkpoint", truncate, "its content is not what was written"),
        ("run_2.checkpoint", remove, ""),
        ("run_2.tensors-6", flip, "its content is not what was written"),
        ("run_2.tensors-6", remove, "it cannot be read (No such file or directory)"),
    ],
)
def test_a_spoilt_checkpoint_is_told_and_its_run_starts_anew(
    benchmark: BenchmarkFixture, tmp_path: Path, whole: list[TrainingRun], fault: tuple[str, Any, str]
) -> None:
    name, spoil, why = fault
    stopped(tmp_path / "state")
    spoil(tmp_path / "state" / name)
    measured = measure(benchmark, tmp_path / "state")
    runs = measured.measurement.training
    assert [run.resumed_at for run in runs] == [[], [], []]
    assert [same_learning(run) for run in runs] == [same_learning(run) for run in whole]
    # The finished run is the one of the earlier process.
    assert len(benchmark.stats.stats.data) == 2
    told = f"; the state {name} of an interrupted run was not used: {why}" if why else ""
    assert measured.reason == f"did not reach the target: 3 of 3 runs{told}"


def test_a_spoilt_finished_run_is_told_and_made_anew(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    stopped(tmp_path / "state")
    truncate(tmp_path / "state" / "run_1.finished")
    measured = measure(benchmark, tmp_path / "state")
    assert "the state run_1.finished of an interrupted run was not used: its content is not what was written" in (
        measured.reason
    )
    assert len(benchmark.stats.stats.data) == 3
    assert measured.measurement.training[1].resumed_at == [24]


def test_state_of_another_version_is_foreign(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    stopped(tmp_path / "state")
    measured = measure(benchmark, tmp_path / "state", case=tiny_case(version="2"))
    assert all(run.resumed_at == [] for run in measured.measurement.training)
    assert "run_2.checkpoint of an interrupted run was not used: it is of version 1, not 2" in measured.reason
    assert len(benchmark.stats.stats.data) == 3


def test_state_of_another_seed_is_foreign(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    stopped(tmp_path / "state")
    measured = measure(benchmark, tmp_path / "state", [11, 23, 33])
    assert "run_2.checkpoint of an interrupted run was not used: it is of seed 22, not 23" in measured.reason
    assert [run.seed for run in measured.measurement.training] == [11, 23, 33]
    assert len(benchmark.stats.stats.data) == 2


def test_a_disk_that_refuses_costs_the_checkpoints_and_not_the_runs(
    benchmark: BenchmarkFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, data: bytes, *, what: str) -> Path:
        raise store.StoreError(f"{what} was not written: the disk is full")

    monkeypatch.setattr(checkpoint, "replace_file", refuse)
    measured = measure(benchmark, tmp_path / "state")
    assert len(measured.measurement.training) == 3
    assert all(run.learning["checkpoints"] == 0 for run in measured.measurement.training)
    assert "run 2 (seed 22) went on without checkpoints" in measured.reason


@pytest.mark.parametrize(
    ("status", "kept"), [(Status.INVALID, False), (Status.OOM, False), (Status.CRASHED, True), (Status.BUSY, True)]
)
def test_only_outcomes_of_the_moment_keep_the_state(
    benchmark: BenchmarkFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: Status, kept: bool
) -> None:
    original = Learner.train

    def train(learner: Learner, batch: Any) -> Any:
        if learner.steps == 5:
            raise CaseError(status, "it ended")
        return original(learner, batch)

    monkeypatch.setattr(Learner, "train", train)
    with pytest.raises(CaseError, match="it ended"):
        measure(benchmark, tmp_path / "state")
    assert (tmp_path / "state").exists() is kept


def test_the_checkpoint_before_stays_until_the_next_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies while tensors are written, or after, finds the last complete checkpoint."""
    identity = Identity(case="c", version="1", backend="cpu", chip="cpu", software="torch", data="d")
    folder = StateFolder(tmp_path / "state", identity)
    compiled = Compile(count=0, seconds=0.0, first_step_seconds=1.0, cache="none")
    preparation = Preparation(seconds=1.0, warmup=[], compile=compiled)

    def write(steps: int) -> None:
        progress = Progress(steps=steps, samples=4 * steps)
        tensors = {"steps": steps, "parameters": [torch.full((3,), float(steps))]}
        folder.write_checkpoint(1, seed=7, preparation=preparation, progress=progress, log="", tensors=tensors)

    write(3)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "replace_file", lambda *_, **__: (_ for _ in ()).throw(Stop()))
        with pytest.raises(Stop):
            write(4)
    found = folder.checkpoint(1, 7)
    assert found is not None
    assert found[0].progress.steps == 3
    assert torch.equal(found[1]["parameters"][0], torch.full((3,), 3.0))
    write(5)
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["run_1.checkpoint", "run_1.tensors-5"]
