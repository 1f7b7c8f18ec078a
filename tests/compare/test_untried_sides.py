"""A side that was never run is no side of a comparison; a side that was run and failed is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from factory import H100, TRAINIUM, make_case, make_device, make_environment, make_record, make_runs

from trnbench.compare.engine import compare_all
from trnbench.status import Status

if TYPE_CHECKING:
    from trnbench.compare.engine import CompareResult
    from trnbench.records.schema import Record

TRN, GPU = make_device(**TRAINIUM), make_device(**H100)
REASON = "tf32 is not computed on cpu"


def unmeasured(run: str, status: Status, reason: str = REASON, **fields: object) -> Record:
    """A record of a case that gave no number."""
    return msgspec.structs.replace(make_record(run, status=status, reason=reason, **fields), measurement=None)


def assert_each_once(records: list[Record], found: CompareResult) -> None:
    """Every record is in a comparison or listed beside them with a reason, never both and never neither."""
    compared = {
        record.record_id
        for one in found.comparisons
        for side in (one.a, one.b)
        for record in [*(run.record for run in side.runs), *(left for left, _ in side.left_out)]
    }
    listed = [record.record_id for record, reason in found.not_compared if reason]
    assert sorted([*compared, *listed]) == sorted(record.record_id for record in records)


@pytest.mark.parametrize("status", [Status.UNSUPPORTED, Status.SKIPPED])
def test_a_side_that_was_never_run_is_listed_and_not_compared(status: Status) -> None:
    """The other precisions still meet each other, and the reason stands beside the records without a number."""
    never = [unmeasured(f"t-{night}", status, case=make_case(precision="tf32")) for night in range(3)]
    records = [
        *make_runs([2000, 2020, 1980], "h"),
        *make_runs([1000, 1010, 990], "f", case=make_case(precision="fp32")),
        *never,
    ]
    found = compare_all(records, "precision")
    assert [(one.a.label, one.b.label) for one in found.comparisons] == [("bf16", "fp32")]
    assert found.not_compared == [(record, f"{status.value}: {REASON}") for record in never]
    assert_each_once(records, found)


def test_a_record_whose_only_counterpart_was_never_run_says_so() -> None:
    """Both sides are listed: the one with its outcome, the other with that of its counterpart."""
    records = [*make_runs([1000], "f"), unmeasured("t", Status.UNSUPPORTED, case=make_case(precision="tf32"))]
    found = compare_all(records, "precision")
    assert found.comparisons == []
    assert {record.run_id: why for record, why in found.not_compared} == {
        "f-0": f"tf32 was not run: unsupported: {REASON}",
        "t": f"unsupported: {REASON}",
    }
    assert_each_once(records, found)


@pytest.mark.parametrize(
    "status", [one for one in Status if one not in (Status.UNSUPPORTED, Status.SKIPPED, Status.OK)]
)
def test_a_side_that_was_run_and_failed_stays(status: Status) -> None:
    """One attempt is enough for a side to be one: the comparison keeps its verdict and the reason."""
    records = [
        *make_runs([1000, 1010, 990], "g", device=GPU),
        unmeasured("t-0", Status.SKIPPED, "no device", device=TRN),
        unmeasured("t-1", status, "what went wrong", device=TRN),
    ]
    found = compare_all(records, "device")
    (comparison,) = found.comparisons
    assert comparison.throughput_ratio is None
    assert "what went wrong" in comparison.explanation
    assert found.not_compared == []
    assert_each_once(records, found)


def test_a_night_that_skipped_on_a_newer_stack_hides_no_result() -> None:
    """The stack that was last run is compared, and the skipped record is listed with its own outcome."""
    newer = make_environment(versions={"torch": "2.14.0", "python": "3.11.9"})
    skipped = unmeasured(
        "t-9", Status.SKIPPED, "no device", device=TRN, environment=newer, started_at="2026-11-29T09:00:00Z"
    )
    records = [
        *make_runs([2000, 2020, 1980], "t", device=TRN),
        *make_runs([1000, 1010, 990], "g", device=GPU),
        skipped,
    ]
    found = compare_all(records, "device")
    assert [one.verdict for one in found.comparisons] == ["a faster"]
    assert found.not_compared == [(skipped, "skipped: no device")]
    assert_each_once(records, found)
