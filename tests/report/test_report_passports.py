"""Passports on the site: every probe is shown, pairs put their differences first, and nothing is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from conformance_samples import sample_passport, sample_passports, simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from site_helpers import words
from site_samples import sample_device, sample_environment, write_all

from trnbench import wording
from trnbench.records.passport import Passport, PassportStore, compare_passports
from trnbench.report.material import PassportEntry
from trnbench.report.passport_names import pairs_worth_comparing, passport_label, sides
from trnbench.report.passport_pair_page import build_passport_pair, differences_words
from trnbench.report.site import build_site

if TYPE_CHECKING:
    from pathlib import Path


def entry(passport: Passport) -> PassportEntry:
    """A passport as a site holds it."""
    return PassportEntry(passport=passport, path=f"{passport.passport_id}.json", data=b"{}")


def pair_names(passports: list[Passport]) -> list[tuple[str, str, str]]:
    """What differs, and the ids of the two."""
    found = pairs_worth_comparing([entry(one) for one in passports])
    return [(what, a.passport.passport_id[-1], b.passport.passport_id[-1]) for what, (a, b) in found]


def test_pairs_are_those_worth_comparing() -> None:
    """Backends in a mode they share, modes of one device, a stack and its predecessor; superseded ones never."""
    assert pair_names(sample_passports()) == [("backend", "3", "4"), ("mode", "2", "3"), ("stack", "2", "0")]


def test_backends_without_a_common_mode_still_meet() -> None:
    """Each with its first mode; and Trainium stands first."""
    device = sample_device("trn2")
    trainium = sample_passport("neuron", "compiled", 1, device=device, environment=sample_environment("trn2"))
    assert pair_names([sample_passport(number=0), trainium]) == [("backend", "1", "0")]
    assert pair_names([sample_passport(number=0)]) == []


def test_sides_never_read_the_same() -> None:
    """Equal backends and modes are told apart by the versions that differ, or else by the time."""
    former = sample_environment("cpu", versions={"torch": "2.12.0", "python": "3.12.4"})
    one, two, three = (
        sample_passport(number=0, environment=former),
        sample_passport(number=1),
        sample_passport(number=2),
    )
    assert sides((entry(two), entry(one))) == ("cpu, eager, torch 2.13.0", "cpu, eager, torch 2.12.0")
    assert len(set(sides((entry(three), entry(two))))) == 2
    assert passport_label(sample_passport("xla", "compiled")) == "xla on cpu, compiled"


@given(st.sampled_from(["24 bits", "8 bits", None]), st.sampled_from(["24 bits", "11 bits", None]), st.booleans())
@settings(max_examples=20)
def test_differences_are_those_of_the_passports(one: str | None, other: str | None, more: bool) -> None:
    """Every difference stands in one of two tables, by whether both sides could tell, and the rest is alike."""
    a = sample_passport(number=0, verdicts={"fp32 bits": one})
    b = sample_passport("xla", number=1, verdicts={"fp32 bits": other, "order": "pairwise" if more else "in order"})
    page = build_passport_pair((entry(a), entry(b)))
    found = compare_passports(a, b)
    assert len(page.differences.rows) + len(page.one_sided.rows) == len(found)
    assert len(page.alike.rows) == len(a.probes) - len(found)
    assert len(page.differences.rows) == (one != other and None not in (one, other)) + (not more)
    assert page.headline.startswith(f"{len(page.differences.rows)} of ")
    assert all(row.cells[1].tag and row.cells[1].tag.words == "differs" for row in page.differences.rows)


def test_every_probe_is_on_its_page(numerics_site: Path) -> None:
    """Each verdict, and each null with its reason; the numbers behind it; the stored bytes beside the page."""
    for passport in sample_passports():
        path = next(
            numerics_site.glob(f"passports/{passport.device.backend}-{passport.mode}-{passport.passport_id}.html")
        )
        html = path.read_text("utf-8")
        for probe in passport.probes:
            assert (probe.verdict or "tf32 is not computed here").replace("<", "&lt;").replace(">", "&gt;") in html
        assert "sum &lt;of&gt; rows" in html
        assert "never judged" in html
        assert 'class="tag bad"' not in html
        assert passport.passport_id.encode() in path.with_suffix(".json").read_bytes()


def test_the_list_names_pairs_and_refused_files(numerics_site: Path) -> None:
    """Differences are counted beside each pair; a broken file is listed here and on the front page."""
    html = (numerics_site / "passports.html").read_text("utf-8")
    text = words(html)
    assert "5 passports, 3 pairs set side by side" in text
    pair = (entry(sample_passports()[3]), entry(sample_passports()[4]))
    assert differences_words(pair) == "2 of 8 properties that both can tell differ; 1 more has no answer on a side"
    assert f"cpu, compiled against xla on cpu, compiled backends or chips {differences_words(pair)}" in text
    assert html.count("no: a newer one") == 1
    assert "passports/cpu/cut.json" in text
    assert "passports/cpu/cut.json" in words((numerics_site / "index.html").read_text("utf-8"))


def test_simulated_passports_need_permission(tmp_path: Path) -> None:
    """Left out and counted by default; with permission every page carries the notice."""
    results = write_all(tmp_path / "results", [])
    store = PassportStore(results)
    store.write(sample_passport(number=0))
    store.write(simulated(sample_passport("neuron", number=1)))
    build_site(results, tmp_path / "plain")
    plain = (tmp_path / "plain" / "passports.html").read_text("utf-8")
    assert "1 passport left out because a simulated device gave it" in words(plain)
    assert "neuron" not in plain
    assert wording.SIMULATED_NOTICE not in plain
    build_site(results, tmp_path / "all", allow_simulated=True)
    pages = list((tmp_path / "all").rglob("*.html"))
    assert len([page for page in pages if page.parent.name == "passports"]) == 3
    assert all(wording.SIMULATED_NOTICE in page.read_text("utf-8") for page in pages)


def test_a_copied_passport_counts_once(tmp_path: Path) -> None:
    """A copy would stand on the pages twice and meet itself: it is refused by name."""
    results = write_all(tmp_path / "results", [])
    path = PassportStore(results).write(sample_passport())
    path.with_name("copy.json").write_bytes(path.read_bytes())
    summary = build_site(results, tmp_path / "site")
    assert summary.rejected == 1
    assert words((tmp_path / "site/index.html").read_text("utf-8")).count("the same passport_id as passports/cpu") == 1


@pytest.mark.parametrize("only_broken", [True, False])
def test_a_folder_of_broken_passports_has_a_page(tmp_path: Path, only_broken: bool) -> None:
    """Nothing that could be shown is not nothing: the page says which file was refused and why."""
    results = write_all(tmp_path / "results", [])
    if only_broken:
        (results / "passports").mkdir()
        (results / "passports" / "cut.json").write_text("{", encoding="utf-8")
    build_site(results, tmp_path / "site")
    assert (tmp_path / "site" / "passports.html").exists() == only_broken
    if only_broken:
        assert "None can be shown. Files that were refused" in words(
            (tmp_path / "site/passports.html").read_text("utf-8")
        )
