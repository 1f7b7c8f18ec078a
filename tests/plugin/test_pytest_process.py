"""The pytest face in processes of its own: signals, a missing torch, workers, and the real CPU backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_suite import SUITE

from trnbench.case import PHASES
from trnbench.records.store import Store
from trnbench.status import Status

if TYPE_CHECKING:
    from trnbench.records.schema import Record

ROOT = Path(__file__).parents[2]

CONFTEST = """
import os, signal, pytest
from fake_suite import install
from fake_backend import Step

def script(case):
    if case.batch == 2:
        os.kill(os.getpid(), signal.{name})
    return [Step()]

install(pytest.MonkeyPatch(), script)
"""
"""Puts the scripted backend into the child; the case of batch 2 sends its own process a signal."""

WITHOUT_TORCH = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torch_xla"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""


def pytest_child(folder: Path, *arguments: str, extra_path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    paths = [str(path) for path in (extra_path, ROOT / "tests" / "plugin") if path]
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--color=no", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def records(results: Path) -> list[Record]:
    loaded = Store(results).load()
    assert loaded.rejected == []
    return sorted((stored.record for stored in loaded.records), key=lambda record: record.record_id)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_leaves_complete_records_and_ends_with_130(tmp_path: Path, name: str) -> None:
    """G11: a real signal in the second case: the first is stored, the second is 'interrupted' with the signal."""
    (tmp_path / "conftest.py").write_text(CONFTEST.format(name=name))
    (tmp_path / "test_suite.py").write_text(SUITE.format(batches=[1, 2, 3]))
    child = pytest_child(tmp_path, "--backend", "fake", "--results-dir", "results")
    assert child.returncode == 130, child.stdout + child.stderr
    assert [(record.case.batch, record.status) for record in records(tmp_path / "results")] == [
        (1, Status.OK),
        (2, Status.INTERRUPTED),
    ]
    assert name in records(tmp_path / "results")[1].reason


@pytest.fixture
def without_torch(tmp_path: Path) -> Path:
    """A folder whose `sitecustomize` makes every import of torch fail, as where it is not installed."""
    folder = tmp_path / "no_torch"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WITHOUT_TORCH)
    return folder


def test_suites_are_collected_and_listed_without_torch(without_torch: Path, tmp_path: Path) -> None:
    """G1: with torch not installed the suites collect and list, and skip with a reason when run.

    C6: the cases that anyone can run include a length above 256, from where on bfloat16 positions collide.
    """
    blocked = subprocess.run(
        [sys.executable, "-c", "import torch"],
        env={**os.environ, "PYTHONPATH": str(without_torch)},
        capture_output=True,
        check=False,
    )
    assert blocked.returncode == 1
    collected = pytest_child(ROOT, "suites", "--collect-only", extra_path=without_torch)
    assert collected.returncode == 0, collected.stdout + collected.stderr
    file = tmp_path / "cases.json"
    assert pytest_child(ROOT, "suites", "--trnbench-list", str(file), extra_path=without_torch).returncode == 0
    listed = json.loads(file.read_text())
    assert {item["case"]["phase"] for item in listed} == set(PHASES)
    assert len({item["nodeid"] for item in listed}) == len(listed)
    assert max(item["case"]["sequence"] for item in listed if item["case"]["tier"] == "smoke") > 256
    skipped = pytest_child(ROOT, "suites", "-rs", extra_path=without_torch)
    assert skipped.returncode == 3
    assert "no backend chosen" in skipped.stdout


@pytest.mark.parametrize("count", ["1", "2"])
def test_xdist_workers_are_refused(tmp_path: Path, count: str) -> None:
    """G13: `-n 2` with a backend measures nothing, writes nothing and says so with exit code 2."""
    (tmp_path / "test_suite.py").write_text(SUITE.format(batches=[1]).replace("timer=CLOCK", "").replace(CLOCK, ""))
    child = pytest_child(tmp_path, "-n", count, "--backend", "cpu", "--results-dir", "results")
    assert child.returncode == 2
    assert "pytest-xdist" in child.stderr
    assert not (tmp_path / "results").exists()


CLOCK = "from fake_backend import CLOCK\n"


def test_an_absent_accelerator_ends_with_4(tmp_path: Path) -> None:
    """G2: the neuron backend on a machine without one: exit 4 before anything ran, no row."""
    child = pytest_child(ROOT, "suites", "--backend", "neuron", "--results-dir", str(tmp_path / "results"))
    assert child.returncode == 4, child.stdout + child.stderr
    assert not (tmp_path / "results").exists()


def test_a_real_decode_case_on_the_cpu(tmp_path: Path) -> None:
    """One short case of the real suites on the real backend, conformance included, ends as one clean record."""
    case = "suites/decoder/test_decode.py::test_decode[nano-decode-fp32-eager-b8-s128-n32]"
    child = pytest_child(ROOT, case, "--backend", "cpu", "--results-dir", str(tmp_path), "--rounds", "4")
    assert child.returncode == 0, child.stdout + child.stderr
    (record,) = records(tmp_path)
    assert record.status is Status.OK
    assert record.measurement is not None
    assert [item.items["sequences"] for item in record.measurement.rounds] == [8] * 4
    assert all(item.seconds > 0 and item.compiles == 0 for item in record.measurement.rounds)
    assert len(record.measurement.timings["ttft_seconds"]) == 4
    assert record.conformance
    assert (record.device.chip, record.simulated) == ("cpu", False)
