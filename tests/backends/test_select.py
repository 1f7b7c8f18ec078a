"""Choosing a backend: known names, absent backends refused at once and without torch, nothing opened by importing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from trnbench.backends import packages, select
from trnbench.status import BackendUnavailable, UsageError

WITHOUT_TORCH = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""

IMPORT_ALL = """
import importlib, json, pkgutil, sys, trnbench
failed = {}
for module in pkgutil.walk_packages(trnbench.__path__, "trnbench."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except Exception as error:
        failed[module.name] = f"{type(error).__name__}: {error}"
"""


def _python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize(("wrong", "right"), [("neurn", "neuron"), ("cud", "cuda"), ("XLA", "xla"), ("cpus", "cpu")])
def test_unknown_name_gets_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(UsageError, match=f"no backend '{wrong}'; (did you mean '{right}'|choose one of)") as unknown:
        select.backend_class(wrong)
    assert right in str(unknown.value)
    assert unknown.value.exit_code == 2


def test_all_built_in_backends_can_be_registered() -> None:
    for name in select.BACKENDS:
        assert select.backend_class(name).name == name
    assert select.backend_names() == sorted(set(select.BACKENDS) | set(select._registered))


@pytest.mark.parametrize("name", ["neuron", "cuda", "xla"])
def test_an_absent_accelerator_is_an_error_and_no_cpu(name: str) -> None:
    """G2: asked for on a machine without it; one sentence, exit code 4, and torch never imported on the way."""
    code = (
        "import sys\nfrom trnbench.backends.select import preflight\nfrom trnbench.status import TrnBenchError\n"
        f"try:\n    preflight({name!r})\nexcept TrnBenchError as error:\n    print(error)\n"
        "    sys.exit(9 if 'torch' in sys.modules else int(error.exit_code))\n"
    )
    try:
        select.preflight(name)
    except BackendUnavailable:
        done = _python(code)
        assert done.returncode == 4, done.stderr
        assert done.stdout.count("\n") == 1
    else:
        assert _python(code).returncode == 0


def test_refusing_takes_a_fraction_of_importing_torch() -> None:
    """Refusing is quick because torch is not imported: measured side by side, start of Python included."""

    def seconds(code: str) -> float:
        start = time.perf_counter()
        assert _python(code).returncode == 0
        return time.perf_counter() - start

    refuse = (
        "from trnbench.backends.select import preflight\nfrom trnbench.status import TrnBenchError\n"
        "try:\n    preflight('cuda')\nexcept TrnBenchError:\n    pass\n"
    )
    assert min(seconds(refuse) for _ in range(3)) < seconds("import torch")


def test_every_module_imports_on_a_machine_without_accelerator() -> None:
    """G1: importing everything opens no device context and needs none."""
    done = _python(
        IMPORT_ALL
        + "import torch\nprint(json.dumps([failed, torch.cuda.is_initialized(), 'torch_xla' in sys.modules]))"
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [{}, False, False], done.stderr


ENGINE = ("build", "divergence", "explain", "measure", "rows", "runs", "samples", "scoring", "text_samples")
TORCH_CODE = (
    *("trnbench.workloads.", "trnbench.conformance.", "trnbench.training.reference_runs"),
    *(f"trnbench.serving.{name}" for name in ENGINE),
)
"""LoadGen's side of serving, its profiles and versions do without, as does what judges a training."""


def test_modules_import_without_torch() -> None:
    """G1: only the models, the serving engine and the conformance suite, which are torch code, need torch for that."""
    done = _python(
        f"BLOCKED = ('torch', 'torch_xla', 'torch_neuronx')\n{WITHOUT_TORCH}{IMPORT_ALL}print(json.dumps(failed))"
    )
    failed = json.loads(done.stdout.splitlines()[-1])
    assert set(failed.values()) <= {"ModuleNotFoundError: No module named 'torch'"}, failed
    assert all(name.startswith(TORCH_CODE) for name in failed), sorted(failed)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2.9.1", "2.9.0", True),
        ("2.9.1+cpu", "2.9.0.2.15.32035+8e870898", True),
        ("2.13.0", "2.1.3", False),
        ("2.9", "3.9", False),
        ("nightly", "2.9", False),
    ],
)
def test_same_release(one: str, other: str, same: bool) -> None:
    assert packages.same_minor(one, other) is same


def test_placeholder_is_told_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, empty in (("1.0", True), ("2.14.3.0", False), (None, False)):
        monkeypatch.setattr(packages, "installed_version", lambda name, version=version: version)
        assert packages.is_placeholder("torch-neuronx") is empty
    monkeypatch.undo()
    assert packages.installed_version("no-such-distribution") is None
    assert "pytest" in packages.installed_versions(("pytest", "no-such-distribution"))
