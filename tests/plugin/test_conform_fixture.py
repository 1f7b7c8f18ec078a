"""Cases that are only checked, and listed deviations, through the pytest face on a scripted backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from fake_suite import PASSED, SUITE, install  # isort: skip
from trnbench.case import grid
from trnbench.conformance import cases
from trnbench.conformance.cases import conformance_version
from trnbench.records.store import Store
from trnbench.status import Status

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.records.schema import Check, Record

pytest_plugins = ["pytester"]

CHECKED = """
import pytest
from trnbench.case import grid

CASES = grid(suite="fake", tier="smoke", workload="{workload}", phase="{phase}", precision=["fp32", "bf16"],
             mode="eager"{more})

@pytest.mark.cases(CASES)
def test_checks({fixture}):
    {fixture}()
"""

DEVIATION = """
[[deviation]]
id = "known"
checks = ["operators/sum/forward/all equal"]
reason = "why"
link = "https://example.org/1"
reproduction = "how"
expires = {expires}
suite = ["fake"]
"""


def check(verdict: str = "pass", name: str = "operators/sum/forward/all equal") -> Check:
    value = None if verdict in ("not checked", "non-finite") else 0.5 if verdict == "pass" else 2.0
    return msgspec.structs.replace(PASSED, check=name, level="operators", verdict=verdict, value=value, where="here")


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Two cases of one operator family whose checks pass, and a deviation that has not expired."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    install(monkeypatch)
    answer(monkeypatch, check())
    pytester.makepyfile(test_suite=CHECKED.format(workload="reductions", phase="operators", more="", fixture="conform"))
    pytester.mkdir("deviations").joinpath("fake.toml").write_text(DEVIATION.format(expires="2999-01-01"))
    return pytester


def answer(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> None:
    monkeypatch.setattr(cases, "check_conformance", lambda case, backend, seeds: list(checks))


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    arguments = ("--backend", "fake", "--results-dir", "results", "-p", "no:cacheprovider", *options)
    return suite.runpytest_inprocess(*arguments, no_reraise_ctrlc=True)


def records(suite: pytest.Pytester) -> list[Record]:
    loaded = Store(suite.path / "results").load()
    assert loaded.rejected == []
    return [stored.record for stored in loaded.records]


def test_a_checked_case_is_ok_without_rounds(suite: pytest.Pytester) -> None:
    assert run(suite).ret == 0
    first, second = records(suite)
    assert (first.status, first.measurement, second.status) == (Status.OK, None, Status.OK)
    assert first.unknown["measurement"] == "phase operators is checked, not measured"
    assert first.conformance == [check()]
    assert first.environment.flags["fake.precision"] == first.case.precision
    assert first.case.version == conformance_version("operators", "reductions")


@pytest.mark.parametrize("verdict", ["fail", "non-finite"])
def test_an_unlisted_failure_makes_it_nonconformant(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    answer(monkeypatch, check(), check(verdict, "operators/mean/forward/gaussian"))
    result = run(suite, "--deviations", "deviations")
    assert result.ret == 1
    assert {record.status for record in records(suite)} == {Status.NONCONFORMANT}
    assert "Traceback" not in result.stdout.str()


def test_a_listed_failure_leaves_it_ok_and_marked(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, check("fail"))
    assert run(suite, "--deviations", "deviations").ret == 0
    stored = records(suite)[0]
    assert stored.status is Status.OK
    assert [(one.verdict, one.deviation) for one in stored.conformance] == [("known deviation", "known")]
    assert run(suite).ret == 1, "without the list it fails"


def test_an_expired_deviation_fails_again(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    (suite.path / "deviations" / "fake.toml").write_text(DEVIATION.format(expires="2026-01-01"))
    answer(monkeypatch, check("fail"))
    assert run(suite, "--deviations", "deviations").ret == 1
    assert "deviation known expired on 2026-01-01" in records(suite)[0].conformance[0].where


def test_a_listed_pass_is_told(suite: pytest.Pytester) -> None:
    assert run(suite, "--deviations", "deviations").ret == 0
    assert records(suite)[0].conformance[0].verdict == "unexpected pass"


def test_a_wrong_list_ends_before_anything_runs(suite: pytest.Pytester) -> None:
    (suite.path / "deviations" / "fake.toml").write_text("[[deviation]]\nid = 3\n")
    result = run(suite, "--deviations", "deviations")
    assert result.ret == 2
    assert records(suite) == []
    assert "fake.toml" in result.stderr.str() + result.stdout.str()


def test_nothing_checked_is_a_skip(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never ok by omission: a session in which no check could run measured nothing."""
    answer(monkeypatch, check("not checked"))
    assert run(suite).ret == 3
    assert {(record.status, record.reason) for record in records(suite)} == {(Status.SKIPPED, "here")}


def test_an_error_in_a_check_is_a_failure(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: Case, backend: object, seeds: int) -> list[Check]:
        raise ValueError("surprise")

    monkeypatch.setattr(cases, "check_conformance", broken)
    assert run(suite).ret == 1
    assert records(suite)[0].reason == "ValueError: surprise"


def test_a_speed_beside_a_listed_deviation_is_kept_apart_and_fails_nothing(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test is expected to fail (xfail), the record is nonconformant: no speed enters a comparison."""
    suite.makepyfile(test_suite=SUITE.format(batches=[1]))
    install(monkeypatch, check=lambda case: [check("fail")])
    result = run(suite, "--deviations", "deviations")
    result.assert_outcomes(xfailed=1)
    assert result.ret == 3
    (record,) = records(suite)
    assert (record.status, record.reason[:22]) == (Status.NONCONFORMANT, "known deviation known:")


@pytest.mark.parametrize(
    ("fixture", "phase", "more"),
    [("measure", "operators", ""), ("conform", "prefill", ", batch=1, sequence=16")],
)
def test_the_wrong_fixture_is_refused(suite: pytest.Pytester, fixture: str, phase: str, more: str) -> None:
    workload = "reductions" if phase == "operators" else "nano"
    suite.makepyfile(test_suite=CHECKED.format(workload=workload, phase=phase, more=more, fixture=fixture))
    result = run(suite)
    assert result.ret != 0
    assert f"of phase {phase} cannot use the fixture `{fixture}`" in result.stdout.str()
    assert records(suite) == []


def test_a_test_that_never_calls_conform_fails(suite: pytest.Pytester) -> None:
    text = CHECKED.format(workload="reductions", phase="operators", more="", fixture="conform")
    suite.makepyfile(test_suite=text.replace("    conform()", "    pass"))
    assert run(suite).ret == 1


def test_shapes_belong_to_the_checks_of_formats_and_operators() -> None:
    (case,) = grid(suite="x", tier="smoke", workload="casts", phase="formats", precision="fp32", mode="eager")
    assert (case.batch, case.sequence, case.id) == (0, 0, "casts-formats-fp32-eager")
    with pytest.raises(Exception, match="batch is 4; phase formats has none"):
        grid(suite="x", tier="smoke", workload="casts", phase="formats", precision="fp32", mode="eager", batch=4)


def test_the_number_of_seeds_reaches_the_check(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    monkeypatch.setattr(cases, "check_conformance", lambda case, backend, seeds: [tried.append(seeds), check()][1:])
    assert run(suite, "--seeds", "200").ret == 0
    assert run(suite).ret == 0
    assert tried == [200, 200, 1, 1]
    assert run(suite, "--seeds", "none").ret == 2
