"""Conformance on the site: every count is the records', failures lead, and deviations are explained."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, get_args

import pytest
from conformance_samples import check_case, checked_record, conformance_records, operator_check, write_conformance
from hypothesis import given, settings
from hypothesis import strategies as st
from site_helpers import build, words
from site_samples import START, sample_record

from trnbench import wording
from trnbench.records.schema import Verdict
from trnbench.report.check_counts import count_words, tally
from trnbench.report.checked_records import checked_stacks
from trnbench.report.conformance_page import build_conformance
from trnbench.report.material import Entry, Material
from trnbench.report.record_checks import check_groups
from trnbench.report.site import build_site
from trnbench.status import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.records.schema import Check, Record

WORDS = {
    "pass": "pass",
    "fail": "failed",
    "non-finite": "not finite",
    "known deviation": "known deviation",
    "unexpected pass": "unexpected pass",
    "not checked": "not checked",
    "reported": "reported only",
}


def counts_in(text: str) -> Counter[str]:
    """`41 pass, 2 known deviations` read back as numbers by verdict."""
    found: Counter[str] = Counter()
    for verdict, name in WORDS.items():
        plural = {"known deviation": "known deviations", "unexpected pass": "unexpected passes"}.get(verdict, name)
        for number in re.findall(rf"(?:^|[ :])([\d,]+) (?:{plural}|{name})(?=[,.]|$)", text):
            found[verdict] += int(number.replace(",", ""))
    return found


def material_of(records: list[Record]) -> Material:
    """The records as a site gathers them, without files."""
    entries = [Entry(record=record, path=record.record_id, data=b"") for record in records]
    return Material(
        title="t", entries=entries, comparisons=[], refused=[], records_in=len(entries), simulated_left_out=0
    )


def current(records: list[Record]) -> list[Record]:
    """By hand: the newest record of each case on the newest stack of each device of the samples."""
    older = [record for record in records if record.environment.versions["torch"] == "2.12.0"]
    newest: dict[tuple[object, ...], Record] = {}
    for record in sorted((one for one in records if one not in older), key=lambda one: one.started_at):
        newest[record.device.chip, *record.case.identity(["version"])] = record
    return list(newest.values())


@pytest.fixture(scope="module")
def numerics(numerics_site: Path) -> str:
    """The page of conformance."""
    return (numerics_site / "conformance.html").read_text("utf-8")


def table(html: str, table_id: str) -> list[str]:
    """The rows of a table's body, as words."""
    found = re.search(rf'<table id="{table_id}">.*?</table>', html, re.DOTALL)
    assert found, table_id
    return [words(row) for row in re.findall(r"<tr>.*?</tr>", found[0], re.DOTALL)][1:]


def test_every_count_on_the_page_is_the_records(numerics: str) -> None:
    """The lead adds up what the newest records hold, and each cell of the matrix what its record does."""
    kept = current(conformance_records())
    expected = Counter(check.verdict for record in kept for check in record.conformance)
    lead = re.search(r'<p class="lead">.*?</p>', numerics, re.DOTALL)
    assert lead
    assert counts_in(words(lead[0])) == expected
    assert f"{expected['fail'] + expected['non-finite']} of 79 checks failed" in words(lead[0])
    for record in kept:
        cell = re.search(rf'<td class="verdict">(?:(?!</td>).)*records/{record.record_id}\.html.*?</td>', numerics)
        assert cell, record.case.id
        text, counted = words(cell[0]), tally(record.conformance)
        if not record.conformance:
            assert record.status.value in text
            continue
        tried = len(record.conformance) - counted["reported"]
        assert f"{counted['pass']} of {tried} pass" in text
        failed = counted["fail"] + counted["non-finite"]
        assert (f"{failed} FAILED" in text) == (failed > 0)
        if counted["known deviation"]:
            assert f"{counted['known deviation']} known deviation" in text


@given(st.lists(st.lists(st.sampled_from(get_args(Verdict)), max_size=12), min_size=1, max_size=4))
@settings(max_examples=40)
def test_counts_hold_for_any_verdicts(verdicts: list[list[Verdict]]) -> None:
    """Whatever the records hold: the sentence of their stack, read back, is their tally, and groups lose no check."""
    records = []
    for place, some in enumerate(verdicts):
        checks = [operator_check(f"matmul/forward/{number}", verdict) for number, verdict in enumerate(some)]
        case = check_case(f"family{place}")
        records.append(checked_record(case, checks or [operator_check("matmul/forward/x")], minute=place))
    page = build_conformance(material_of(records))
    assert page is not None
    expected = Counter(check.verdict for record in records for check in record.conformance)
    assert counts_in(page.words) == expected
    assert counts_in(page.stacks[0].words) == expected
    assert len(page.failures.rows) == expected["fail"] + expected["non-finite"]
    assert sum(int(row.cells[1].text) for row in page.faults.rows) == len(page.failures.rows)
    assert (len(page.reported.rows), len(page.unexpected.rows)) == (expected["reported"], expected["unexpected pass"])
    for record in records:
        shown = [row.cells[0].text for group in check_groups(record) for each in group.tables for row in each.rows]
        assert sorted(shown) == sorted(check.check for check in record.conformance)


def test_count_words_name_every_verdict() -> None:
    """A verdict added to the schema needs words here, or it would vanish from every sentence."""
    assert set(WORDS) == set(get_args(Verdict))
    assert count_words(dict.fromkeys(get_args(Verdict), 1)).count(",") == len(WORDS) - 1


def test_the_newest_record_of_a_case_wins(numerics: str) -> None:
    """An older attempt is gone from the page; an older stack stands folded and is not counted."""
    assert "superseded" not in numerics
    assert "Older software: cpu, torch 2.12.0" in numerics
    stacks = checked_stacks(material_of(conformance_records()))
    assert [(stack.label, stack.older) for stack in stacks] == [
        ("8 x H100 SXM (cuda), torch 2.13.0", False),
        ("cpu, torch 2.13.0", False),
        ("cpu, torch 2.12.0", True),
    ]


def test_failures_come_first_with_their_names(numerics: str) -> None:
    """What a failure looks like stands before the matrix; each failed check leads to its record."""
    assert numerics.index('id="faults-table"') < numerics.index('id="matrix-0"') < numerics.index('id="deviations"')
    assert any(row.startswith("TF32 operands 1 matmul") for row in table(numerics, "faults-table"))
    rows = table(numerics, "failures-table")
    assert len(rows) == 2
    assert "overflow inside the accumulator" in rows[1]


def test_how_a_fault_was_recognised_does_not_split_it() -> None:
    """`x (bitwise match)` and `x (matched residual, 0.998)` are one fault; a name may itself end in brackets."""
    names = ["bf16 operands (bitwise match)", "bf16 operands (matched residual, 0.998; 7 of 9 failing samples)"]
    names += ["gelu (tanh)", "unexplained, 9.1 effective bits", "unexplained"]
    checks = [operator_check(f"matmul/forward/{place}", "fail", looks_like=name) for place, name in enumerate(names)]
    page = build_conformance(material_of([checked_record(check_case(), checks)]))
    assert page is not None
    found = {row.cells[0].text: row.cells[1].text for row in page.faults.rows}
    assert found == {"bf16 operands": "2", "unexplained": "2", "gelu (tanh)": "1"}


def test_known_deviations_are_explained(numerics: str) -> None:
    """Reason, reproduction and date come from the list; an id without a text, and one never seen, say so."""
    entries = {
        re.findall(r"<h3[^>]*>(.*?)</h3>", part)[0]: part
        for part in re.findall(r'<article class="deviation">.*?</article>', numerics, re.DOTALL)
    }
    assert list(entries) == ["embedding-gradient", "no-text-at-hand", "gone-since", "never-seen"]
    listed = entries["embedding-gradient"]
    assert "added in the gradient&#39;s own dtype" in listed
    assert "print(weight)  # &lt;b&gt;not markup&lt;/b&gt;" in listed
    assert "2027-06-30" in listed
    assert "Seen in 2 checks of 1 record; 1 listed check passed, which was not expected" in listed
    assert '<a rel="external noreferrer" href="https://example.org/issues/1?a=1&amp;b=2">' in listed
    assert "Its text is not at hand" in entries["no-text-at-hand"]
    assert "Seen in 1 check of 1 record" in entries["no-text-at-hand"]
    assert all("Seen in no record that counts now" in entries[name] for name in ("never-seen", "gone-since"))
    assert "expired by 2026-11-02" in words(entries["never-seen"])
    assert 'href="javascript' not in numerics


def test_reported_values_are_never_judged(numerics: str) -> None:
    """A value beyond its authors' threshold fails nothing: it stands in a table of its own, and the case passes."""
    rows = table(numerics, "reported-table")
    assert len(rows) == 1
    assert "AWS error ratio" in rows[0]
    assert rows[0].endswith("never judged")
    assert "AWS error ratio" not in numerics[: numerics.index('id="reported"')]


def test_the_page_of_a_checked_case_has_no_empty_speed(numerics_site: Path) -> None:
    """No result, rounds or comparisons; failures first, then what was not checked, then passes folded by operator."""
    record = next(one for one in conformance_records() if one.run_id == "conformance-2")
    html = (numerics_site / "records" / f"{record.record_id}.html").read_text("utf-8")
    headings = [words(one) for one in re.findall(r"<h[23][^>]*>(.*?)</h[23]>", html)]
    assert headings[:4] == ["Conformance", "Failed: 2 checks", "Not checked: 1 check", "Passed: 30 checks"]
    assert not {"Result", "Rounds", "Comparisons"} & set(headings)
    assert "Price in force" not in html
    assert "Batch" not in html
    summaries = re.findall(r"<summary>(.*?)</summary>", html)
    assert summaries == ["matmul: 10 checks", "linear: 10 checks", "batched matmul: 10 checks"]
    known = next(one for one in conformance_records() if one.case.workload == "indexing" and one.case.mode == "eager")
    html = (numerics_site / "records" / f"{known.record_id}.html").read_text("utf-8")
    assert '<a href="../conformance.html#deviation-cpu-embedding-gradient">embedding-gradient</a>' in html
    assert 'id="deviation-cpu-embedding-gradient"' in (numerics_site / "conformance.html").read_text("utf-8")


def test_index_and_runs_count_checked_cases_as_checked(numerics_site: Path) -> None:
    """A failed check is a result and no gap; a case that ended without a verdict is one."""
    index = words((numerics_site / "index.html").read_text("utf-8"))
    assert "0 measured, 10 checked, 1 not" in index
    assert "conformance-1 7 of 8 checked" in index
    gaps = table((numerics_site / "index.html").read_text("utf-8"), "gaps-table")
    assert len(gaps) == 1
    assert "no answer within 300 s" in gaps[0]
    run = words((numerics_site / "runs" / "conformance-1.html").read_text("utf-8"))
    assert "7 of 8 checked" in run
    assert "no rounds" not in run
    assert index.index("Does it compute the same thing?") < index.index("What was not measured")


def test_a_site_without_checks_has_no_page_and_no_link(tmp_path: Path) -> None:
    """No record carries a check, no passport, no mutation report: three pages in the navigation."""
    site = build(tmp_path, [sample_record(conformance=[])])
    for name in ("conformance.html", "passports.html", "mutants.html", "conformance.csv", "mutants.json"):
        assert not (site / name).exists()
        assert not any(
            f"{name}" in page.read_text("utf-8") for page in site.rglob("*.html") if "records" not in page.parts
        )
    navigation = re.search(r"<nav.*?</nav>", (site / "index.html").read_text("utf-8"), re.DOTALL)
    assert navigation
    assert navigation[0].count("<li>") == 3


def test_checks_of_measured_records_stand_in_the_matrix(tmp_path: Path) -> None:
    """The model whose speed was taken has a row of its own, named by its phase."""
    html = (build(tmp_path, [sample_record()]) / "conformance.html").read_text("utf-8")
    assert any(row.startswith("llama3.2-1b, training step batch 8, sequence 2048") for row in table(html, "matrix-0"))
    assert "2 of 2 pass" in words(html)


def test_exports_hold_every_check(numerics_site: Path) -> None:
    """CSV: one line a check, older stacks marked. JSON: counts of each case, and in full what did not pass."""
    newest = [*current(conformance_records()), next(r for r in conformance_records() if r.run_id == "conformance-0")]
    lines = (numerics_site / "conformance.csv").read_text("utf-8").splitlines()
    assert lines[0] == f"# {wording.DISCLAIMER}"
    rows = list(csv.DictReader(lines[1:]))
    assert len(rows) == sum(len(record.conformance) for record in newest)
    assert Counter(row["verdict"] for row in rows) == Counter(c.verdict for r in newest for c in r.conformance)
    assert {row["current"] for row in rows if row["run_id"] == "conformance-0"} == {"no"}
    data = json.loads((numerics_site / "conformance.json").read_bytes())
    assert data["disclaimer"] == wording.DISCLAIMER
    cases = [case for stack in data["stacks"] for case in stack["cases"]]
    assert {case["record"] for case in cases} == {record.record_id for record in newest}
    for case in cases:
        assert sum(case["counts"].values()) - case["counts"]["pass"] == len(case["other_than_pass"])
    assert [one["id"] for one in data["deviations"]["cpu"]] == ["embedding-gradient", "never-seen"]


def test_a_list_of_deviations_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Before anything is written, with the file's name; so is a folder that does not exist."""
    results = write_conformance(tmp_path / "results")
    (tmp_path / "deviations" / "xla.toml").write_text("[[deviation]]\nid = 3\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"xla\.toml"):
        build_site(results, tmp_path / "site", deviations=tmp_path / "deviations")
    with pytest.raises(UsageError, match="no folder"):
        build_site(results, tmp_path / "site", deviations=tmp_path / "nowhere")
    assert not (tmp_path / "site").exists()


def test_a_record_that_was_never_checked_joins_the_stack_of_its_chip() -> None:
    """A night on which the device was busy knows less of its host: it does not make a machine of its own."""
    good = checked_record(check_case(), [operator_check("matmul/forward/x")])
    lost = next(one for one in conformance_records() if not one.conformance)
    stacks = checked_stacks(material_of([good, lost]))
    assert [len(stack.entries) for stack in stacks] == [2]


def many_checks(number: int) -> list[Check]:
    """Checks that all pass."""
    return [operator_check(f"matmul/forward/{place}") for place in range(number)]


def test_few_passes_are_not_folded() -> None:
    """Fifteen stand open in one table; one more, and they are folded by operator."""
    for number, folded in ((15, False), (16, True)):
        record = checked_record(check_case(), many_checks(number), started=START + timedelta(days=number))
        assert [group.folded for group in check_groups(record)] == [folded]
