"""What is missing shows: attempts, nights without a measurement, refused files, stand-ins, and empty folders."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from site_helpers import build, pages, runs_of, tree, words
from site_samples import (
    START,
    sample_case,
    sample_device,
    sample_record,
)

from trnbench import wording
from trnbench.report.site import SiteSummary, build_site
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path


def test_the_newest_attempt_counts_and_the_number_is_shown(tmp_path: Path) -> None:
    """D6: one run measured its case twice, 1 then 3: the newest is used, attempts say 2, nothing is averaged."""
    twice = [
        sample_record("h100", run="h100-9", rate=rate, started=START + timedelta(days=9, minutes=minute))
        for minute, rate in enumerate((1000.0, 3000.0))
    ]
    site = build(tmp_path, [*twice, *runs_of("trn2", 900.0)])
    page = next((site / "comparisons").glob("*.html")).read_text("utf-8")
    side = re.search(r'<table id="runs-b">.*?</table>', page, re.DOTALL)
    assert side
    rows = re.findall(r"<tr>.*?</tr>", side[0].split("<tbody>")[1], re.DOTALL)
    assert len(rows) == 1
    cells = [words(cell) for cell in re.findall(r"<td.*?</td>", rows[0], re.DOTALL)]
    assert float(cells[0].replace(",", "")) == pytest.approx(3000, rel=0.02)
    assert cells[3] == "2"
    assert "an earlier attempt" in words(page)
    run = words(next((site / "runs").glob("h100-9*.html")).read_text("utf-8"))
    assert "1 of 2" in run
    assert "2 of 2" in run


def test_a_night_that_measured_nothing_shows(built: SiteSummary, site: Path) -> None:
    """G12: the run stands in the list with 0 of 3 measured, and each case with its reason."""
    assert built.records_shown
    for page in ("index.html", "runs.html"):
        assert "20261107-none 0 of 3" in words((site / page).read_text("utf-8"))
    run = words(next((site / "runs").glob("20261107*.html")).read_text("utf-8"))
    assert "0 of 3 measured" in run
    assert run.count("no device of backend neuron on this machine") >= 3


def test_every_gap_has_its_reason(tmp_path: Path) -> None:
    """A record of each status other than ok is listed with its status and reason, and carries no number."""
    records = []
    for place, status in enumerate(one for one in Status if one is not Status.OK):
        started = START + timedelta(minutes=place)
        case = sample_case(batch=place + 1)
        reason = f"reason number {place}"
        records.append(sample_record(run="gaps", rate=None, status=status, reason=reason, case=case, started=started))
    site = build(tmp_path, records)
    gaps = re.search(r'<table id="gaps-table">.*?</table>', (site / "index.html").read_text("utf-8"), re.DOTALL)
    assert gaps
    for place, record in enumerate(records):
        row = next(row for row in re.findall(r"<tr>.*?</tr>", gaps[0], re.DOTALL) if f"{record.case.id}<" in row)
        assert f"reason number {place}" in words(row)
        assert record.status.value.replace("_", " ") in words(row)
    assert "Nothing was measured" in words((site / "index.html").read_text("utf-8"))


def test_refused_files_are_named_without_their_home(built: SiteSummary, site: Path, results: Path) -> None:
    """The page names the file below the results folder and the reason; no page tells where the folder lies."""
    assert built.rejected == 1
    index = words((site / "index.html").read_text("utf-8"))
    assert "decoder/cut.json" in index
    for name, data in tree(site).items():
        assert str(results.parent).encode() not in data, name


def test_one_device_alone_says_what_a_comparison_needs(tmp_path: Path) -> None:
    """A newcomer's first run: no empty page, but a sentence that says why there is nothing to compare."""
    site = build(tmp_path, [sample_record("cpu", device=sample_device("cpu"))])
    index = words((site / "index.html").read_text("utf-8"))
    assert "Nothing to compare yet" in index
    assert "A comparison needs the same case measured on a second device" in index


def test_an_empty_folder_gives_a_site_that_says_so(tmp_path: Path) -> None:
    """Zero records are a result too."""
    (tmp_path / "results").mkdir()
    summary = build_site(tmp_path / "results", tmp_path / "site")
    assert (summary.records_in, summary.records_shown, summary.comparisons) == (0, 0, 0)
    index = words((tmp_path / "site" / "index.html").read_text("utf-8"))
    assert "The results folder holds no record. Measure something first, such as trnbench run --backend cpu" in index
    assert "Every record here was measured" not in index


def test_files_that_are_all_refused_are_not_called_nothing(tmp_path: Path) -> None:
    """A folder of broken files: the page says that there were files, and names each once with its reason."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "cut.json").write_text('{"schema_version": 1, "record_id": "0', encoding="utf-8")
    (tmp_path / "results" / "other.json").write_text('{"hello": 1}', encoding="utf-8")
    build_site(tmp_path / "results", tmp_path / "site")
    index = words((tmp_path / "site" / "index.html").read_text("utf-8"))
    assert "holds no file that could be read as a record; the reasons are listed below" in index
    assert [index.count(name) for name in ("cut.json", "other.json")] == [1, 1]


def test_records_that_all_failed_give_the_reason_where_the_answer_would_be(tmp_path: Path) -> None:
    """Nothing ran to the end: the first lines say what happened, not only that runs are missing."""
    oom = {"rate": None, "status": Status.OOM, "reason": "tried to allocate 12.0 GiB"}
    index = words(
        (build(tmp_path, [sample_record(kind, **oom) for kind in ("trn2", "h100")]) / "index.html").read_text()
    )
    answer = index[index.index("The answer so far") : index.index("What was not measured")]
    assert "not enough runs. No run carries a speed on a (16 x Trainium2 (neuron)): oom: tried to allocate" in answer


def test_simulated_records_need_permission_and_a_notice(tmp_path: Path) -> None:
    """Refused by default and counted; with permission, every page says what they are."""
    stand_in = sample_device("trn2", chip="cpu")
    records = [*runs_of("h100", 1000.0), *runs_of("trn2", 900.0, simulated=True, device=stand_in)]
    plain = build(tmp_path, records)
    assert all(wording.SIMULATED_NOTICE not in text for text in pages(plain).values())
    assert "3 left out because a simulated device made them" in words((plain / "index.html").read_text("utf-8"))
    assert not list(plain.glob("comparisons/*.html"))
    only = build(tmp_path / "only", [record for record in records if record.simulated])
    assert "build the site with --allow-simulated" in words((only / "index.html").read_text("utf-8"))
    summary = build_site(tmp_path / "results", tmp_path / "all", allow_simulated=True)
    assert summary.records_shown == 6
    shown = pages(tmp_path / "all")
    assert len(shown) == summary.pages
    assert all(wording.SIMULATED_NOTICE in text for text in shown.values())
    for export in [*(tmp_path / "all").glob("comparisons/*.csv"), *(tmp_path / "all").glob("comparisons/*.json")]:
        assert wording.SIMULATED_NOTICE in export.read_text("utf-8")
