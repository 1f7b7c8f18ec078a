"""`trnbench report`: where it looks for the lists of known deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from conformance_samples import write_conformance

from trnbench.cli.app import main

if TYPE_CHECKING:
    from pathlib import Path

REASON = "Rows of one token are added"


@pytest.mark.parametrize("given", [True, False])
def test_deviations_are_found_in_a_checkout_or_where_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: bool
) -> None:
    """By default in the working directory's suites, and nowhere is no error; a folder that is given must be one."""
    results = write_conformance(tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(results), "--out", "plain"]) == 0
    assert "1 file in" in capsys.readouterr().err
    assert REASON not in (tmp_path / "plain/conformance.html").read_text("utf-8")
    options = ["--deviations", "deviations"]
    if not given:
        options = []
        (tmp_path / "suites/conformance").mkdir(parents=True)
        (tmp_path / "deviations").rename(tmp_path / "suites/conformance/deviations")
    assert main(["report", str(results), "--out", "site", *options]) == 0
    assert REASON in (tmp_path / "site/conformance.html").read_text("utf-8")
    assert main(["report", str(results), "--out", "site", "--deviations", "nowhere"]) == 2
