"""The version of a workload trained to quality changes with its recipe, its added code and the model's own version."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import resources
from typing import TYPE_CHECKING

import msgspec
import pytest

from trnbench.status import UsageError
from trnbench.workloads import quality_version as version
from trnbench.workloads.quality_version import QUALITY_SOURCES, quality_version
from trnbench.workloads.recipes import RECIPES
from trnbench.workloads.text import SHIPPED_TEXT
from trnbench.workloads.version import workload_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # The model's own version is read from the real files before they are replaced, and cached.
    workload_version("nano")
    (tmp_path / "texts").mkdir()
    for name in QUALITY_SOURCES:
        shutil.copy(str(resources.files("trnbench.workloads").joinpath(name)), tmp_path / name)
    monkeypatch.setattr(resources, "files", lambda package: tmp_path)
    quality_version.cache_clear()
    yield tmp_path
    quality_version.cache_clear()


def again() -> str:
    quality_version.cache_clear()
    return quality_version("nano", "pretrain")


def test_recipes_have_distinct_versions_and_none_is_the_models_own() -> None:
    versions = [quality_version(name, phase) for name, phase in RECIPES]
    assert len({*versions, *(workload_version(name) for name, _ in RECIPES)}) == len(RECIPES) + len(
        {name for name, _ in RECIPES}
    )
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in versions)
    assert SHIPPED_TEXT in QUALITY_SOURCES


@pytest.mark.parametrize("name", QUALITY_SOURCES)
def test_any_change_of_a_file_matters_and_line_ends_do_not(copied: Path, name: str) -> None:
    before = again()
    path = copied / name
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert again() == before
    with path.open("a") as file:
        file.write("x = 1\n")
    assert again() != before


def test_values_of_the_recipe_matter_and_its_shape_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, before = RECIPES["nano", "pretrain"], again()
    for change, same in (({"learning_rate": 0.5}, False), ({"tables": 3}, False), ({"batch": 32}, True)):
        monkeypatch.setitem(RECIPES, ("nano", "pretrain"), msgspec.structs.replace(recipe, **change))
        assert (again() == before) == same
    quality_version.cache_clear()


def test_the_models_own_version_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    before = again()
    monkeypatch.setattr(version, "workload_version", lambda name: "another")
    assert again() != before
    quality_version.cache_clear()


def test_phases_without_a_recipe_are_refused() -> None:
    with pytest.raises(UsageError, match="no model preset"):
        quality_version("nanoo", "pretrain")
    with pytest.raises(UsageError, match="no recipe for nano in phase decode"):
        quality_version("nano", "decode")


def test_no_torch_is_imported() -> None:
    script = (
        "import sys; from trnbench.workloads.quality_version import quality_version; "
        "quality_version('nano', 'pretrain'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
