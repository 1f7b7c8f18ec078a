"""Cases that are only checked have no speed: they are no side of a comparison, and no gap in one either."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from factory import H100, make_case, make_check, make_device, make_record, make_runs

from trnbench.compare.engine import compare_all
from trnbench.compare.gate import gate
from trnbench.status import NoBaseline, Status

if TYPE_CHECKING:
    from trnbench.compare.model import Axis
    from trnbench.records.schema import Record


def checked(run: str, **fields: object) -> Record:
    """A record of checks of operators, which measured nothing."""
    shape = {"phase": "operators", "workload": "products", "batch": 0, "sequence": 0, "micro_batch": 0}
    case = make_case(suite="conformance", **shape, **fields.pop("case", {}))
    return msgspec.structs.replace(make_record(run, case=case, **fields), measurement=None, conformance=[make_check()])


@pytest.mark.parametrize("axis", ["device", "precision", "mode", "stack"])
def test_checked_cases_take_no_part_in_comparisons(axis: Axis) -> None:
    """Whatever the axis: the comparisons, and the list of what is not compared, are those of the other records."""
    measured = [*make_runs([1000, 1010, 990], "c"), *make_runs([2000, 2020, 1980], "h", device=make_device(**H100))]
    alone = [
        checked("a"),
        checked("b", device=make_device(**H100)),
        checked("c", case={"precision": "fp32"}),
        checked("d", case={"mode": "eager"}, status=Status.NONCONFORMANT, reason="a check failed"),
    ]
    found, without = compare_all([*measured, *alone], axis), compare_all(measured, axis)
    assert [one.id for one in found.comparisons] == [one.id for one in without.comparisons]
    assert found.not_compared == without.not_compared
    assert compare_all(alone, axis).not_compared == []


def test_checked_cases_are_no_business_of_the_gate() -> None:
    """A baseline with checked cases gates the others as before; one with nothing else is no baseline."""
    measured = make_runs([1000, 1010, 990], "b")
    now = make_runs([1000, 1005, 995], "n")
    report = gate([*measured, checked("b")], [*now, checked("n", status=Status.NONCONFORMANT, reason="a check failed")])
    assert [entry.outcome for entry in report.entries] == ["ok"]
    with pytest.raises(NoBaseline, match="no record of a measured case"):
        gate([checked("b")], now)
