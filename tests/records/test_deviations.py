"""Listed deviations: what they excuse, what they never excuse, and what a file that is wrong gets told."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import case, record

from trnbench.records.deviations import Deviation, apply_deviations, fails_run, idle, load_deviations, unmatched
from trnbench.records.schema import Check
from trnbench.status import Status, UsageError

if TYPE_CHECKING:
    from pathlib import Path

TODAY = datetime.date(2026, 11, 30)
VERSIONS = {"torch": "2.13.0+cpu"}

ENTRY = """
[[deviation]]
id = "embedding-gradient"
checks = ["operators/embedding/backward/*"]
looks_like = ["bf16 accumulator*"]
precision = ["bf16"]
suite = ["decoder"]
reason = "Rows of one token are added in the gradient's own dtype."
link = "https://example.org/1"
reproduction = "three lines"
expires = 2027-06-30
"""


def check(name: str = "operators/embedding/backward/repeated", verdict: str = "fail", like: str = "") -> Check:
    return Check(
        check=name,
        level="operators",
        metric="largest error over its bound",
        value=None if verdict == "non-finite" else 2.0,
        limit=1.0,
        verdict=verdict,
        reference="float64",
        where="somewhere",
        looks_like=like or ("bf16 accumulator (exact constant)" if verdict != "pass" else ""),
    )


def entry(**changes: object) -> Deviation:
    plain = Deviation(
        id="one",
        checks=["operators/embedding/backward/*"],
        reason="why",
        link="https://example.org/1",
        reproduction="how",
        expires=datetime.date(2027, 6, 30),
        suite=("decoder",),
    )
    return msgspec.structs.replace(plain, **changes)


def verdicts(checks: list[Check], *entries: Deviation, today: datetime.date = TODAY, **changes: object) -> list[str]:
    found = apply_deviations(checks, entries, case(**changes), VERSIONS, today)
    return [one.verdict for one in found]


def listed(folder: Path, text: str = ENTRY) -> list[Deviation]:
    folder.mkdir(exist_ok=True)
    (folder / "cpu.toml").write_text(text, encoding="utf-8")
    return load_deviations(folder, "cpu")


def complaint(folder: Path, text: str) -> str:
    """What is said about a file; its own name where nothing is wrong with it."""
    try:
        listed(folder, text)
    except UsageError as error:
        return str(error)
    return "cpu.toml"


def test_a_listed_failure_is_a_known_deviation_with_its_id(tmp_path: Path) -> None:
    (found,) = apply_deviations([check()], listed(tmp_path), case(), VERSIONS, TODAY)
    assert (found.verdict, found.deviation, found.value) == ("known deviation", "embedding-gradient", 2.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"checks": ["operators/embedding/forward/*"]},
        {"looks_like": ["fp16 accumulator*"]},
        {"precision": ["fp32"]},
        {"mode": ["compiled"]},
        {"suite": ("conformance",)},
        {"packages": {"torch": "<2.13"}},
        {"packages": {"torch-xla": ">=2.9"}},
        {"expires": datetime.date(2026, 11, 29)},
    ],
)
def test_what_an_entry_does_not_name_still_fails(changes: dict[str, object]) -> None:
    """Another check, another fault, precision, mode, suite or version, and a date that has passed."""
    assert verdicts([check()], entry(**changes)) == ["fail"]


def test_it_expires_the_day_after_and_says_so() -> None:
    last = entry(expires=TODAY)
    assert verdicts([check()], last) == ["known deviation"]
    (found,) = apply_deviations([check()], [last], case(), VERSIONS, TODAY + datetime.timedelta(days=1))
    assert found.verdict == "fail"
    assert "deviation one expired on 2026-11-30" in found.where


def test_a_non_finite_result_can_be_listed_too() -> None:
    assert verdicts([check(verdict="non-finite")], entry()) == ["known deviation"]


def test_a_pass_in_spite_of_it_is_told_where_the_check_is_named_in_full() -> None:
    """A pattern may name more than fails; whether anything of it still does is a question to the whole run."""
    both = [check(), check("operators/embedding/backward/gaussian", "pass")]
    assert verdicts(both, entry()) == ["known deviation", "pass"]
    assert verdicts(both, entry(checks=[one.check for one in both])) == ["known deviation", "unexpected pass"]
    other = check(like="last write wins (bitwise match)")
    assert verdicts([other, both[1]], entry(looks_like=["bf16*"])) == ["fail", "pass"]


def test_an_entry_of_which_nothing_fails_any_more_is_idle() -> None:
    fails, passes = check(verdict="known deviation"), check("operators/embedding/backward/gaussian", "pass")
    assert idle([entry()], [(case(), VERSIONS, [fails, passes])]) == []
    assert idle([entry()], [(case(), VERSIONS, [passes])]) == ["one"]
    assert idle([entry()], [(case(), VERSIONS, [passes]), (case(), VERSIONS, [fails])]) == []
    assert idle([entry(precision=["fp32"])], [(case(), VERSIONS, [passes])]) == []
    assert idle([entry()], [(case(), VERSIONS, [check(verdict="not checked")])]) == []


def test_what_was_not_checked_stays_so() -> None:
    assert verdicts([check(verdict="not checked")], entry()) == ["not checked"]


def test_an_entry_that_names_nothing_is_found_only_where_it_applies() -> None:
    misspelt = entry(checks=["operators/embeding/*"])
    outcomes = [(case(), VERSIONS, [check()])]
    assert unmatched([entry(), misspelt], outcomes) == ["one"]
    assert unmatched([misspelt], [(case(precision="fp32"), VERSIONS, [check()])]) == ["one"]
    assert unmatched([entry(checks=["x"], precision=["fp16"])], outcomes) == []
    assert unmatched([misspelt], [(case(), VERSIONS, [])]) == [], "nothing was checked, so nothing can be said"


def test_a_record_off_only_as_listed_does_not_fail_its_run() -> None:
    """A speed beside a listed deviation stays nonconformant, out of every cost, and yet the run is no failure."""
    known = check(verdict="known deviation")

    def nonconformant(*checks: Check) -> bool:
        return fails_run(record(status=Status.NONCONFORMANT, reason="known", conformance=list(checks)))

    assert not nonconformant(known)
    assert nonconformant(known, check())
    assert nonconformant(check(verdict="non-finite"), known)
    assert nonconformant(), "nonconformant for another reason"
    assert not fails_run(record())
    assert fails_run(record(status=Status.OOM, reason="memory", measurement=None))


def test_no_file_lists_nothing(tmp_path: Path) -> None:
    assert load_deviations(None, "cpu") == []
    assert load_deviations(tmp_path, "cpu") == []


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ('id = "embedding-gradient"\n', "", "missing required field `id`"),
        ("expires = 2027-06-30", 'expires = "soon"', "expires"),
        ("looks_like", "looks_lik", "looks_lik"),
        ('["bf16"]', '["bf61"]', "key 'precision' holds 'bf61'; did you mean 'bf16'?"),
        ('"three lines"', '" "', "key 'reproduction' is empty"),
        ('checks = ["operators/embedding/backward/*"]', "checks = []", "key 'checks' is empty"),
        ("[[deviation]]", "[[deviation]", "line 2"),
        ("expires", 'packages = { torch = "about 2" }\nexpires', "packages.torch is 'about 2'"),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_key(tmp_path: Path, old: str, new: str, wrong: str) -> None:
    assert old in ENTRY
    with pytest.raises(UsageError, match=r"cpu\.toml") as caught:
        listed(tmp_path, ENTRY.replace(old, new))
    assert wrong in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_id_is_listed_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'embedding-gradient' is listed twice"):
        listed(tmp_path, ENTRY + ENTRY)


@given(st.text(max_size=80))
def test_any_text_ends_in_one_sentence(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    assert "cpu.toml" in complaint(tmp_path_factory.mktemp("deviations"), text)


@given(st.lists(st.sampled_from(["pass", "fail", "non-finite", "not checked"]), max_size=6), st.booleans())
def test_applying_changes_verdicts_and_nothing_else(found: list[str], expired: bool) -> None:
    """Values survive; no failure is excused without the id of what excuses it."""
    checks = [check(f"operators/embedding/backward/{number}", verdict) for number, verdict in enumerate(found)]
    today = datetime.date(2028, 1, 1) if expired else TODAY
    after = apply_deviations(checks, [entry()], case(), VERSIONS, today)
    for before, now in zip(checks, after, strict=True):
        assert (before.check, before.value, before.limit) == (now.check, now.value, now.limit)
        assert (now.verdict == before.verdict) == (now.deviation == "")
        if expired:
            assert now.verdict == before.verdict
