"""mlperf_logging's own checkers on our logs: its compliance checker under our rule file, its convergence checker with
our reference points.

What passes has the right form. That makes it no MLPerf result.
"""

from __future__ import annotations

import io
import json
import statistics
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import quality_world
import yaml
from log_samples import EVALUATIONS, TRAIN_SAMPLES, changed, keys, lines, log_text, moved, text_of, without
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.rcp_checker import rcp_checker
from reference_samples import reference

from trnbench.backends.select import open_backend
from trnbench.mllog import parse
from trnbench.training import convergence
from trnbench.training.convergence import limits
from trnbench.training.measure import measure_quality
from trnbench.training.rule_data import NEWEST, load_rules
from trnbench.training.rules import check_log, check_set

if TYPE_CHECKING:
    from trnbench.training.reference import Reference

RULESET = "6.1.0"
RULE_FILE = Path(str(resources.files("trnbench.training"))) / "ruleset" / "trnbench.yaml"
LORA = log_text(phase="finetune_lora")


def refusal(text: str, folder: Path, caplog: pytest.LogCaptureFixture) -> str:
    """What the compliance checker says against a log; empty where it accepts it."""
    path = folder / "result_1.txt"
    path.write_text(text, "utf-8")
    # A list of the module, which a check that broke off would leave to the next one.
    mlp_compliance.enqueued_configs.clear()
    caplog.clear()
    checker = mlp_compliance.make_checker("training", RULESET, quiet=False, werror=True)
    accepted = checker.check_file(str(path), str(RULE_FILE.absolute()))
    said = "\n".join(record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert accepted == (not said)
    return said


@pytest.mark.parametrize("phase", ["pretrain", "finetune_lora"])
def test_our_log_is_accepted(phase: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert refusal(log_text(phase=phase), tmp_path, caplog) == ""


def test_logs_of_real_runs_are_accepted_by_both(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quality_world.install(monkeypatch, quality_world.tiny_recipe(target_loss=2.3, evaluation_every=8, max_samples=800))
    backend = open_backend("cpu")
    with backend.numerics("bf16"):
        measured = measure_quality(
            backend,
            benchmark,
            case=quality_world.tiny_case(precision="bf16"),
            runs=3,
            clock=benchmark._timer,
            state=tmp_path / "interrupted" / "state",
        )
    logs = {name: data.decode() for name, data in measured.files.items()}
    assert len(logs) == 3
    rules = load_rules(NEWEST)
    for name, text in logs.items():
        assert refusal(text, tmp_path, caplog) == ""
        assert check_log(parse(text, name), name, rules) == []
    assert check_set({name: parse(text, name) for name, text in logs.items()}, rules) == []
    # What their convergence checker reads in them, as they are.
    paths = [tmp_path / name for name in logs]
    for path in paths:
        path.write_text(logs[path.name], "utf-8")
    trained = measured.measurement.training
    batch, needed, name = rcp_checker.get_submission_epochs([str(path) for path in paths], RULESET, False)
    assert (batch, name) == (quality_world.BATCH, "trnbench_pretrain_tiny")
    assert needed == [run.samples for run in trained]
    assert all(run.converged for run in trained)


@pytest.mark.parametrize("key", keys(LORA))
def test_a_missing_key_is_named(key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = refusal(without(LORA, key), tmp_path, caplog)
    # Of keys that one benchmark has and the other has not, it can only say which expression does not hold.
    lora = key.startswith("lora_")
    assert (f"failed test: s['{key}'] > 0" if lora else f"occurrence of '{key}' but found 0") in said


def test_every_key_that_is_required_of_any_log_is_required_here() -> None:
    ours = _required(yaml.load(RULE_FILE.read_text("utf-8"), yaml.BaseLoader))
    theirs = Path(mlp_compliance.__file__).parent / f"training_{RULESET}" / "common.yaml"
    needed = _required(yaml.load(theirs.read_text("utf-8"), yaml.BaseLoader))
    # Epochs are named as another way to tell blocks.
    assert needed - {"epoch_start", "epoch_stop"} <= ours
    assert len(needed) > 20


def test_both_forms_of_our_rules_ask_for_the_same_keys() -> None:
    ours = load_rules(NEWEST)
    in_yaml = yaml.load(RULE_FILE.read_text("utf-8"), yaml.BaseLoader)
    required = {key.name for key in ours.key if key.count != "any" and not key.benchmarks}
    assert _required(in_yaml) == required
    named = {entry["KEY"]["NAME"] for entry in in_yaml if "KEY" in entry}
    assert named == {key.name for key in ours.key} - {"trnbench_resumed"}
    (begin,) = [entry for entry in in_yaml if "KEY" in entry and entry["KEY"]["NAME"] == "ruleset"]
    assert begin["KEY"]["CHECK"].strip() == f"v['value'] == '{ours.name}'"


def _required(rules: list[dict[str, Any]]) -> set[str]:
    return {entry["KEY"]["NAME"] for entry in rules if "KEY" in entry and "REQ" in entry["KEY"]}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        # What the checker's own rules let pass.
        (
            log_text(evaluations=EVALUATIONS[:2], converged=False),
            "failed test: v['metadata'].get('status') == 'success'",
        ),
        (log_text(evaluations=EVALUATIONS[:2]), "failed test: s['last'] <= s['target']"),
        (log_text(evaluations=EVALUATIONS[:2]), "Failed checks for eval_accuracy"),
        (
            changed(LORA, "eval_stop", lambda entry: entry["metadata"].pop("samples_count")),
            "CHECK for 'eval_stop' failed",
        ),
        (moved(LORA, "init_stop", before="seed"), "CHECK for 'seed' failed"),
        (moved(LORA, "init_stop", before="submission_division"), "CHECK for 'init_stop' failed"),
        (moved(LORA, "init_start", before="cache_clear"), "CHECK for 'cache_clear' failed"),
        (changed(LORA, "block_stop", lambda entry: entry["metadata"].update(samples_count=1)), "'block_stop' failed"),
        (changed(LORA, "tensor_parallelism", lambda entry: entry.update(value=0)), "'tensor_parallelism' failed"),
        (changed(LORA, "ruleset", lambda entry: entry.update(value="0.9")), "CHECK for 'ruleset' failed"),
        (changed(LORA, "submission_benchmark", lambda entry: entry.update(value="bert")), "'submission_benchmark'"),
        (changed(LORA, "lora_rank", lambda entry: entry.update(value=0)), "CHECK for 'lora_rank' failed"),
        (text_of([*lines(LORA), lines(LORA)[0]]), "EXACTLY_ONE occurrence of 'submission_benchmark' but found 2"),
    ],
)
def test_what_breaks_our_rules_is_refused(
    broken: str, says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert says in refusal(broken, tmp_path, caplog)


def test_the_limit_of_the_untimed_part_is_theirs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for division, minutes, passes in (("open", 239, True), ("open", 241, False), ("closed", 31, False)):
        entries = lines(log_text())
        stop = next(index for index, entry in enumerate(entries) if entry["key"] == "init_stop")
        for index, entry in enumerate(entries):
            entry["time_ms"] = minutes * 60_000 if index >= stop else 0
            if entry["key"] == "submission_division":
                entry["value"] = division
        said = refusal(text_of(entries), tmp_path, caplog)
        assert (said == "") == passes
        assert passes or "init_stop" in said


def test_its_command_accepts_our_log(tmp_path: Path) -> None:
    (tmp_path / "result_1.txt").write_text(log_text(), "utf-8")
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "result_1.txt", "--ruleset", RULESET]
    command += ["--config", str(RULE_FILE.absolute()), "--werror", "--log_output", "checker.log"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "SUCCESS" in done.stderr


# Reference convergence points


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Reference:
    made = reference()
    # The checker knows how many runs a result has only of official benchmarks.
    monkeypatch.setitem(rcp_checker.submission_runs["training"], _benchmark(made), made.runs)
    return made


def _benchmark(made: Reference) -> str:
    return f"trnbench_{made.phase}_{made.workload}"


def rcp_file(made: Reference, unit: int = 1) -> io.StringIO:
    """Our points in the form of the checker's own files, in units of so many samples."""
    entry = {
        "Benchmark": _benchmark(made),
        "Creator": "TrnBench",
        "When": made.made_at,
        "Platform": made.backend,
        "Precision": made.precision,
        "BS": made.batch,
        "Hyperparams": made.learning,
        "Epochs to converge": [point.samples_to_target / unit for point in made.points],
    }
    return io.StringIO(json.dumps({f"{_benchmark(made)}_{made.batch}": entry}))


def rcp_verdict(made: Reference, samples: list[float], folder: Path, *, endless: bool) -> tuple[bool, str]:
    for number, needed in enumerate(samples, 1):
        text = log_text(number, evaluations=[(160, 2.9), (round(needed), 1.9)], endless=endless)
        (folder / f"result_{number}.txt").write_text(text, "utf-8")
    # It takes `epoch_num` as the unit of convergence, and `samples_count` only of benchmarks that it knows.
    points = rcp_file(made, 1 if endless else TRAIN_SAMPLES)
    passed, message, _ = rcp_checker.check_directory(
        str(folder), "training", RULESET, False, False, rcp_file=points, rcp_pass="full_rcps"
    )
    return passed, message


@pytest.mark.parametrize("endless", [True, False], ids=["source", "text"])
@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.3, True), (0.7, False)])
def test_its_convergence_checker_takes_our_points_and_logs(
    factor: float, passes: bool, endless: bool, points: Reference, tmp_path: Path
) -> None:
    samples = [points.typical * factor * share for share in (0.99, 1.0, 1.01)]
    assert rcp_verdict(points, samples, tmp_path, endless=endless) == (passes, "RCP found")


def test_its_limit_and_ours_are_of_one_kind(points: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = rcp_checker.RCP_Checker("training", RULESET, _benchmark(points), False, rcp_file(points))
    (theirs,) = checker.rcp_data.values()
    samples = sorted(point.samples_to_target for point in points.points)
    # Its mean leaves out the extremes, its standard deviation is that of the population, and not of the logarithms.
    assert theirs["RCP Mean"] == pytest.approx(statistics.fmean(samples[1:-1]))
    assert theirs["RCP Stdev"] == pytest.approx(statistics.pstdev(samples))
    assert theirs["RCP Mean"] == pytest.approx(points.typical, rel=points.spread)
    # With the extremes left out on both sides it has 4 points and 1 run where we have 6 and 3, so at one level it is
    # the more lenient one. Our own level is stricter about false alarms, and with 6 points it pays with this limit.
    assert limits(points, points.runs).fewest < theirs["Min Epochs"]
    monkeypatch.setattr(convergence, "LEVEL", checker.alpha)
    assert theirs["Min Epochs"] < limits(points, points.runs).fewest < points.typical
