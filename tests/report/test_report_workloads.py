"""Served cases and trainings to quality on the pages: nothing dropped, every reason told, and exports that agree."""

from __future__ import annotations

import csv
import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest
from served_samples import (
    loadgen_run,
    measured,
    quality_case,
    served_case,
    served_measurement,
    trained_measurement,
    training_run,
    workload_outcomes,
    workload_record,
)
from site_helpers import build, pages, record_of, runs_of, tree, words
from site_samples import START, sample_case
from test_report_plots import texts

from trnbench import wording
from trnbench.report.names import record_page
from trnbench.report.serving_words import length_note, produced_words, run_tag
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.records.schema import Record


@pytest.fixture(scope="module")
def workload_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of served cases and trainings alone."""
    return build(tmp_path_factory.mktemp("workloads"), workload_outcomes())


def table(html: str, table_id: str) -> list[list[str]]:
    """The cells of a table's rows, as words, its headings first."""
    found = re.search(rf'<table id="{table_id}">.*?</table>', html, re.DOTALL)
    assert found, table_id
    rows = re.findall(r"<tr.*?</tr>", found[0], re.DOTALL)
    return [[words(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]


def plot(site: Path, html: str, mark: str) -> set[str]:
    """The texts of the page's first plot whose name holds `mark`."""
    name = next(path for path in re.findall(r'src="(?:\.\./)?(plots/[^"]*)"', html) if mark in path)
    return set(texts((site / name).read_bytes()))


def test_what_was_produced_is_told_beside_what_was_asked() -> None:
    """B12: 7 of 32 asked tokens, a mean; whole answers need no comparison; unlike lengths are marked."""
    short = loadgen_run("round", "server", samples=10, tokens={"produced": 70, "asked": 320})
    assert produced_words(short) == "produced 7 of 32 (mean)"
    whole = loadgen_run("round", "server", samples=10, tokens={"produced": 320, "asked": 320})
    assert produced_words(whole) == "32 (mean)"
    assert length_note(whole, 7.0) == "unlike the rounds' 7"
    assert length_note(whole, 31.0) == ""
    assert produced_words(loadgen_run("round", "offline", tokens={})) == "n/a"


def test_failures_are_counted_and_named() -> None:
    """B13: 3 of 10 fail: degraded, with the count; none succeeds: failed. Beyond a limit is measured, not failed."""
    degraded = loadgen_run("point", "server", samples=7, errors=3, valid=False, reasons=["3 errors"])
    assert run_tag(degraded).words == "degraded"
    assert run_tag(loadgen_run("point", "server", samples=0, errors=14, valid=False)).words == "failed"
    assert run_tag(loadgen_run("point", "server", verdict="INVALID")).words == "measured"
    assert run_tag(loadgen_run("search", "server", verdict="INVALID", valid=False)).words == "not valid"
    assert run_tag(loadgen_run("round", "server")).words == "valid"


def test_no_success_is_no_rate_and_no_point_but_a_line(workload_site: Path) -> None:
    """B13, F2: the run has its row without a rate, and the plot says why it has no point."""
    page = record_of(workload_site, "nano-serving-server-fp32-compiled-b4").read_text("utf-8")
    _, degraded, failed = table(page, "loadgen-table")
    assert degraded[1] == "\u2715 degraded LoadGen: VALID"
    assert degraded[2] == "3"
    assert failed[1].startswith("\u2715 failed")
    assert failed[5] == "n/a 0 in all"
    shown = plot(workload_site, page, "-serving")
    assert "no point: load point at 90.00 requests/s: 0 of 14 succeeded" in shown
    assert "no rate was valid" in shown


def test_a_served_record_shows_every_run_and_its_curve(workload_site: Path) -> None:
    """All runs in the table; in the plot the percentiles, the limits, the kinds, and the highest valid rate."""
    record = next(one for one in workload_outcomes() if one.case == served_case())
    page = (workload_site / record_page(record)).read_text("utf-8")
    assert record.measurement is not None
    heads, *rows = table(page, "loadgen-table")
    assert len(rows) == len(record.measurement.serving)
    assert {"TTFT p50", "TTFT p90", "TTFT p99", "TPOT p50", "TPOT p99"} <= set(heads)
    text = words(page)
    assert "produced 21 of 32 (mean)" in text
    assert "Quick profile: a few seconds" in text
    assert "LoadGen: p99 TTFT above its limit" in text
    assert "90 too few" in text
    shown = plot(workload_site, page, "-serving")
    assert {"limit of the p99: 200.0 ms", "limit of the p99: 50.00 ms"} <= shown
    assert {f"p{key} over the requests of a run" for key in (50, 90, 99)} <= shown
    assert "upright line: the highest valid rate, 108.0 requests/s, 2,268 tokens per second" in shown
    for kind in ("filled and joined", "hollow", "ringed", "crossed out"):
        assert any(one.startswith(kind) for one in shown), kind
    assert re.search(r'alt="Latency over throughput[^"]*load point at 144.0 requests/s[^"]*crossed out', page)


def test_a_training_record_shows_every_seed_and_the_score(workload_site: Path) -> None:
    """Floor, target and seeds in the plot; each run's part in the score; the rule; all evaluations."""
    record = next(one for one in workload_outcomes() if one.run_id == "missed")
    page = (workload_site / record_page(record)).read_text("utf-8")
    assert record.measurement is not None
    runs = record.measurement.training
    rows = table(page, "training-table")[1:]
    assert [row[0] for row in rows] == [str(run.seed) for run in runs]
    roles = {row[0]: row[6] for row in rows}
    assert roles["4"] == "\u2212 dropped: slowest"
    assert sorted(roles.values()) == ["\u2212 dropped: fastest", "\u2212 dropped: slowest", "\u2713 kept"]
    assert rows[2][1] == "\u2715 did not converge"
    assert len(table(page, "evaluations-table")) - 1 == sum(len(run.evaluations) for run in runs)
    shown = plot(workload_site, page, "-training")
    assert {"target 1.750", "floor 1.520", "crossed out: the end of a run that did not converge"} <= shown
    for run in runs:
        assert any(one.startswith(f"seed {run.seed}:") for one in shown)
    assert "Rule of the score: the fastest and the slowest run are dropped" in words(page)


def test_no_floor_and_no_score_say_why(workload_site: Path) -> None:
    """A text has no known floor, and a set with a resumed run no score: both reasons are printed."""
    text = words(record_of(workload_site, "smollm2-135m-finetune_lora").read_text("utf-8"))
    assert "No score: the run with seed 13 was resumed after 512 samples; its time is no score." in text
    assert "the best possible predictor: unknown, the data is a text" in text
    assert "resumed after 512 samples: its time is no score" in text


def test_the_pages_show_every_case_and_device(workload_site: Path) -> None:
    """F5: each case has its rows, failed ones with the reason; both devices share a figure; each leads to a record."""
    serving = (workload_site / "serving.html").read_text("utf-8")
    served = [one for one in workload_outcomes() if one.case.scenario]
    newest = {(one.case.id, one.device.backend) for one in served}
    links = re.findall(r'<th scope="row" class="name"><a href="(records/[^"#]*)">', serving)
    assert len(links) == len(set(links)) == len(newest)
    text = words(serving)
    for record in served:
        assert record.case.id in text
    assert "process was killed by SIGKILL" in text
    assert "Quick profile: a few seconds" in text
    both = plot(workload_site, serving, "serving-server-fp32-compiled-b8")
    assert {"cpu, torch 2.13.0", "cpu (xla), torch 2.13.0", "limit of the p99: 200.0 ms"} <= both
    training = (workload_site / "training.html").read_text("utf-8")
    assert {"cpu, torch 2.13.0: 3 seeds, a line each", "cpu (xla), torch 2.13.0: 3 seeds, a line each"} <= plot(
        workload_site, training, "pretrain-fp32-compiled-b16"
    )
    assert "the run with seed 13 was resumed" in words(training)
    index = words((workload_site / "index.html").read_text("utf-8"))
    assert "How many requests, how fast? 8 served cases on 2 devices and stacks, 6 with a result." in index
    assert "How long until it has learned? 3 trainings to quality on 2 devices and stacks, 2 with a score." in index


def test_the_newest_record_counts(tmp_path: Path) -> None:
    """A newer night replaces the older one on the page; the export keeps both and says which is newest."""
    records = [
        workload_record(
            served_case("offline"),
            served_measurement(served_case("offline"), capacity),
            run=f"night-{night}",
            started=START + timedelta(days=night),
        )
        for night, capacity in enumerate((50.0, 100.0))
    ]
    site = build(tmp_path, records)
    row = table((site / "serving.html").read_text("utf-8"), "serving-offline")[2]
    assert row[2] == "2,058 token/s"  # 98 samples a second of 21 tokens
    lines = (site / "serving.csv").read_text("utf-8").splitlines()
    newest = {line["run_id"]: line["newest"] for line in csv.DictReader(lines[1:])}
    assert newest == {"night-0": "no", "night-1": "yes"}


def test_a_site_without_such_records_has_no_such_pages(tmp_path: Path) -> None:
    """No empty page and no link to one."""
    site = build(tmp_path, runs_of("h100", 1000.0, 1))
    assert not (site / "serving.html").exists()
    assert not (site / "training.html").exists()
    assert not any("serving.html" in html or "training.html" in html for html in pages(site).values())


def test_exports_agree_with_the_records(workload_site: Path) -> None:
    """CSV and JSON under the disclaimer: a line a run, raw values, and the reasons."""
    records = {one.record_id: one for one in workload_outcomes()}
    for name, runs in (("serving", "serving"), ("training", "training")):
        first, *lines = (workload_site / f"{name}.csv").read_text("utf-8").splitlines()
        assert first == f"# {wording.DISCLAIMER}"
        found = list(csv.DictReader(lines))
        every = [(one, run) for one in records.values() if one.measurement for run in getattr(one.measurement, runs)]
        assert len(found) == len(every)
        seconds = sorted(float(line["seconds"]) for line in found)
        assert seconds == sorted(run.seconds for _, run in every)
        data = json.loads((workload_site / f"{name}.json").read_bytes())
        assert data["disclaimer"] == wording.DISCLAIMER
        served = [one for one in records.values() if bool(one.case.scenario) == (name == "serving")]
        assert {one["record"] for one in data["records"]} == {one.record_id for one in served}
    scores = {one["record"]: one["score"] for one in data["records"]}
    missed = next(one for one in records.values() if one.run_id == "missed")
    assert scores[missed.record_id]["slowest"] == 4
    crashed = next(
        one for one in json.loads((workload_site / "serving.json").read_bytes())["records"] if not one["loadgen_runs"]
    )
    assert crashed["reason"] == "LoadGen's process was killed by SIGKILL"


def test_comparisons_of_served_cases_name_scenario_and_profile(workload_site: Path) -> None:
    """On the comparison's page, the run's page and the front page."""
    page = next((workload_site / "comparisons").glob("device-nano-serving-server*.html")).read_text("utf-8")
    text = words(page)
    assert "nano serving server fp32 compiled batch 8 sequence 64 32 new tokens, quick profile" in text
    assert "served tokens per second, in token/s; more is better" in text
    assert "Scenario server" in text
    assert "Profile quick" in text
    assert "time a completed sample" in " ".join(plot(workload_site, page, "rounds"))
    run = words(next((workload_site / "runs").glob("20261112-cpu*.html")).read_text("utf-8"))
    assert "time a completed sample" in run
    assert "time of one training" in run
    assert "training to quality" in words((workload_site / "index.html").read_text("utf-8"))


def test_rounds_of_other_units_stay_off_the_scale_of_steps(tmp_path: Path) -> None:
    """E8: a run with a step and a served case plots the step alone, and says where the other one is."""
    step = runs_of("cpu", 900.0, 1, case=sample_case(workload="nano"))[0]
    served = workload_record(served_case("offline"), served_measurement(served_case("offline"), 50.0), run=step.run_id)
    site = build(tmp_path, [step, served])
    page = next((site / "runs").glob("*.html")).read_text("utf-8")
    shown = " ".join(plot(site, page, "run-"))
    assert "train_step" in shown
    assert "offline" not in shown
    assert "The table alone has 1 case of serving and training to quality." in words(page)


def artifact_record() -> Record:
    return workload_record(served_case("offline"), served_measurement(served_case("offline"), 50.0))


def test_files_beside_a_record_are_copied_and_linked(workload_site: Path) -> None:
    """Every stored log lies in the site with the same bytes, its size shown, and no page is made of it."""
    record = next(one for one in workload_outcomes() if one.case == served_case())
    page = workload_site / record_page(record)
    rows = {row[0]: row for row in table(page.read_text("utf-8"), "artifacts-table")[1:]}
    assert set(rows) == {"mlperf_log_summary.txt", "mlperf_log_detail.txt"}
    assert rows["mlperf_log_summary.txt"][1] == "18 B"
    target = re.search(r'href="(\.\./records/[^"]*/mlperf_log_summary\.txt)"', page.read_text("utf-8"))
    assert target
    assert (page.parent / target[1]).resolve().read_bytes() == b"Result is : VALID\n"


@pytest.mark.parametrize("damage", ["gone", "changed", "link"])
def test_missing_and_changed_files_are_told_and_fail_nothing(tmp_path: Path, damage: str) -> None:
    """The table says what is wrong, the file is listed as refused, and no page tells where the folder lies."""
    site = build(tmp_path, [artifact_record()])
    (path,) = (tmp_path / "results").rglob("mlperf_log_summary.txt")
    path.unlink()
    if damage == "changed":
        path.write_bytes(b"Result is : VALID, really\n")
    if damage == "link":
        secret = tmp_path / "secret"
        secret.write_bytes(b"Result is : VALID\n")
        path.symlink_to(secret)
    site = build_again(tmp_path)
    page = next((site / "records").glob("*.html")).read_text("utf-8")
    row = next(row for row in table(page, "artifacts-table") if row[0] == "mlperf_log_summary.txt")
    told = {"gone": "cannot be read: No such file", "changed": "the SHA-256 differs", "link": "lies outside"}[damage]
    assert told in row[4]
    assert row[1] == "n/a"
    refused = table((site / "index.html").read_text("utf-8"), "refused-table")[1]
    assert refused[0].endswith("/mlperf_log_summary.txt")
    assert told in refused[1]
    for name, data in tree(site).items():
        assert str(tmp_path).encode() not in data, name
    assert not list((site / "records").rglob("mlperf_log_summary.txt"))


def build_again(tmp_path: Path) -> Path:
    """The site of the results that lie in the folder."""
    from trnbench.report.site import build_site

    build_site(tmp_path / "results", tmp_path / "site")
    return tmp_path / "site"


def test_files_are_never_pages_of_the_site(tmp_path: Path) -> None:
    """F6: a file called .html is served as text, names that differ in case stay apart, and none leaves its folder."""
    from trnbench.records.store import Store

    hostile = {
        "evil.html": b"<script>alert(1)</script>",
        "A.txt": b"1",
        "a.txt": b"2",
        "x.SVG": b"<svg/>",
        "noext": b"3",
    }
    Store(tmp_path / "results").write(artifact_record(), hostile)
    site = build_again(tmp_path)
    (folder,) = [path for path in (site / "records").iterdir() if path.is_dir()]
    assert all(path.suffix == ".txt" for path in folder.iterdir())
    assert sorted(path.read_bytes() for path in folder.iterdir()) == sorted(hostile.values())
    assert not any("<script" in html for html in pages(site).values())


def test_an_artifact_that_leads_out_of_the_store_is_refused(tmp_path: Path) -> None:
    """A record may name any path; nothing outside its own folder is read."""
    from trnbench.records.schema import Artifact
    from trnbench.records.store import Store

    (tmp_path / "secret.txt").write_bytes(b"secret")
    paths = ("../../../../secret.txt", "a\x00b", str(tmp_path / "secret.txt"))
    found = [Artifact(name=f"n{place}", path=path, sha256="0" * 64) for place, path in enumerate(paths)]
    Store(tmp_path / "results").write(msgspec.structs.replace(artifact_record(), artifacts=found))
    site = build_again(tmp_path)
    assert len(table((site / "index.html").read_text("utf-8"), "refused-table")) == 1 + len(paths)
    assert not any(str(tmp_path) in html for html in pages(site).values())
    assert not any(data == b"secret" for data in tree(site).values())


def test_a_served_record_that_measured_nothing_has_a_page(tmp_path: Path) -> None:
    """Status and reason stand where runs would; no figure fails for want of a value."""
    failed = {"status": Status.TIMEOUT, "reason": "a first token that never came"}
    nothing = workload_record(served_case(), None, run="t", rate=None, **failed)
    untrained = workload_record(quality_case(), None, run="u", rate=None, **failed)
    late = training_run(5, 10.0, evaluations=[], converged=False)
    unevaluated = workload_record(quality_case(batch=8), trained_measurement([late]), run="v")
    empty = workload_record(
        served_case(batch=2), measured([], serving=[loadgen_run("probe", "server")]), run="w", **failed
    )
    site = build(tmp_path, [nothing, untrained, unevaluated, empty])
    for record in (nothing, untrained):
        assert words((site / record_page(record)).read_text("utf-8")).count("a first token that never came") >= 3
    assert "No curve." in words((site / "training.html").read_text("utf-8"))
    assert "No curve." in words((site / "serving.html").read_text("utf-8"))
