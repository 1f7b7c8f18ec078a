"""The version of a workload changes with what is computed and with nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from trnbench.status import UsageError
from trnbench.workloads import version
from trnbench.workloads.presets import PRESETS
from trnbench.workloads.quality_version import QUALITY_SOURCES
from trnbench.workloads.version import SOURCES, workload_version

NOT_COMPUTED = {"__init__.py", "flops.py", "quality_version.py", "recipes.py", "version.py", "weights.py"}
"""Of recipes the values count, by `quality_version`."""


@pytest.fixture
def copied_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in SOURCES:
        shutil.copy(str(resources.files("trnbench.workloads").joinpath(name)), tmp_path / name)
    monkeypatch.setattr(version.resources, "files", lambda package: tmp_path)
    version.workload_version.cache_clear()
    yield tmp_path
    version.workload_version.cache_clear()


def test_presets_have_distinct_versions() -> None:
    versions = [workload_version(name) for name in PRESETS]
    assert len(set(versions)) == len(PRESETS)
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in versions)


def test_unknown_preset_is_refused() -> None:
    with pytest.raises(UsageError, match="no model preset"):
        workload_version("nanoo")


def test_every_source_file_is_either_hashed_or_known_not_to_compute() -> None:
    folder = Path(str(resources.files("trnbench.workloads")))
    own = {name for name in QUALITY_SOURCES if name.endswith(".py")}
    assert {path.name for path in folder.glob("*.py")} == set(SOURCES) | own | NOT_COMPUTED


def test_line_ends_do_not_matter(copied_sources: Path) -> None:
    before = workload_version("nano")
    for path in copied_sources.iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    version.workload_version.cache_clear()
    assert workload_version("nano") == before


@pytest.mark.parametrize("name", SOURCES)
def test_any_change_of_code_matters(copied_sources: Path, name: str) -> None:
    before = workload_version("nano")
    with (copied_sources / name).open("a") as file:
        file.write("x = 1\n")
    version.workload_version.cache_clear()
    assert workload_version("nano") != before


def test_nothing_imports_torch() -> None:
    code = (
        "import sys; from trnbench.workloads import data, flops, presets, version; "
        "version.workload_version('nano'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
