"""Comparisons for machines: the numbers with their units, records by id instead of whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from trnbench.compare.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trnbench.compare.model import Comparison, RunValue, Side
    from trnbench.records.schema import Record


def comparison_view(comparison: Comparison) -> dict[str, Any]:
    """One comparison as plain values. Durations are in seconds, always; every value names its unit."""
    metric = comparison.metric
    return {
        "id": comparison.id,
        "title": comparison.title,
        "case": comparison.a.case,
        "metric": None if metric is None else {"name": metric.name, "unit": metric.unit},
        "a": _side(comparison.a, None if metric is None else metric.unit),
        "b": _side(comparison.b, None if metric is None else metric.unit),
        "throughput_ratio": comparison.throughput_ratio,
        "break_even_price_ratio": comparison.break_even_price_ratio,
        "verdict": comparison.verdict,
        "explanation": comparison.explanation,
        "notes": comparison.notes,
        "costs": comparison.costs,
    }


def left_out_view(left_out: Iterable[tuple[Record, str]]) -> list[dict[str, str]]:
    """Records that take no part, by id, with the reason."""
    return [
        {"record_id": record.record_id, "run_id": record.run_id, "case": record.case.id, "reason": reason}
        for record, reason in left_out
    ]


def _side(side: Side, unit: str | None) -> dict[str, Any]:
    return {
        "label": side.label,
        "value": side.value,
        "unit": unit,
        "run_to_run_spread": side.run_to_run_spread,
        "chips_used": side.chips_used,
        "runs": [_run(run, unit) for run in side.runs],
        "left_out": left_out_view(side.left_out),
    }


def _run(run: RunValue, unit: str | None) -> dict[str, Any]:
    measured = run.record.measurement
    rounds = [] if measured is None else [timed.seconds for timed in measured.rounds]
    return {
        "record_id": run.record.record_id,
        "run_id": run.record.run_id,
        "started_at": run.record.started_at,
        "attempts": run.attempts,
        "value": run.value,
        "unit": unit,
        "round_seconds": {"values": rounds, "unit": "s"},
        "median": run.median,
        "low": run.low,
        "high": run.high,
        "metrics": {name: {"value": value, "unit": METRICS[name].unit} for name, value in run.metrics.items()},
        "mfu": None if run.mfu is None else msgspec.to_builtins(run.mfu),
        "mfu_reason": run.mfu_reason,
        "drift": run.drift,
    }
