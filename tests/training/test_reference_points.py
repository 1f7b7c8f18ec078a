"""Reference convergence points: made by real runs, stored, found again, and refused where they are none."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import quality_world
from log_samples import case
from quality_world import tiny_case, tiny_recipe
from reference_samples import EVERY, curve, reference

from trnbench.backends.select import open_backend
from trnbench.cli import main
from trnbench.records.schema import Evaluation
from trnbench.status import UsageError
from trnbench.training.convergence import limits
from trnbench.training.measure import measure_quality
from trnbench.training.reference import (
    POINTS_PER_RUN,
    Reference,
    ReferencePoint,
    check_reference,
    file_name,
    find_reference,
    load_reference,
    write_reference,
)
from trnbench.training.reference_runs import FIRST_SEED, reference_case, take_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.workloads.recipe import Recipe

PUBLISHED = Path(__file__).parents[2] / "suites" / "training" / "reference"


def with_points(*points: ReferencePoint) -> Reference:
    return msgspec.structs.replace(reference(), points=list(points))


def changed_point(index: int, **changes: object) -> Reference:
    points = list(reference().points)
    points[index] = msgspec.structs.replace(points[index], **changes)
    return with_points(*points)


# Stored and found


def test_points_are_the_same_after_storing(tmp_path: Path) -> None:
    path = write_reference(tmp_path, reference())
    assert path.name == "nano-pretrain-b16-s32.json"
    assert load_reference(path) == reference() == find_reference(tmp_path, case())
    # Made anew, they take the place of the old ones.
    newer = msgspec.structs.replace(reference(), version="fedcba9876543210")
    assert write_reference(tmp_path, newer) == path
    assert list(tmp_path.iterdir()) == [path]
    assert load_reference(path).version == "fedcba9876543210"


def test_mean_and_spread_are_those_of_logarithms() -> None:
    samples = [point.samples_to_target for point in reference().points]
    assert reference().typical == pytest.approx(statistics.geometric_mean(samples))
    assert reference().spread == pytest.approx(statistics.stdev(math.log(one) for one in samples))


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.json")), ids=lambda path: path.stem)
def test_what_is_published_is_valid(path: Path) -> None:
    published = load_reference(path)
    assert f"--workload {published.workload} --phase {published.phase}" in published.command
    # A run of a result must be able to fail "not slower" before its budget ends.
    assert max(point.samples_to_target for point in published.points) < published.learning["max_steps"] * (
        published.batch
    )


# Refused


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (with_points(*reference().points[:5]), "5 points for results of 3 runs"),
        (msgspec.structs.replace(reference(), runs=4), "6 points for results of 4 runs"),
        (msgspec.structs.replace(reference(), runs=1), "at least 2 runs"),
        (changed_point(2, seed=1), "repeat; each run needs its own"),
        (msgspec.structs.replace(reference(), floor=2.0), "target 2.0 must lie above the floor 2.0"),
        (msgspec.structs.replace(reference(), floor=None), "either the floor or the reason"),
        (msgspec.structs.replace(reference(), floor_reason="it is a text"), "either the floor or the reason"),
        (changed_point(0, evaluations=[]), "the run with seed 1 has no evaluations"),
        (changed_point(0, evaluations=curve(1600)[:3]), "did not reach the target 2.0 in 480 samples"),
        (changed_point(0, evaluations=curve(100)), "is past the target 2.0 at its first evaluation"),
        (changed_point(0, evaluations=curve(1600)[::-1]), "the counts must grow"),
        (changed_point(0, samples_to_target=1500.0), "is said to need 1500.0 samples; its evaluations give"),
        (
            changed_point(0, evaluations=[*curve(1500), Evaluation(samples=9999, seconds=1, loss=float("inf"))]),
            "has an evaluation loss that is not finite",
        ),
        (
            with_points(*[msgspec.structs.replace(reference().points[0], seed=seed) for seed in range(6)]),
            "all runs need the same number of samples",
        ),
    ],
)
def test_what_is_no_reference_is_refused(broken: Reference, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_reference(broken, "a file")
    assert str(refused.value).startswith("reference points, a file: ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plain: plain.update(batch=32), "they are those of nano-pretrain-b32-s32.json"),
        (lambda plain: plain.update(precision="bf16"), "bf16"),
        (lambda plain: plain.update(remark="looks good"), "remark"),
        (lambda plain: plain.pop("cpu"), "cpu"),
        (lambda plain: plain.update(reference_version=2), "format 2; this is format 1"),
        (lambda plain: plain["points"][0].update(samples_to_target=1.0), "is said to need 1.0 samples"),
    ],
)
def test_an_edited_file_is_refused(change: Callable[[dict[str, object]], object], message: str, tmp_path: Path) -> None:
    path = write_reference(tmp_path, reference())
    plain = json.loads(path.read_text("utf-8"))
    change(plain)
    path.write_text(json.dumps(plain), "utf-8")
    with pytest.raises(UsageError) as refused:
        load_reference(path)
    assert str(path) in str(refused.value)
    assert message in str(refused.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff"])
def test_a_file_that_is_none_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / file_name("nano", "pretrain", 16, 32)
    path.write_bytes(data)
    with pytest.raises(UsageError, match="reference points"):
        load_reference(path)


# Made by real runs of a tiny model


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    # Between an untrained model's ln 16 and the ln 8 of one that only knows which tokens there are.
    made = tiny_recipe(target_loss=2.3, evaluation_every=8, max_samples=800, seeds=2)
    quality_world.install(monkeypatch, made)
    return made


def test_points_are_made_and_can_be_made_again(recipe: Recipe) -> None:
    told: list[str] = []
    the_case = tiny_case()
    made, again = (take_reference(the_case, None, threads=1, command="a command", tell=told.append) for _ in range(2))
    count = POINTS_PER_RUN * recipe.seeds
    assert [point.seed for point in made.points] == list(range(FIRST_SEED, FIRST_SEED + count))
    assert len(told) == 2 * count
    assert told[0].startswith(f"1 of {count}: seed 1 reached {made.target:.4f} after ")
    assert (made.threads, made.command, made.mode) == (1, "a command", "eager")
    assert (made.target, made.runs) == (2.3, 2)
    assert made.floor < made.target
    assert made.versions["torch"]
    assert made.learning == recipe.learning()
    assert [(point.seed, point.samples_to_target) for point in made.points] == [
        (point.seed, point.samples_to_target) for point in again.points
    ]


def test_a_measured_run_learns_what_the_plain_loop_does(recipe: Recipe, benchmark: object, tmp_path: Path) -> None:
    # Warm-up, clock, logs and checkpoints change no bit of a run.
    the_case = tiny_case()
    made = take_reference(the_case, None, threads=1, command="", tell=lambda text: None)
    backend = open_backend("cpu")
    with backend.numerics("fp32"):
        measured = measure_quality(
            backend,
            benchmark,
            case=the_case,
            runs=2,
            clock=benchmark._timer,
            state=tmp_path / "interrupted" / "state",
            seeds=[1, 2],
            references=tmp_path,
        )
    assert measured.measurement is not None
    for run, point in zip(measured.measurement.training, made.points, strict=False):
        assert run.seed == point.seed
        assert [(one.samples, one.loss) for one in run.evaluations] == [
            (one.samples, one.loss) for one in point.evaluations
        ]


def test_runs_that_do_not_get_there_make_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    quality_world.install(monkeypatch, tiny_recipe(target_loss=1.0))
    with pytest.raises(UsageError, match=r"did not reach the target 1\.0 in 48 samples; give it a longer budget"):
        take_reference(tiny_case(), 2, threads=1, command="", tell=lambda text: None)


def test_the_case_of_a_recipe_has_its_shape_and_version() -> None:
    plain = reference_case("nano", "pretrain", batch=None, sequence=None)
    assert (plain.precision, plain.mode, plain.phase) == ("fp32", "eager", "pretrain")
    other = reference_case("nano", "pretrain", batch=8, sequence=16)
    assert (other.batch, other.micro_batch, other.sequence) == (8, 8, 16)
    assert plain.version == other.version != ""
    with pytest.raises(UsageError, match="no recipe for nano in phase decode"):
        reference_case("nano", "decode", batch=None, sequence=None)


def test_the_interval_of_the_samples_is_that_of_the_tests() -> None:
    assert {b.samples - a.samples for a, b in zip(curve(1600), curve(1600)[1:], strict=False)} == {EVERY}


# The command


def test_the_command_makes_stores_and_shows_points(
    recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = ["--make", "--workload", "tiny", "--phase", "pretrain"]
    assert main(["reference", *made, "--folder", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    assert f"stored in {path}" in out.replace("\n", "")
    stored = load_reference(path)
    assert len(stored.points) == POINTS_PER_RUN * recipe.seeds
    assert stored.command == "trnbench reference " + " ".join(made)
    assert main(["reference", "--folder", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for point in stored.points:
        assert f"{point.samples_to_target:.1f}" in shown
    assert f"2 runs may need {limits(stored, 2).fewest:.1f} to {limits(stored, 2).most:.1f} on average" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--make"], "--make needs --workload and --phase"),
        (["--make", "--workload", "nano", "--phase", "decode"], "there is no recipe for nano in phase decode"),
        (["--make", "--workload", "nano", "--phase", "pretrain", "--runs", "1"], "--runs is 1; it must be at least 2"),
        (["--make", "--workload", "nano", "--phase", "pretrain", "--threads", "0"], "--threads is 0"),
        (["--workload", "nano"], "--workload is for --make"),
        ([], "holds no reference convergence points"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reference", *arguments, "--folder", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
