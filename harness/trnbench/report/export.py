"""A comparison as data: CSV with one line a run, JSON with everything. Machine output keeps raw SI values and units."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import msgspec

from trnbench import wording
from trnbench.report.names import printable
from trnbench.report.verdicts import agreement

if TYPE_CHECKING:
    from trnbench.compare.model import Comparison, RunValue, Side
    from trnbench.records.schema import Record

_COLUMNS = (
    "comparison",
    "axis",
    "side",
    "label",
    "case",
    "run_id",
    "record_id",
    "started_at",
    "metric",
    "unit",
    "value",
    "low",
    "high",
    "attempts",
    "counts",
    "reason",
    "simulated",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def comparison_csv(comparison: Comparison) -> bytes:
    """One line a record, of those that count and of those left out; the first line is a comment with the disclaimer."""
    text = io.StringIO()
    text.write(f"# {wording.DISCLAIMER}\n")
    simulated = [record for side in (comparison.a, comparison.b) for record in _records(side) if record.simulated]
    if simulated:
        text.write(f"# {wording.SIMULATED_NOTICE}\n")
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for key, side in (("a", comparison.a), ("b", comparison.b)):
        for run in side.runs:
            writer.writerow(_line(comparison, key, side, run.record, run=run))
        for record, reason in side.left_out:
            writer.writerow(_line(comparison, key, side, record, reason=reason))
    return text.getvalue().encode("utf-8")


def _line(
    comparison: Comparison, key: str, side: Side, record: Record, *, run: RunValue | None = None, reason: str = ""
) -> dict[str, object]:
    metric = comparison.metric
    values: dict[str, object] = {
        "comparison": comparison.id,
        "axis": comparison.axis,
        "side": key,
        "label": side.label,
        "case": record.case.id,
        "run_id": record.run_id,
        "record_id": record.record_id,
        "started_at": record.started_at,
        "metric": metric.name if metric else "",
        "unit": metric.unit if metric else "",
        "value": run.value if run else "",
        "low": run.low if run and run.low is not None else "",
        "high": run.high if run and run.high is not None else "",
        "attempts": run.attempts if run else "",
        "counts": "yes" if run else "no",
        "reason": reason,
        "simulated": "yes" if record.simulated else "no",
    }
    return {name: inert(value) if isinstance(value, str) else value for name, value in values.items()}


def comparison_json(comparison: Comparison) -> bytes:
    """The comparison with each record given by its id; the records themselves lie in `records/`."""
    content = {
        "disclaimer": wording.DISCLAIMER,
        "comparison": _by_id(msgspec.to_builtins(comparison, enc_hook=str)),
        "same_numerics": msgspec.to_builtins(agreement(comparison)),
    }
    if any(record.simulated for side in (comparison.a, comparison.b) for record in _records(side)):
        content["simulated"] = wording.SIMULATED_NOTICE
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def _by_id(value: Any) -> Any:
    """Replace each record, a mapping with a record_id, by that id."""
    if isinstance(value, dict):
        if "record_id" in value:
            return value["record_id"]
        return {key: _by_id(inner) for key, inner in value.items()}
    return [_by_id(inner) for inner in value] if isinstance(value, list) else value


def _records(side: Side) -> list[Record]:
    return [run.record for run in side.runs] + [record for record, _ in side.left_out]


def inert(text: str) -> str:
    """Text that a spreadsheet would take for a formula gets a leading apostrophe."""
    shown = printable(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
