"""The script behind tox -e trn1, trn2, trn3: which commands would run, what is refused, and a real overlay."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trnbench.backends.packages import PLACEHOLDERS

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "harness/neuron_environment.py"
MAKE = ROOT / "tests/standin/make_environment.py"


def load_script() -> Any:
    """The script as a module; it stands beside the package and is no part of it."""
    spec = importlib.util.spec_from_file_location("neuron_environment", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = load_script()


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has a stand-in for Neuron, as an AWS image's would have the real one."""
    directory = tmp_path_factory.mktemp("aws") / "environment"
    done = subprocess.run([sys.executable, MAKE, directory], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def run(*arguments: str, python: str | Path = sys.executable, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRNBENCH_", "PYTHON"))}
    return subprocess.run(
        [python, *arguments], capture_output=True, text=True, check=False, env={**kept, **environment}
    )


def as_python(patch: pytest.MonkeyPatch, version: str) -> None:
    patch.setattr(script, "python_version", lambda: version)


@pytest.mark.parametrize(
    ("target", "python", "pins"),
    [
        ("trn1", "3.11", ["torch-neuronx==2.9.0.2.13.26312", "neuronx-cc==2.24.8799.0", "torch==2.9.*"]),
        ("trn2", "3.12", ["torch-neuronx==2.14.3.0", "neuronx-cc==2.28.7631.0", "torch==2.14.*"]),
        ("trn3", "3.14", ["torch-neuronx==2.14.3.0", "neuronx-cc==2.28.7631.0", "torch==2.14.*"]),
    ],
)
def test_what_would_be_installed(
    target: str, python: str, pins: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_python(monkeypatch, python)
    for name in (script.INTERPRETER, script.VERSION):
        monkeypatch.delenv(name, raising=False)
    assert script.main([target, "--dry-run"]) == 0
    printed = capsys.readouterr()
    neuron, dependencies, project = printed.out.splitlines()
    for pin in pins:
        assert pin in neuron
    assert "--extra-index-url https://pip.repos.neuron.amazonaws.com" in neuron
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in neuron
    assert "torch" not in dependencies.replace("pytest", "")
    assert "msgspec" in dependencies
    assert project.endswith(f"--no-deps --editable {ROOT}")
    assert printed.err == ""


def test_every_release_pins_both_packages() -> None:
    """An unpinned name could resolve to a placeholder of the public index."""
    for _, version in script.TARGETS.values():
        command = script.neuron_command(script.read_release(version))
        for name in ("torch-neuronx", "neuronx-cc", "torch"):
            assert any(word.startswith(f"{name}==") for word in command)


def test_the_other_release(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    as_python(monkeypatch, "3.12")
    monkeypatch.delenv(script.INTERPRETER, raising=False)
    monkeypatch.setenv(script.VERSION, "2.13.3.0")
    assert script.main(["trn2", "--dry-run"]) == 0
    assert "torch-neuronx==2.13.3.0" in capsys.readouterr().out
    for version, reason in (("2.9.0.2.13.26312", "xla product"), ("1.0", "is not in neuron_releases.csv")):
        monkeypatch.setenv(script.VERSION, version)
        assert script.main(["trn2", "--dry-run"]) == 2
        assert reason in capsys.readouterr().err


@pytest.mark.parametrize(("target", "python"), [("trn1", "3.13"), ("trn2", "3.11"), ("trn3", "3.15")])
def test_a_python_that_neuron_is_not_built_for(
    target: str, python: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before pip runs; a dry run shows the commands all the same, with a warning."""
    as_python(monkeypatch, python)
    monkeypatch.delenv(script.INTERPRETER, raising=False)
    monkeypatch.delenv(script.VERSION, raising=False)
    monkeypatch.setattr(sys, "prefix", "/elsewhere")
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: pytest.fail("pip was run"))
    assert script.main([target]) == 2
    assert "is built for Python" in capsys.readouterr().err
    assert script.main([target, "--dry-run"]) == 0
    assert "would stop here" in capsys.readouterr().err


def found(**versions: str) -> Any:
    return script.Found(script.python_version(), {name.replace("_", "-"): v for name, v in versions.items()}, [])


@pytest.mark.parametrize(
    ("there", "target", "reason"),
    [
        (script.Found("3.9", {}, []), "trn2", "is Python 3.9"),
        (found(torch="2.14.0"), "trn2", "has no torch-neuronx"),
        (found(torch_neuronx="2.14.3.0"), "trn2", "has no torch:"),
        (found(torch="2.9.1", torch_neuronx="2.9.0.2.13.26312"), "trn2", "the xla product"),
        (found(torch="2.14.0", torch_neuronx="2.14.3.0"), "trn1", "the native product"),
        (found(torch="2.14.0", torch_neuronx="1.0"), "trn2", "WRONG PACKAGE: torch-neuronx 1.0"),
        (found(torch="2.14.0", torch_neuronx="2.14.3.0", nki="0.0.1"), "trn3", "WRONG PACKAGE: nki 0.0.1"),
    ],
)
def test_interpreters_that_are_refused(there: Any, target: str, reason: str) -> None:
    with pytest.raises(script.EnvironmentRefusedError, match=reason) as refused:
        script.check_overlay(there, "python", target)
    assert "\n" not in str(refused.value)


def test_an_interpreter_that_is_none() -> None:
    done = run(str(SCRIPT), "trn2", "--dry-run", TRNBENCH_NEURON_PYTHON="/no/such/python")
    assert done.returncode == 2
    assert done.stderr.startswith("TRNBENCH_NEURON_PYTHON=/no/such/python does not run as a Python")
    assert "Traceback" not in done.stderr


def test_placeholders_are_those_of_the_backend() -> None:
    """Two lists, since the script stands alone; the shared names must agree."""
    for name, versions in PLACEHOLDERS.items():
        assert set(script.PLACEHOLDERS[name]) <= set(versions)


def test_only_in_a_virtual_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert script.main(["trn2"]) == 2
    assert "not a virtual environment" in capsys.readouterr().err


def test_overlay(standin: Path, tmp_path: Path) -> None:
    """A fresh environment sees the other interpreter's Neuron and torch, keeps its own packages, and changes nothing.

    The whole script runs, without an index: everything must be found, and only the project itself be installed.
    """
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    python = fresh / "bin/python"
    checkout = tmp_path / "checkout"
    for name in ("harness/trnbench", "harness/neuron_environment.py", "pyproject.toml", "README.md", "LICENSE"):
        source, target = ROOT / name, checkout / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, target)
    before = sorted(path for path in standin.parent.parent.rglob("*") if "__pycache__" not in path.parts)

    done = run(
        str(checkout / "harness/neuron_environment.py"),
        "trn2",
        python=python,
        TRNBENCH_NEURON_PYTHON=str(standin),
        PIP_NO_INDEX="1",
        PIP_NO_BUILD_ISOLATION="0",
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr

    after = sorted(path for path in standin.parent.parent.rglob("*") if "__pycache__" not in path.parts)
    assert after == before
    shown = run(
        "-c",
        "import importlib.metadata, torch, torch_neuronx, trnbench.case\n"
        "print(importlib.metadata.version('torch-neuronx'), torch.accelerator.current_accelerator())\n"
        "print(torch_neuronx.__file__)\nprint(trnbench.case.__file__)",
        python=python,
    )
    versions, package, project = shown.stdout.splitlines()
    assert versions == "2.13.3.0 neuron"
    assert package.startswith(str(standin.parent.parent))
    assert project.startswith(str(checkout))
    assert not list(fresh.rglob("torch-*.dist-info"))
