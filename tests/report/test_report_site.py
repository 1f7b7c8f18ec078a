"""The site as a whole: nothing lost, nothing unescaped, nothing invented, and the same bytes every time."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec
import pytest
from site_samples import (
    START,
    many_outcomes,
    sample_case,
    sample_check,
    sample_device,
    sample_environment,
    sample_record,
    write_all,
)

from trnbench import wording
from trnbench.report import site as site_module
from trnbench.report.format import ratio
from trnbench.report.material import assert_complete
from trnbench.report.publish import MANIFEST
from trnbench.report.site import SiteSummary, build_site
from trnbench.status import Status, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.records.schema import Record


def pages(folder: Path) -> dict[str, str]:
    """Every page by path."""
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(folder.rglob("*.html"))}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file by path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def words(html: str) -> str:
    """The text of a page, tags left out, white space joined."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def build(tmp_path: Path, records: list[Record], **options: object) -> Path:
    """Store the records, build the site, return its folder."""
    build_site(write_all(tmp_path / "results", records), tmp_path / "site", **options)
    return tmp_path / "site"


def runs_of(kind: str, rate: float, nights: int = 3, **changes: object) -> list[Record]:
    """One record a night, with a run-to-run spread of about one percent."""
    return [
        sample_record(
            kind,
            run=f"{kind}-{night}",
            rate=rate * (1 + 0.01 * (night - 1)),
            started=START + timedelta(days=night, hours=1 if kind == "trn2" else 0),
            **changes,
        )
        for night in range(nights)
    ]


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
    assert "h100-sxm cuda p5.48xlarge 2 2 none" in rows
    assert "h100-sxm cuda unknown 1 1 none" in rows


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
    assert "holds no record" in words((tmp_path / "site" / "index.html").read_text("utf-8"))


def test_simulated_records_need_permission_and_a_notice(tmp_path: Path) -> None:
    """Refused by default and counted; with permission, every page says what they are."""
    stand_in = sample_device("trn2", chip="cpu")
    records = [*runs_of("h100", 1000.0), *runs_of("trn2", 900.0, simulated=True, device=stand_in)]
    plain = build(tmp_path, records)
    assert all(wording.SIMULATED_NOTICE not in text for text in pages(plain).values())
    assert "3 left out because a simulated device made them" in words((plain / "index.html").read_text("utf-8"))
    assert not list(plain.glob("comparisons/*.html"))
    summary = build_site(tmp_path / "results", tmp_path / "all", allow_simulated=True)
    assert summary.records_shown == 6
    shown = pages(tmp_path / "all")
    assert len(shown) == summary.pages
    assert all(wording.SIMULATED_NOTICE in text for text in shown.values())
    for export in [*(tmp_path / "all").glob("comparisons/*.csv"), *(tmp_path / "all").glob("comparisons/*.json")]:
        assert wording.SIMULATED_NOTICE in export.read_text("utf-8")


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


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "a & b </td>",
    "\"'><script>alert(1)</script>",
    "caf\u00e9 \u00b5s \u4e2d",
    "{{ 1234 * 3 }}",
]


def hostile_records() -> list[Record]:
    """Markup in every text that a record can hold."""
    records = []
    for kind in ("trn2", "h100"):
        for night in range(3):
            bad = HOSTILE[0]
            versions = {**sample_environment(kind).versions, bad: HOSTILE[2]}
            environment = sample_environment(kind, versions=versions, cpu={"model": HOSTILE[1], "threads": 2})
            device = sample_device(kind, read_back={"note": HOSTILE[2]}, chip=kind + bad)
            case = sample_case(suite=HOSTILE[1], workload=bad + HOSTILE[3] + "$\\foo{")
            started = START + timedelta(days=night, hours=kind == "trn2")
            checks = [sample_check(bad, where=HOSTILE[2], reference=HOSTILE[1], metric=HOSTILE[4])]
            records.append(
                sample_record(
                    kind,
                    run=f"{kind}-{night}{bad}",
                    case=case,
                    device=device,
                    environment=environment,
                    started=started,
                    conformance=checks,
                )
            )
    reason = "".join(HOSTILE)
    failed = {"rate": None, "status": Status.FAILED, "reason": reason}
    records.append(sample_record("trn2", run=f"x{HOSTILE[0]}", case=sample_case(workload=HOSTILE[2]), **failed))
    return records


def test_markup_in_records_is_text_on_every_page(tmp_path: Path) -> None:
    """F6: in titles, headings, cells, alternative texts, descriptions and file names."""
    site = build(tmp_path, hostile_records(), title=f"Title {HOSTILE[2]}")
    shown = pages(site)
    assert len(list((site / "comparisons").glob("*.html"))) == 1
    for name, text in shown.items():
        assert "<script" not in text, name
        assert not re.search(r"<img (?!src=\"(\.\./)?plots/)", text), name
        assert "3702" not in text, name
        assert re.fullmatch(r"[a-z0-9._/-]+", name)
    everything = "".join(shown.values())
    for hostile in HOSTILE:
        escaped = hostile.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        assert escaped.replace('"', "&#34;").replace("'", "&#39;") in everything, hostile
    alts = re.findall(r'alt="([^"]*)"', everything)
    assert any("&lt;img" in alt for alt in alts)
    assert re.search(r"<h1>[^<]*&lt;img", everything)
    assert re.search(r"<title>[^<]*&lt;img", everything)


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
    from datetime import date

    records = [*runs_of("trn2", 900.0), *runs_of("h100", 1000.0)]
    site = build(tmp_path, records, today=date(2028, 11, 1))
    page = words(next((site / "comparisons").glob("*.html")).read_text("utf-8"))
    assert "731 days old on 2028-11-01" in page


def test_results_and_site_must_be_apart(tmp_path: Path) -> None:
    """A site within its own results would be read as records, and the other way round be replaced."""
    results = write_all(tmp_path / "results", [sample_record()])
    for out in (results, results / "site", tmp_path):
        with pytest.raises(UsageError, match="must be apart"):
            build_site(results, out)
    with pytest.raises(UsageError, match="not a folder"):
        build_site(tmp_path / "nowhere", tmp_path / "site")


def test_a_build_that_fails_leaves_the_former_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong while rendering, the folder keeps the bytes it had."""
    site = build(tmp_path, [sample_record()])
    before = tree(site)

    def broken(_: object) -> None:
        raise RuntimeError("broken template")

    monkeypatch.setattr(site_module, "render", broken)
    with pytest.raises(RuntimeError):
        build_site(tmp_path / "results", site)
    assert tree(site) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "site"]


BUILD = (
    "import sys; from pathlib import Path; from trnbench.report.site import build_site\n"
    "build_site(Path(sys.argv[1]), Path(sys.argv[2]))\n"
)


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    """Another folder, time zone, locale and hash seed; D18: also where the locale knows nothing but ASCII."""
    records = [
        *runs_of("trn2", 900.0),
        *runs_of("h100", 1000.0),
        sample_record("cpu", run="\u00e9\u00b5", device=sample_device("cpu", read_back={"note": "caf\u00e9 \u00b5s"})),
    ]
    results = write_all(tmp_path / "results", records)
    worlds = [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1"},
        {"LC_ALL": "C.UTF-8", "TZ": "America/New_York", "PYTHONHASHSEED": "2", "MPLBACKEND": "TkAgg"},
    ]
    built = []
    for place, world in enumerate(worlds):
        here = tmp_path / f"world {place}"
        here.mkdir()
        environment = {name: value for name, value in os.environ.items() if name not in ("LANG", "LC_CTYPE")}
        command = [sys.executable, "-c", BUILD, str(results), "site"]
        subprocess.run(command, cwd=here, env={**environment, **world}, check=True, timeout=300)
        built.append(tree(here / "site"))
    assert built[0] == built[1]
    assert any("caf\u00e9 \u00b5s".encode() in data for data in built[0].values())


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
