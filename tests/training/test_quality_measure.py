"""Real trainings of a tiny model, from the fixture that times them to a record; and what is refused before one."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from quality_world import EVERY_STEPS, MAX_STEPS, install, tiny_case, tiny_recipe

from trnbench import mllog
from trnbench.backends.select import open_backend
from trnbench.records.build import assemble
from trnbench.records.environment import collect
from trnbench.records.ids import utc_now
from trnbench.records.rules import RecordError
from trnbench.records.serialise import decode, encode
from trnbench.status import CaseError, Status, UsageError
from trnbench.training.measure import measure_quality
from trnbench.workloads import text
from trnbench.workloads.quality import Learner
from trnbench.workloads.recipes import recipe_for, recipe_of

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from trnbench.case import Case
    from trnbench.records.measured import Measured
    from trnbench.records.schema import Record

pytestmark = pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all")

SUITES = Path(__file__).parents[2] / "suites" / "training"
# The tiny model starts at ln 16 = 2.77, learns within a few steps that only 8 of 16 tokens occur, and is done below.
EASY = {"target_loss": 2.6, "max_samples": 40 * 4}


def measure(benchmark: BenchmarkFixture, state: Path, **changes: Any) -> Measured:
    backend = open_backend("cpu")
    options: dict[str, Any] = {"case": tiny_case(), "runs": 3, "clock": time.perf_counter, **changes}
    with backend.numerics(options["case"].precision):
        return measure_quality(backend, benchmark, state=state, **options)


def as_record(measured: Measured, case: Case) -> Record:
    backend = open_backend("cpu")
    device = backend.describe()
    record = assemble(
        case=case,
        device=device,
        environment=collect(device, backend.versions(), backend.flags(), Path.cwd()),
        run_id="r",
        started_at=utc_now(),
        status=measured.status,
        reason=measured.reason,
        measurement=measured.measurement,
        conformance=measured.checks,
        reasons=measured.unknown,
    )
    return decode(encode(record), "record")


def test_three_seeds_train_to_the_target_and_make_a_record(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tiny_recipe(**EASY))
    measured = measure(benchmark, tmp_path / "interrupted" / "state")
    assert (measured.status, measured.reason) == (Status.OK, "")
    record = as_record(measured, tiny_case())
    assert record.status is Status.OK
    assert record.measurement is not None
    assert record.measurement == measured.measurement
    assert record.unknown["measurement.flops"].startswith("runs to a quality differ in length")
    runs = record.measurement.training
    assert len({run.learning["final_parameters"] for run in runs}) == 3
    for run, timed in zip(runs, benchmark.stats.stats.data, strict=True):
        assert run.converged
        assert run.seconds == timed
        assert run.evaluations[-1].loss <= 2.6 < run.evaluations[0].loss or len(run.evaluations) == 1
        assert run.evaluations[-1].seconds <= run.seconds
        assert len(run.losses) * 4 == run.samples
        assert run.floor is not None
        assert run.floor < run.target
    assert [check.verdict for check in measured.checks] == ["not checked"] * len(measured.checks)
    assert not (tmp_path / "interrupted").exists()


def test_a_run_learns_what_a_plain_loop_learns(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Warm-up, waits, evaluations and checkpoints leave no trace: the losses are those of the bare learner."""
    recipe = tiny_recipe()
    install(monkeypatch, recipe)
    measured = measure(benchmark, tmp_path / "state", runs=1, seeds=[7])
    backend = open_backend("cpu")
    data = text.open_data("source", *_tiny_model(recipe))
    learner = Learner(tiny_case(), recipe, backend.device, backend.compile, backend.materialize, seed=7)
    with backend.numerics("fp32"):
        losses = [float(learner.train(data.batch(7, step))) for step in range(MAX_STEPS)]
        last = learner.evaluate(data.evaluation())
    (run,) = measured.measurement.training
    assert run.losses == losses
    assert [one.samples for one in run.evaluations] == [4 * EVERY_STEPS * (index + 1) for index in range(3)]
    assert run.evaluations[-1].loss == last


def _tiny_model(recipe: Any) -> tuple[Any, Any]:
    from quality_world import TINY

    return TINY, recipe


def test_a_text_stands_in_the_place_of_the_source_without_a_floor(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tiny_recipe(**EASY))
    monkeypatch.setattr(text, "BYTE_VALUES", 16)
    # Bytes that the tiny vocabulary of 16 has.
    (tmp_path / "letters.txt").write_bytes(bytes([1, 2, 3, 4] * 100))
    measured = measure(benchmark, tmp_path / "state", data=str(tmp_path / "letters.txt"))
    record = as_record(measured, tiny_case())
    assert record.measurement is not None
    assert [run.floor for run in record.measurement.training] == [None] * 3
    assert "not known" in record.unknown["measurement.training[*].floor"]
    assert record.measurement.training[0].learning["data"] == "letters.txt"
    assert measured.checks == []
    events = mllog.parse(measured.files["result_1.txt"].decode(), "log")
    assert mllog.values(events)["train_samples"] == 320 // 8
    places = [event.metadata for event in events if event.key == "eval_accuracy"]
    assert [place["epoch_num"] for place in places] == [place["samples_count"] / 40 for place in places] != []


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_broken_training_is_kept_in_a_record_without_a_speed(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, precision: str
) -> None:
    """A learning rate that overflows the parameters: the loss is no number within a few steps."""
    install(monkeypatch, tiny_recipe(learning_rate=1e30, end_learning_rate=1e29))
    measured = measure(benchmark, tmp_path / "state", case=tiny_case(precision=precision))
    record = as_record(measured, tiny_case(precision=precision))
    assert record.status is Status.INVALID
    assert "first bad step" in record.reason
    assert record.measurement is not None
    assert record.measurement.rounds == []
    assert len(record.measurement.training) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"case": {"phase": "train_step"}}, "phase train_step trains to no quality"),
        ({"runs": 0}, "runs is 0; a record holds between 1 and"),
        ({"case": {"workload": "tiny", "sequence": 128}}, "128 positions are asked of tiny, which has 64"),
        ({"data": "no-such-file.txt"}, "there is no text file"),
        ({"case": {"workload": "nano-b"}}, "nano"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(
    benchmark: BenchmarkFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    changes: dict[str, Any],
    sentence: str,
) -> None:
    install(monkeypatch)
    case = tiny_case(**changes.pop("case", {}))
    with pytest.raises(UsageError, match=sentence):
        measure(benchmark, tmp_path / "state", case=case, **changes)
    assert not (tmp_path / "state").exists()


def test_a_parallel_plan_is_unsupported(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch)
    with pytest.raises(CaseError, match="runs on one device") as caught:
        measure(benchmark, tmp_path / "state", case=tiny_case(parallel={"tp": 2}))
    assert caught.value.status is Status.UNSUPPORTED


def test_another_timer_than_the_clock_is_refused(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch)
    with pytest.raises(CaseError, match=r"timed with time.perf_counter, evaluations with time.monotonic"):
        measure(benchmark, tmp_path / "state", clock=time.monotonic)


def test_a_disabled_benchmark_measures_nothing(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch)
    monkeypatch.setattr(benchmark, "disabled", True)
    with pytest.raises(UsageError, match="--benchmark-disable"):
        measure(benchmark, tmp_path / "state")


def test_a_record_cannot_call_a_recompiled_run_ok(
    benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The format itself refuses what `judge` marks invalid, should a later change forget it."""
    import msgspec

    install(monkeypatch, tiny_recipe(**EASY))
    measured = measure(benchmark, tmp_path / "state")
    rounds = [msgspec.structs.replace(item, compiles=1) for item in measured.measurement.rounds]
    broken = msgspec.structs.replace(measured, measurement=msgspec.structs.replace(measured.measurement, rounds=rounds))
    with pytest.raises(RecordError, match="status is ok with 1 compiles"):
        as_record(broken, tiny_case())


def declared() -> list[Case]:
    """Every case of the suites of training to quality."""
    found: list[Case] = []
    for file in sorted(SUITES.glob("test_*.py")):
        names: dict[str, Any] = {"__name__": file.stem}
        exec(compile(file.read_text("utf-8"), str(file), "exec"), names)
        for name, value in names.items():
            if name.startswith("test_"):
                (mark,) = value.pytestmark
                found += [*mark.args[0], *mark.kwargs.get("where_only_compiled", [])]
    return found


def test_the_suites_train_at_the_shape_that_their_recipes_were_found_for() -> None:
    cases = declared()
    assert {case.tier for case in cases} == {"smoke", "single"}
    for case in cases:
        own = recipe_of(case.workload, case.phase)
        assert recipe_for(case) == own, f"{case.id} is not at the shape of its recipe"


def test_importing_what_measures_needs_no_torch() -> None:
    """Listing and comparing import this package's neighbours, and must not wait for torch."""
    import subprocess

    code = "import sys, trnbench.training.measure; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
