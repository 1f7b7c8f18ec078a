"""One site for all tests that only read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from site_samples import many_outcomes, write_all

from trnbench.report.site import SiteSummary, build_site

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two devices, every kind of gap, and one file that is no record."""
    root = write_all(tmp_path_factory.mktemp("store") / "results", many_outcomes())
    (root / "decoder" / "cut.json").write_text('{"schema_version": 1, "record_id": "0', encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def built(results: Path, tmp_path_factory: pytest.TempPathFactory) -> SiteSummary:
    """The summary of the site built from `results`."""
    return build_site(results, tmp_path_factory.mktemp("published") / "site")


@pytest.fixture
def site(built: SiteSummary) -> Path:
    """The folder of the built site."""
    return built.out
