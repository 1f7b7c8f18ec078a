"""Served cases and trainings to quality through the pytest face: real runs, selection, and what makes another case."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from test_pytest_process import ROOT, pytest_child, records

from trnbench.backends.select import open_backend
from trnbench.case import Case, case_from
from trnbench.device import Device
from trnbench.plugin.options import HUB, NAMED_DATA
from trnbench.plugin.running import _check_able
from trnbench.plugin.work import INTERRUPTED, checked_as
from trnbench.records.store import Store, read_artifact
from trnbench.status import CaseError, Status
from trnbench.workloads import text

if TYPE_CHECKING:
    from pathlib import Path

SERVED = """
import pytest
from trnbench.case import grid
from trnbench.serving.clock import loadgen_clock

CASES = grid(suite="tiny", tier="smoke", workload="nano", phase="serving", scenario="offline",
             profile=["quick", "full"], precision="fp32", mode="eager", batch=4, sequence=8, new_tokens=4)

@pytest.mark.cases(CASES)
@pytest.mark.benchmark(timer=loadgen_clock)
def test_serving(measure):
    measure(rounds=1)
"""
TRAINED = """
import pytest
from trnbench.case import grid

CASES = grid(suite="tiny", tier="smoke", workload="nano", phase="pretrain", precision="fp32", mode="eager", batch=4,
             sequence=8)

@pytest.mark.cases(CASES)
def test_pretrain(measure):
    measure(rounds=3)
"""
CPU = ("--backend", "cpu", "--results-dir", "results")


def versions(folder: Path, *arguments: str) -> set[str]:
    listing = folder / "list.json"
    child = pytest_child(folder, "--trnbench-list", str(listing), *arguments)
    assert child.returncode == 0, child.stdout + child.stderr
    return {item["case"]["version"] for item in json.loads(listing.read_text())}


def test_a_served_case_becomes_one_checked_record_with_its_logs(tmp_path: Path) -> None:
    """And the full profile, which takes hours, is left out unless it is named."""
    (tmp_path / "test_suite.py").write_text(SERVED)
    child = pytest_child(tmp_path, *CPU)
    assert child.returncode == 0, child.stdout + child.stderr
    (stored,) = Store(tmp_path / "results").load().records
    record = stored.record
    assert (record.case.profile, record.status) == ("quick", Status.OK)
    assert record.measurement is not None
    assert [run.purpose for run in record.measurement.serving] == ["accuracy", "calibration", "round", "audit"]
    names = {check.check for check in record.conformance}
    assert {"teacher-forced logits", "serving/performance-outputs", "serving/repeated-samples"} <= names
    logs = {one.name: read_artifact(stored, one).decode() for one in record.artifacts}
    assert "Result is : VALID" in logs["round-1-summary.txt"]
    assert str(tmp_path) not in "".join(logs.values())


def test_profiles_are_listed_all_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SERVED)
    listing = tmp_path / "list.json"
    assert pytest_child(tmp_path, "--trnbench-list", str(listing)).returncode == 0
    assert {item["case"]["profile"] for item in json.loads(listing.read_text())} == {"quick", "full"}
    wrong = pytest_child(tmp_path, *CPU, "--profile", "fast")
    assert wrong.returncode == 2
    assert "--profile is 'fast'; it must be one of quick, full" in wrong.stderr


def test_a_training_on_a_text_is_another_case_with_its_own_target(tmp_path: Path) -> None:
    """A target that every model meets at once keeps it short: what is tried is the way from options to record."""
    (tmp_path / "test_suite.py").write_text(TRAINED)
    (tmp_path / "text.txt").write_text("all work and no play makes a dull model, " * 200)
    own = versions(tmp_path)
    named = ("--data", "text.txt", "--target-loss", "9")
    other = versions(tmp_path, *named)
    assert own.isdisjoint(other)
    assert other.isdisjoint(versions(tmp_path, "--data", "text.txt", "--target-loss", "8"))
    child = pytest_child(tmp_path, *CPU, *named)
    (record,) = records(tmp_path / "results")
    assert record.status is Status.OK, child.stdout + child.stderr
    assert {record.case.version} == other
    assert record.measurement is not None
    assert [run.target for run in record.measurement.training] == [9.0] * 3
    assert [run.floor for run in record.measurement.training] == [None] * 3
    assert "text" in record.unknown["measurement.training[*].floor"]
    assert {one.name for one in record.artifacts} == {"result_1.txt", "result_2.txt", "result_3.txt"}
    assert not (tmp_path / "results" / INTERRUPTED).exists() or not list((tmp_path / "results" / INTERRUPTED).iterdir())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--data", "nothing.txt"), "--data nothing.txt: there is no such file"),
        (("--target-loss", "low"), "--target-loss is 'low'; it must be a positive number"),
        (("--target-loss", "nan"), "--target-loss is 'nan'; it must be a positive number"),
    ],
)
def test_wrong_training_options_are_refused_before_anything_runs(
    tmp_path: Path, options: tuple[str, str], sentence: str
) -> None:
    (tmp_path / "test_suite.py").write_text(TRAINED)
    child = pytest_child(tmp_path, *CPU, *options)
    assert child.returncode == 2
    assert sentence in child.stderr
    assert not (tmp_path / "results").exists()


def test_the_plug_in_names_data_as_the_workloads_do() -> None:
    """It does not import them: that would import torch."""
    assert (text.SOURCE, text.SHIPPED) == NAMED_DATA
    assert text.HUB == HUB


@pytest.mark.parametrize(
    ("phase", "step"), [("serving", "decode"), ("scoring", "prefill"), ("pretrain", "train_step"), ("decode", "decode")]
)
def test_what_serving_and_training_are_made_of_is_what_is_checked(phase: str, step: str) -> None:
    served = phase in ("serving", "scoring")
    case = case_from(
        {
            "suite": "tiny",
            "workload": "nano",
            "phase": phase,
            "precision": "bf16",
            "mode": "eager",
            "tier": "smoke",
            "batch": 4,
            "sequence": 8,
            "new_tokens": 4 if phase in ("serving", "decode") else 0,
            "scenario": "offline" if served else "",
            "profile": "quick" if served else "",
        }
    )
    found = checked_as(case)
    assert (found.phase, found.scenario, found.profile) == (step, "", "")
    assert (found.workload, found.precision, found.mode, found.batch) == ("nano", "bf16", "eager", 4)


@pytest.mark.parametrize("phase", ["train_step", "serving", "pretrain"])
def test_a_parallel_plan_is_refused_where_there_are_devices_for_it(phase: str) -> None:
    """Run on one device, it would be recorded as what it is not."""
    served = {"scenario": "offline", "profile": "quick", "new_tokens": 4} if phase == "serving" else {}
    case = record_case(phase=phase, parallel={"dp": 2}, **served)
    device = Device(backend="cpu", platform="linux", chip="h100", chips=2, cores=2)
    with pytest.raises(CaseError, match="runs on one device; its parallel plan asks for 2") as caught:
        _check_able(case, open_backend("cpu"), device)
    assert caught.value.status is Status.UNSUPPORTED


def record_case(**changes: object) -> Case:
    fields = {"suite": "tiny", "workload": "nano", "precision": "fp32", "mode": "eager", "tier": "smoke"}
    return case_from({**fields, "batch": 4, "sequence": 8, **changes})


def test_the_suites_offer_every_scenario_at_smoke_tier() -> None:
    listed = pytest_child(ROOT, "suites", "--collect-only", "--tier", "smoke").stdout
    for scenario in ("single_stream", "multi_stream", "offline", "server", "interactive"):
        assert f"-{scenario}-" in listed
