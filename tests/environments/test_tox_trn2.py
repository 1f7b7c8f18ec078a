"""`tox -e trn2` as a whole, from making the environment to record and page, with a stand-in for Neuron.

The job runs in a copy of the checkout. Its interpreter is one that has the stand-in `torch-neuronx`, as an AWS image's
has the real one. No package index is asked: what the environment needs must be found below it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trnbench import wording
from trnbench.records.store import Store

if TYPE_CHECKING:
    from trnbench.records.schema import Record

ROOT = Path(__file__).resolve().parents[2]
MAKE = ROOT / "tests/standin/make_environment.py"
CHECKOUT = ("harness", "suites", "pyproject.toml", "tox.ini", "LICENSE", "README.md")
TWO_MODES = ("--", "--select", "nano-prefill-bf16", "--rounds", "3")
STEERING = ("TRNBENCH_", "TOX_", "PYTEST_", "PYTHON", "NEURON_", "TORCH_NEURONX_", "SIMULATED_NEURON_", "XLA_")
"""Variables of this test session that must not steer the job."""


class Job:
    """A copy of the checkout in which `tox -e trn2` is run, with the environments that it makes."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.environments = folder / "tox"
        self.results = self.checkout / "results/local"
        self.pages = self.checkout / "reports/local"
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        self.checkout.mkdir()
        for name in CHECKOUT:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.checkout / name, ignore=ignored)
            elif source.exists():
                shutil.copy(source, self.checkout / name)

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command in the checkout: one run of the smoke tier, and no package index."""
        settings = {"TRNBENCH_TIER": "smoke", "TRNBENCH_RUNS": "1", "OMP_NUM_THREADS": "1", "PIP_NO_INDEX": "1"}
        # pip reads the name as a switch: 0 means that the build does not get an environment of its own.
        settings["PIP_NO_BUILD_ISOLATION"] = "0"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.checkout,
            timeout=600,
            env={**kept, **settings, **environment},
        )

    def tox(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`tox run -e trn2`; arguments for `trnbench run` come after a `--`."""
        where = ("--workdir", str(self.environments))
        return self.run(sys.executable, "-m", "tox", "run", "-e", "trn2", *where, *arguments, **environment)

    def made(self, command: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A command of the environment that the job made."""
        return self.run(self.environments / "trn2/bin" / command, *arguments, **environment)


@pytest.fixture(scope="module")
def neuron(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has the stand-in."""
    directory = tmp_path_factory.mktemp("aws") / "environment"
    done = subprocess.run([sys.executable, MAKE, directory], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def described(job: Job, neuron: str) -> list[subprocess.CompletedProcess[str]]:
    """The guide's check before spending: the environment without the job, filled by hand, and the doctor in it."""
    steps = [job.tox("--notest", TRNBENCH_NEURON_PYTHON=neuron)]
    steps.append(job.made("python", "harness/neuron_environment.py", "trn2", TRNBENCH_NEURON_PYTHON=neuron))
    steps.append(job.made("trnbench", "doctor", "--backend", "neuron"))
    return steps


@pytest.fixture(scope="module")
def done(job: Job, neuron: str, described: list[subprocess.CompletedProcess[str]]) -> subprocess.CompletedProcess[str]:
    """The job as a user starts it, in the environment just described: both modes of one case, with conformance."""
    assert len(described) == 3
    return job.tox(*TWO_MODES, TRNBENCH_NEURON_PYTHON=neuron)


@pytest.fixture(scope="module")
def records(job: Job, done: subprocess.CompletedProcess[str]) -> list[Record]:
    loaded = Store(job.results).load()
    assert loaded.rejected == [], done.stdout + done.stderr
    return sorted((stored.record for stored in loaded.records), key=lambda record: record.case.id)


def text_of(folder: Path) -> str:
    """Everything that a folder holds, in one text."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*")) if path.is_file())


def test_environment_made_by_hand_and_described(
    described: list[subprocess.CompletedProcess[str]], done: subprocess.CompletedProcess[str]
) -> None:
    """The doctor opens the device and says what it is; the job then uses the same environment."""
    assert [step.returncode for step in described] == [0, 0, 0], [step.stderr for step in described]
    doctor = described[-1].stdout
    assert re.search(r"backend +neuron\b", doctor)
    assert re.search(r"chip +cpu\b", doctor)
    assert re.search(r"torch-neuronx +2\.13\.3\.0\b", doctor)
    assert wording.SIMULATED_NOTICE in doctor
    assert "recreate" not in done.stdout


def test_exit_code(done: subprocess.CompletedProcess[str]) -> None:
    """The cases end well, and the job still ends with 3, "nothing was measured": a stand-in measures no accelerator."""
    assert done.returncode == 3, done.stdout + done.stderr
    assert "2 of 2 measured" in done.stdout
    assert "FAIL code 3" in done.stdout
    sentences = [line for line in done.stderr.splitlines() if line.startswith("trnbench: ")]
    assert len(sentences) == 3, done.stderr
    assert sentences[0].startswith("trnbench: taking the passport of backend neuron")
    assert sentences[1].startswith("trnbench: stored as ")
    assert wording.SIMULATED_NOTICE in sentences[2]
    assert "Traceback" not in done.stdout + done.stderr


def test_records(records: list[Record]) -> None:
    assert [(record.case.mode, record.status.value) for record in records] == [("compiled", "ok"), ("eager", "ok")]
    for record in records:
        assert record.simulated
        assert record.environment.versions["torch-neuronx"] == "2.13.3.0"
        assert record.environment.flags["NEURON_CC_FLAGS"] == "--auto-cast=none"
        assert record.measurement is not None
        assert len(record.measurement.rounds) == 3
        assert {one.compiles for one in record.measurement.rounds} == {0}
        assert {one.fallbacks for one in record.measurement.rounds} == {0}
        assert record.measurement.sync.startswith("torch.neuron.synchronize()")
        assert record.conformance
        assert {check.verdict for check in record.conformance} == {"pass"}


def test_what_ran_is_never_called_trainium(job: Job, records: list[Record]) -> None:
    for record in records:
        assert (record.device.backend, record.device.platform, record.device.chip) == ("neuron", "simulated", "cpu")
        assert record.device.read_back["outputs_on"] == "neuron:0"
    stored = [str(path.relative_to(job.results)) for path in job.results.rglob("*.json")]
    assert stored
    assert all(path.startswith(("decoder/cpu/", "passports/cpu/")) for path in stored)
    assert "rainium" not in text_of(job.results)


def test_nothing_outside_the_checkout_is_named(job: Job, records: list[Record]) -> None:
    """A record can be published: it says nothing about where it was made."""
    assert len(records) == 2
    assert str(job.checkout.parent) not in text_of(job.results)
    assert str(Path.home()) not in text_of(job.results)


def test_page_shows_no_number(job: Job, records: list[Record]) -> None:
    """The page that the job built says why it is empty; no case, run or figure of the records is anywhere in it."""
    assert "2 records read, 0 shown, 2 left out because a simulated device made them" in text_of(job.pages)
    assert json.loads((job.pages / "trnbench-site.json").read_text(encoding="utf-8"))["records"] == []
    assert [path.name for path in job.pages.rglob("*.json")] == ["trnbench-site.json"]
    shown = text_of(job.pages)
    for record in records:
        assert record.measurement is not None
        for hidden in (record.record_id, record.run_id, record.case.id, repr(record.measurement.rounds[0].seconds)):
            assert hidden not in shown


def test_page_on_request_carries_the_notice(job: Job, records: list[Record], tmp_path: Path) -> None:
    built = job.made("trnbench", "report", str(job.results), "--out", str(tmp_path / "pages"), "--allow-simulated")
    assert built.returncode == 0, built.stderr
    pages = sorted((tmp_path / "pages").rglob("*.html"))
    assert len(pages) > len(records)
    for page in pages:
        assert wording.SIMULATED_NOTICE in page.read_text(encoding="utf-8"), page.name
    assert all(record.case.id in text_of(tmp_path / "pages") for record in records)


def test_comparison_is_refused(job: Job, records: list[Record]) -> None:
    """The two records differ in their mode only, and would compare if they were measurements."""
    refused = job.made("trnbench", "compare", str(job.results), "--axis", "mode")
    assert refused.returncode == 5
    assert refused.stdout.count(wording.SIMULATED_NOTICE) == len(records)
    assert refused.stderr.startswith("trnbench: nothing to compare")


def test_comparison_on_request_carries_the_notice(job: Job, records: list[Record]) -> None:
    asked = job.made("trnbench", "compare", str(job.results), "--axis", "mode", "--allow-simulated", "--json")
    assert asked.returncode == 0, asked.stderr
    found = json.loads(asked.stdout)
    assert len(found["comparisons"]) == 1
    assert not found["not_compared"]
    assert wording.SIMULATED_NOTICE in asked.stdout
    assert {record.case.precision for record in records} == {"bf16"}


def test_resume_runs_what_is_missing(job: Job, records: list[Record], neuron: str) -> None:
    """The same command with --resume: what is there is kept, and only the case that is missing runs."""
    wider = ("--", "--select", "nano-prefill-bf16 or nano-decode-fp32-eager", "--rounds", "3")
    again = job.tox(*wider, "--resume", TRNBENCH_NEURON_PYTHON=neuron)
    assert "skipping 2 finished cases, running 1" in again.stdout, again.stdout + again.stderr
    found = [stored.record for stored in Store(job.results).load().records]
    assert len(found) == 3
    assert {record.run_id for record in found} == {records[0].run_id}
    assert [record.status.value for record in found if record.case.phase == "decode"] == ["ok"]


def test_failed_case_is_the_exit_code_and_gets_its_page(job: Job, neuron: str, tmp_path: Path) -> None:
    """The page is built after a failed case too, and the job ends with the run's own code."""
    failed = job.tox(
        *("--", "--select", "nano-prefill-fp32-eager", "--rounds", "3", "--no-conformance"),
        TRNBENCH_NEURON_PYTHON=neuron,
        TRNBENCH_RESULTS=str(tmp_path / "results"),
        TRNBENCH_REPORTS=str(tmp_path / "pages"),
        SIMULATED_NEURON_OOM_OPERATOR="embedding",
    )
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert [stored.record.status.value for stored in Store(tmp_path / "results").load().records] == ["oom"]
    assert (tmp_path / "pages/index.html").is_file()


def test_interpreter_without_neuron(tmp_path: Path) -> None:
    """One sentence and exit code 2, before anything is installed or measured."""
    job = Job(tmp_path)
    refused = job.tox(*TWO_MODES, TRNBENCH_NEURON_PYTHON=sys.executable)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert f"TRNBENCH_NEURON_PYTHON={sys.executable} has no torch-neuronx: name the interpreter that has it" in (
        refused.stderr
    )
    assert "trnbench run" not in refused.stdout
    assert not (job.checkout / "results").exists()


def test_interpreter_that_is_not_there(tmp_path: Path) -> None:
    """A missing interpreter is an error that names it, never a job skipped with exit code 0."""
    job = Job(tmp_path)
    missing = str(tmp_path / "no/such/python")
    refused = job.tox(TRNBENCH_NEURON_PYTHON=missing)
    assert refused.returncode == 1
    assert "could not find python interpreter" in refused.stdout
    assert missing in refused.stdout
    assert not (job.checkout / "results").exists()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python itself is one that the job may use")
def test_no_python_of_the_right_version(tmp_path: Path) -> None:
    """Without TRNBENCH_NEURON_PYTHON the job looks for a Python that Neuron is built for, and says which."""
    refused = Job(tmp_path).tox(PATH=str(tmp_path))
    assert refused.returncode == 1
    assert "could not find python interpreter matching any of the specs python3.12, python3.13, python3.14" in (
        refused.stdout
    )


def test_trainium1_never_ends_on_the_cpu() -> None:
    """torch-xla chooses a device by itself where none is asked for, so the job of trn1 asks."""
    shown = subprocess.run(
        [
            sys.executable,
            "-m",
            "tox",
            "config",
            "-c",
            str(ROOT / "tox.ini"),
            "-e",
            "trn1,trn2",
            "-k",
            "set_env",
            "commands",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    first, _, second = shown.partition("[testenv:trn2]")
    assert "PJRT_DEVICE=NEURON" in first
    assert "trnbench run --backend xla" in first
    assert "PJRT_DEVICE" not in second
    assert "trnbench run --backend neuron" in second
