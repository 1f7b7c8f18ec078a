"""The page about the checks themselves: its counts are the report's, for ours and for every simpler scheme."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from conformance_samples import SCHEMES, mutant, sample_mutation
from hypothesis import given, settings
from hypothesis import strategies as st
from site_helpers import words
from site_samples import write_all

from trnbench import wording
from trnbench.records.mutation import MutantResult, MutationReport, write_mutation_report
from trnbench.report.bars import Bar, BarGroup, shares
from trnbench.report.mutants_page import OURS, build_mutants, headline, scores
from trnbench.report.site import build_site

if TYPE_CHECKING:
    from pathlib import Path


def random_result(number: int, correct: bool, caught: bool, objects: bool | None) -> MutantResult:
    """An implementation; `objects` None where the cosine does not apply to it."""
    return mutant(
        f"implementation {number}",
        [] if correct else ["fault"],
        ["T1"] if caught else [],
        "fault" if caught else "",
        schemes={} if objects is None else {"cosine": objects},
    )


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from([True, False, None])), max_size=12))
@settings(max_examples=40)
def test_scores_are_counted_from_the_results(drawn: list[tuple[bool, bool, bool | None]]) -> None:
    """Caught of broken, alarms of correct, each of those that the scheme applies to; every result has one row."""
    results = [random_result(number, *one) for number, one in enumerate(drawn)]
    report = msgspec.structs.replace(sample_mutation(), results=results)
    found = {one.name: one for one in scores(report)}
    assert list(found) == [OURS, *SCHEMES]
    wrong = [(caught, objects) for correct, caught, objects in drawn if not correct]
    right = [(caught, objects) for correct, caught, objects in drawn if correct]
    ours, cosine = found[OURS], found["cosine"]
    assert (ours.caught, ours.wrong) == (sum(caught for caught, _ in wrong), len(wrong))
    assert (ours.alarms, ours.right) == (sum(caught for caught, _ in right), len(right))
    assert (cosine.caught, cosine.wrong) == (sum(o is True for _, o in wrong), sum(o is not None for _, o in wrong))
    assert (cosine.alarms, cosine.right) == (sum(o is True for _, o in right), sum(o is not None for _, o in right))
    assert found["torch.testing.assert_close"].wrong == 0


def test_the_page_tells_what_the_checks_must_be_ashamed_of(numerics_site: Path) -> None:
    """Totals lead; misses, wrong names and false alarms are listed, and each implementation has its row."""
    html = (numerics_site / "mutants.html").read_text("utf-8")
    text = words(html)
    assert headline(sample_mutation()) == "Caught 3 of 4, named 2 of 4, false alarms 1 of 3 correct variants"
    assert headline(sample_mutation()) in text
    assert headline(sample_mutation()) in words((numerics_site / "index.html").read_text("utf-8"))
    assert "missed linear in fp32: drops the last &lt;term&gt;" in text
    assert "false alarm for linear in fp32: fused" in text
    for one in sample_mutation().results:
        assert html.count(f">{one.name.replace('<', '&lt;').replace('>', '&gt;')}<") == 1, one.name


@pytest.mark.parametrize(
    ("correct", "objects", "kind", "said"),
    [
        (False, True, "good", "objects"),
        (False, False, "bad", "silent"),
        (True, True, "bad", "objects"),
        (True, False, "good", "silent"),
        (True, None, None, "n/a"),
    ],
)
def test_a_scheme_is_good_where_it_is_right(correct: bool, objects: bool | None, kind: str | None, said: str) -> None:
    """To object to a broken implementation is good, to a correct one bad; what does not apply says so."""
    report = msgspec.structs.replace(sample_mutation(), results=[random_result(0, correct, not correct, objects)])
    page = build_mutants(report)
    cell = (page.right if correct else page.wrong).rows[0].cells[-2 + list(SCHEMES).index("cosine")]
    assert (cell.tag.kind if cell.tag else None) == kind
    assert (cell.tag.words if cell.tag else cell.text) == said


def test_the_export_is_the_report(numerics_site: Path) -> None:
    """Under the disclaimer, and else as stored."""
    data = json.loads((numerics_site / "mutants.json").read_bytes())
    assert data.pop("disclaimer") == wording.DISCLAIMER
    assert msgspec.convert(data, MutationReport) == sample_mutation()


def test_a_broken_report_is_refused_and_the_rest_is_built(tmp_path: Path) -> None:
    """No page, no dead link, and the file named with its reason."""
    results = write_all(tmp_path / "results", [])
    write_mutation_report(results, sample_mutation()).write_text('{"schema_version": 1', encoding="utf-8")
    assert build_site(results, tmp_path / "site").rejected == 1
    assert not (tmp_path / "site" / "mutants.html").exists()
    index = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert "mutants.html" not in index
    assert "mutants/mutants.json" in words(index)


def test_bars_are_as_long_as_their_share() -> None:
    """A whole of nothing has no bar and breaks nothing; a longer share is a longer bar."""
    bars = [Bar(value=3, whole=4, text="3 of 4"), Bar(value=0, whole=0, text="0 of 0")]
    assert [bar.percent for bar in bars] == [75.0, 0.0]
    drawing = shares(
        [BarGroup(name="a name", bars=bars)], kinds=("caught", "alarms"), title="t", description="d", axis="percent"
    )
    for svg in (drawing.wide, drawing.narrow):
        assert b"3 of 4" in svg
        assert b"0 of 0" in svg
        assert wording.DISCLAIMER.split(";")[0].encode() in svg
