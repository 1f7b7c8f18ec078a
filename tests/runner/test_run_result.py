"""The tally of a run with conformance checks, and what listed deviations are told."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "records"))

from record_samples import case, record

from trnbench.records.deviations import Deviation
from trnbench.records.schema import Check, Record
from trnbench.runner.options import deviations_beside
from trnbench.runner.result import RunResult
from trnbench.status import ExitCode, Status


def check(verdict: str, deviation: str = "") -> Check:
    return Check(
        check="operators/sum/forward/all equal",
        level="operators",
        metric="error",
        value=2.0,
        limit=1.0,
        verdict=verdict,
        reference="float64",
        where="here",
        deviation=deviation,
    )


def ended(status: Status, *checks: Check) -> Record:
    changes = {} if status is Status.OK else {"reason": "why"}
    return record(status=status, conformance=list(checks), **changes)


def result(*records: Record, **changes: object) -> RunResult:
    plain = RunResult(run_ids=["r"], planned=len(records), records=list(records))
    return msgspec.structs.replace(plain, **changes)


def entry(pattern: str) -> Deviation:
    return Deviation(
        id=pattern,
        checks=[pattern],
        reason="why",
        link="https://example.org",
        reproduction="how",
        expires=datetime.date(2999, 1, 1),
        suite=("decoder",),
    )


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([ended(Status.OK)], ExitCode.CLEAN),
        ([ended(Status.OK), ended(Status.NONCONFORMANT, check("known deviation", "x"))], ExitCode.CLEAN),
        ([ended(Status.OK), ended(Status.NONCONFORMANT, check("fail"))], ExitCode.FAILED),
        ([ended(Status.NONCONFORMANT, check("known deviation", "x"))], ExitCode.NOTHING_MEASURED),
        ([ended(Status.OK), ended(Status.SKIPPED)], ExitCode.CLEAN),
        ([ended(Status.SKIPPED)], ExitCode.NOTHING_MEASURED),
    ],
)
def test_only_what_is_not_listed_fails_a_run(records: list[Record], code: ExitCode) -> None:
    assert result(*records).exit_code() is code


def test_verdicts_are_counted_and_unexpected_passes_named() -> None:
    found = list(result(ended(Status.OK, check("pass"), check("unexpected pass", "old"))).check_notes())
    assert found[0] == "2 conformance checks: 1 pass, 1 unexpected pass"
    assert found[1].startswith("deviation old is listed, but operators/sum/forward/all equal passes in nano-train_step")


def test_a_deviation_of_which_nothing_fails_is_told_for_whole_runs_only() -> None:
    whole = result(ended(Status.OK, check("pass")), deviations=[entry("operators/sum/*")])
    assert list(whole.check_notes())[1:] == [
        "deviation operators/sum/* is listed, but nothing that it names fails: narrow or remove it"
    ]
    still = result(ended(Status.OK, check("known deviation", "operators/sum/*")), deviations=[entry("operators/sum/*")])
    assert len(list(still.check_notes())) == 1


def test_a_deviation_that_names_no_check_is_told_for_whole_runs_only() -> None:
    """A3's kind for lists: an entry that can never match must not look like one that did."""
    whole = result(ended(Status.OK, check("pass")), deviations=[entry("operators/summ/*")])
    assert list(whole.check_notes())[1:] == [
        "deviation operators/summ/* names no check that was run: is its pattern misspelt?"
    ]
    assert len(list(msgspec.structs.replace(whole, selected=True).check_notes())) == 1
    assert len(list(msgspec.structs.replace(whole, interrupted=True).check_notes())) == 1


def test_the_list_beside_the_suites_is_found_from_the_whole_and_from_one_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "suites" / "conformance" / "deviations"
    folder.mkdir(parents=True)
    (tmp_path / "suites" / "decoder").mkdir()
    (tmp_path / "suites" / "decoder" / "test_x.py").touch()
    for suites in ("suites", "suites/conformance", "suites/decoder", "suites/decoder/test_x.py"):
        assert deviations_beside(tmp_path / suites) == folder
    assert deviations_beside(tmp_path) is None


def test_what_is_checked_is_counted_apart_from_what_is_measured() -> None:
    checked = case(phase="operators", workload="reductions", batch=0, micro_batch=0, sequence=0)
    both = result(ended(Status.OK), record(case=checked, measurement=None, conformance=[check("pass")]))
    assert both.summary() == "1 of 1 measured, 1 of 1 checked"
    assert result(both.records[1]).summary() == "1 of 1 checked"
    assert result(ended(Status.OK), planned=3).summary() == "1 of 3 measured (2 not run)"
    assert result(planned=2, interrupted=True).summary() == "0 of 2 measured (2 not run)"
