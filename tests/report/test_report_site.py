"""The site as a whole: nothing lost, every number led back to its record, and verdicts that follow the records."""

from __future__ import annotations

import csv
import json
import re
from datetime import date
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec
import pytest
from site_helpers import build, runs_of, tree, words
from site_samples import (
    many_outcomes,
    sample_case,
    sample_check,
    sample_device,
    sample_record,
)

from trnbench import wording
from trnbench.report.format import ratio
from trnbench.report.material import assert_complete
from trnbench.report.publish import MANIFEST
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.report.site import SiteSummary


def test_rows_in_are_rows_shown(built: SiteSummary, site: Path) -> None:
    """F5: every record has a page, stands on its run's page, and is counted once by device."""
    records = many_outcomes()
    assert built.records_in == built.records_shown == len(records)
    assert len(list((site / "records").glob("*.html"))) == len(records)
    index = words((site / "index.html").read_text("utf-8"))
    assert f"{len(records)} records read, {len(records)} shown" in index
    manifest = json.loads((site / MANIFEST).read_bytes())
    assert manifest["records"] == sorted(record.record_id for record in records)


def test_a_missing_instance_type_is_a_group(tmp_path: Path) -> None:
    """F5: three results, one without an instance type: three shown, one under 'unknown'."""
    known = runs_of("h100", 1000.0, 2)
    nowhere = sample_record("h100", run="x", device=sample_device("h100", instance_type=None))
    site = build(tmp_path, [*known, nowhere])
    devices = re.search(r'<table id="devices-table">.*?</table>', (site / "index.html").read_text("utf-8"), re.DOTALL)
    assert devices
    rows = [words(row) for row in re.findall(r"<tr>.*?</tr>", devices[0], re.DOTALL)]
    assert "h100-sxm cuda p5.48xlarge 2 2 0 none" in rows
    assert "h100-sxm cuda unknown 1 1 0 none" in rows


def test_lost_rows_are_an_error() -> None:
    """F5: the sum is asserted, not hoped for."""
    assert_complete(3, [2, 1], "groups")
    with pytest.raises(AssertionError, match="3 records came in and 2 are shown"):
        assert_complete(3, [2], "groups")


def test_every_page_carries_the_disclaimer(site: Path) -> None:
    """Pages, plots, exports and the manifest, each."""
    for name, data in tree(site).items():
        if name.startswith(("static/", "records/")) and not name.endswith(".html"):
            continue
        text = data.decode("utf-8")
        assert wording.DISCLAIMER in (words(text) if name.endswith((".html", ".svg")) else text), name


def test_headline_and_verdicts_follow_the_records(tmp_path: Path) -> None:
    """F10: change one side's results and every sentence that rests on them changes."""
    slow = build(tmp_path / "1", [*runs_of("trn2", 900.0), *runs_of("h100", 1000.0)])
    fast = build(tmp_path / "2", [*runs_of("trn2", 1200.0), *runs_of("h100", 1000.0)])
    texts = [words((site / "index.html").read_text("utf-8")) for site in (slow, fast)]
    assert "8 x H100 SXM (cuda) is faster than 16 x Trainium2 (neuron)" in texts[0]
    assert "16 x Trainium2 (neuron) is faster than 8 x H100 SXM (cuda)" in texts[1]
    printed = []
    for site in (slow, fast):
        data = json.loads(next((site / "comparisons").glob("*.json")).read_bytes())
        printed.append(ratio(data["comparison"]["throughput_ratio"]["value"]) + " \u00d7")
    for own, other, text in zip(printed, reversed(printed), texts, strict=True):
        assert own in text
        assert other not in text


def test_templates_hold_no_figures() -> None:
    """F10: no number is typed by hand: outside tags and expressions, templates and styles of text hold no digit."""
    folder = files("trnbench.report") / "templates"
    names = [file.name for file in folder.iterdir() if file.name.endswith(".j2")]
    assert "index.html.j2" in names
    for name in names:
        text = (folder / name).read_text("utf-8")
        text = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "", text, flags=re.DOTALL)
        text = re.sub(r"<[^>]*>", "", text)
        assert not re.findall(r".*\d.*", text), name


def test_numbers_lead_to_the_record_and_to_a_command(site: Path) -> None:
    """From a value on a comparison's page to the record's page, its case, its file and the command."""
    page = next(path for path in sorted((site / "comparisons").glob("device-*train*.html")) if "trainium2" in path.name)
    values = re.search(r'<table id="runs-a">.*?</table>', page.read_text("utf-8"), re.DOTALL)
    assert values
    target = re.search(r'<td class="n"><a href="(\.\./records/[0-9a-z-]+\.html)">', values[0])
    assert target
    record_page = (page.parent / target[1]).resolve()
    text = words(record_page.read_text("utf-8"))
    assert "trnbench run --backend neuron --select" in text
    assert "llama3.2-1b" in text
    stored = msgspec.json.decode(record_page.with_suffix(".json").read_bytes())
    assert stored["record_id"] in record_page.name


def test_record_copies_are_the_stored_bytes(results: Path, site: Path) -> None:
    """What the page links to is the file itself, not a rendering of it."""
    stored = {path.read_bytes() for path in results.rglob("*.json") if path.name != "cut.json"}
    assert {path.read_bytes() for path in (site / "records").glob("*.json")} == stored


def test_a_side_that_does_not_conform_never_wins(tmp_path: Path) -> None:
    """A fast side with a failed check: no winner, the failure is named, and no cost is ranked."""
    bad = [sample_check("logits", 7.5, verdict="fail", where="layer 3")]
    records = runs_of("trn2", 5000.0, conformance=bad, status=Status.NONCONFORMANT, reason="logits: 7.5 over 1")
    site = build(tmp_path, [*records, *runs_of("h100", 1000.0)])
    index = words((site / "index.html").read_text("utf-8"))
    assert "is faster than" not in index
    page = words(next((site / "comparisons").glob("*.html")).read_text("utf-8"))
    assert "No winner: a side did not conform" in page
    assert "7.5" in page
    assert "layer 3" in page
    assert "cheaper in" not in page


def test_exports_hold_raw_numbers_and_no_formula(tmp_path: Path) -> None:
    """CSV and JSON give SI values with units; text that a spreadsheet would run is made inert."""
    device = sample_device("trn2", chip="=HYPERLINK(1)")
    site = build(tmp_path, [*runs_of("trn2", 900.0, device=device), *runs_of("h100", 1000.0)])
    lines = next((site / "comparisons").glob("*.csv")).read_text("utf-8").splitlines()
    assert lines[0] == f"# {wording.DISCLAIMER}"
    rows = list(csv.DictReader(lines[1:]))
    assert len(rows) == 6
    assert {row["unit"] for row in rows} == {"token/s"}
    assert not any(value.startswith(("=", "+", "@")) for row in rows for value in row.values())
    data = json.loads(next((site / "comparisons").glob("*.json")).read_bytes())
    values = [run["value"] for side in ("a", "b") for run in data["comparison"][side]["runs"]]
    assert sorted(float(row["value"]) for row in rows) == sorted(values)
    assert data["comparison"]["a"]["runs"][0]["record"] in {row["record_id"] for row in rows}


def test_old_prices_are_flagged_on_the_page(tmp_path: Path) -> None:
    """The age of a price on the day given is stated where the dollars are."""
    records = [*runs_of("trn2", 900.0), *runs_of("h100", 1000.0)]
    site = build(tmp_path, records, today=date(2028, 11, 1))
    page = words(next((site / "comparisons").glob("*.html")).read_text("utf-8"))
    assert "731 days old on 2028-11-01" in page


def test_answers_on_other_axes_name_their_device(tmp_path: Path) -> None:
    """Modes of one device are never mixed with those of another, and unlike numerics never lead the page."""
    records = []
    for kind, factor in (("h100", 1.0), ("trn2", 0.5)):
        for mode, rate in (("eager", 1000.0), ("compiled", 1700.0)):
            records += runs_of(kind, rate * factor, case=sample_case(mode=mode))
    records += runs_of("h100", 700.0, case=sample_case(precision="fp32"))
    site = build(tmp_path, records)
    index = words((site / "index.html").read_text("utf-8"))
    for device in ("8 x H100 SXM (cuda), p5.48xlarge", "16 x Trainium2 (neuron), trn2.48xlarge"):
        assert f"Is compiled (a) faster or cheaper than eager (b) on {device}" in index
    assert index.index("Is 16 x Trainium2 (neuron) (a)") < index.index("Is bf16 (a) faster or cheaper than fp32 (b)")
    assert "bf16 is faster" not in index
