"""The neuron backend on the simulated device, in an environment where `torch-neuronx` is the stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = ROOT / "tests/standin/make_environment.py"

OPEN = """
from trnbench.backends.neuron import NeuronBackend
from trnbench.backends.select import backend_class
from trnbench.status import TrnBenchError
NeuronBackend.busy_wait = 0.01
backend = backend_class("neuron")()
try:
    backend.preflight()
    backend.open()
    print("opened", backend.simulated, backend.flags()["neuron.flags_set_before_import"])
except TrnBenchError as error:
    print(type(error).__name__, int(error.exit_code), getattr(error, "status", ""), error)
"""


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("standin") / "environment"
    done = subprocess.run([sys.executable, MAKE, directory], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def run(
    interpreter: Path, *arguments: str, timeout: float = 600, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the stand-in environment's Python without variables of this test session that steer torch or pytest."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NEURON_", "TORCH_NEURONX_", "SIMULATED_NEURON_", "PYTEST_", "XLA_"))
    }
    return subprocess.run(
        [interpreter, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=timeout,
        env={**kept, "OMP_NUM_THREADS": "1", **environment},
    )


def test_everything_that_needs_a_device(interpreter: Path) -> None:
    """A1, A2, A3, G2: the contract of all backends, and the decoder, on the simulated device."""
    done = run(interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/backends/neuron_on_device.py")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_torch_loads_the_device_by_itself(interpreter: Path) -> None:
    done = run(
        interpreter,
        "-c",
        "import torch; print(torch.accelerator.current_accelerator(), torch.ones(2).to('neuron') + 1)",
    )
    assert done.stdout.startswith("neuron "), done.stderr


def test_open_sets_flags_before_torch_is_imported(interpreter: Path) -> None:
    assert run(interpreter, "-c", OPEN).stdout.strip() == "opened True True"


def test_busy_cores_are_tried_three_times(interpreter: Path) -> None:
    """G3: cores that are free on the third try are taken; cores that stay busy are one sentence with exit code 4."""
    assert run(interpreter, "-c", OPEN, SIMULATED_NEURON_BUSY_TIMES="2").stdout.startswith("opened")
    busy = run(interpreter, "-c", OPEN, SIMULATED_NEURON_BUSY_TIMES="-1").stdout
    assert busy.startswith("BackendUnavailable 4 busy ")
    assert "after 3 attempts" in busy
    assert "neuron-ls" in busy
    assert "kill" not in busy


def test_busy_in_other_spellings(interpreter: Path) -> None:
    """G3: what a runtime says when another process, or a dead one, holds the cores."""
    messages = [
        "Cannot determine number of cores",
        "NeuronCore(s) not available - Requested:2 Available:0",
        "NRT:nrt_init failed with status=9",
        "insufficient number of cores: 2 requested, 0 free",
    ]
    script = f"import os\nfor message in {messages!r}:\n    os.environ['SIMULATED_NEURON_BUSY_MESSAGE'] = message\n"
    script += textwrap.indent(OPEN, "    ")
    lines = run(interpreter, "-c", script, SIMULATED_NEURON_BUSY_TIMES="-1").stdout.splitlines()
    assert len(lines) == len(messages)
    for line, message in zip(lines, messages, strict=True):
        assert line.startswith("BackendUnavailable 4 busy "), line
        assert message in line


def test_two_processes_do_not_share_the_cores(interpreter: Path, tmp_path: Path) -> None:
    """G3: the second process finds the first one's cores busy, and gets them once it has ended."""
    lock = str(tmp_path / "cores")
    holder = subprocess.Popen(
        [interpreter, "-c", "import torch; torch.neuron.synchronize(); print('holds', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SIMULATED_NEURON_CORE_LOCK": lock},
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "holds\n"
    assert " busy " in run(interpreter, "-c", OPEN, SIMULATED_NEURON_CORE_LOCK=lock).stdout
    holder.communicate("\n", timeout=60)
    assert run(interpreter, "-c", OPEN, SIMULATED_NEURON_CORE_LOCK=lock).stdout.startswith("opened")


def test_versions_that_do_not_match_at_run_time(interpreter: Path) -> None:
    """G4: the runtime itself reports the mismatch; both versions are quoted, and nothing is retried."""
    message = "NEFF compatibility id 6 is not in the range that this runtime supports 2 - 4"
    found = run(interpreter, "-c", OPEN, SIMULATED_NEURON_BUSY_TIMES="1", SIMULATED_NEURON_BUSY_MESSAGE=message).stdout
    assert found.startswith("BackendUnavailable 4 version_mismatch "), found
    assert "found 6, accepted 2 - 4" in found


@pytest.mark.parametrize(("variable", "value"), [("XLA_USE_BF16", "1"), ("XLA_DOWNCAST_BF16", "1")])
def test_switches_that_change_dtypes_are_refused(interpreter: Path, variable: str, value: str) -> None:
    refused = run(interpreter, "-c", OPEN, **{variable: value}).stdout
    assert refused.startswith("UsageError 2 ")
    assert variable in refused


def test_auto_cast_is_refused(interpreter: Path) -> None:
    refused = run(interpreter, "-c", OPEN, NEURON_CC_FLAGS="-O1 --auto-cast all").stdout
    assert refused.startswith("UsageError 2  NEURON_CC_FLAGS asks for --auto-cast=all")


OOM = """
from trnbench.backends.failures import failure_reason
from trnbench.backends.select import open_backend
import torch
backend = open_backend("neuron")
try:
    value = torch.ones(8, 8).to(backend.device)
    backend.materialize([value @ value])
    backend.materialize([torch.zeros(2**20, device=backend.device)])
except Exception as error:
    print(backend.classify(error), failure_reason(str(error)))
"""


@pytest.mark.parametrize(
    ("fault", "requested"),
    [({"SIMULATED_NEURON_OOM_OPERATOR": "mm"}, 512), ({"SIMULATED_NEURON_MEMORY_BYTES": "100000"}, 2**22)],
    ids=["operator", "capacity"],
)
def test_out_of_memory_on_the_device(interpreter: Path, fault: dict[str, str], requested: int) -> None:
    """G8: the runtime's spelling of a full device is status oom, and the requested size is kept."""
    done = run(interpreter, "-c", OOM, **fault)
    assert done.stdout.startswith("oom "), done.stdout + done.stderr
    assert f"requested {requested} bytes" in done.stdout


def test_autoload_switched_off(interpreter: Path) -> None:
    """The device is then missing from torch, and the sentence says which variable to unset."""
    done = run(interpreter, "-c", OPEN, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout.startswith("BackendUnavailable 4 ")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" in done.stdout


def test_slow_operators_take_device_time(interpreter: Path) -> None:
    """A1: ten steps of 20 ms each take 200 ms and more when waited for, whatever the launch says."""
    script = """
import time, torch
from trnbench.backends.select import open_backend
backend = open_backend("neuron")
value = torch.ones(2).to(backend.device)
backend.materialize([value])
start = time.perf_counter()
for _ in range(10):
    value = value + 1
launched = time.perf_counter() - start
backend.materialize([value])
print(launched, time.perf_counter() - start)
"""
    launched, waited = run(interpreter, "-c", script, SIMULATED_NEURON_OPERATOR_SECONDS="0.02").stdout.split()
    assert float(waited) >= 0.2
    assert float(launched) < float(waited) / 2
