"""Comparisons for people: a table of verdicts, a table of costs, and what was left out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trnbench.cli.output import print_table

if TYPE_CHECKING:
    from trnbench.compare.engine import CompareResult
    from trnbench.compare.model import Comparison, Ratio, Side, SideCost

MISSING = "n/a"


def print_comparisons(found: CompareResult) -> None:
    """Print verdicts, costs, notes and the records that take no part."""
    if found.comparisons:
        headings = ["comparison (a against b)", "a", "b", "ratio a/b", "break-even price", "verdict"]
        print_table(headings, map(_row, found.comparisons))
        print_table(
            ["cost of a unit of work", "scenario", "a", "b", "cost a/b"],
            (row for comparison in found.comparisons for row in _cost_rows(comparison)),
        )
    for comparison in found.comparisons:
        print(f"{comparison.title}: {comparison.explanation}")
        for note in comparison.notes:
            print(f"  - {note}")
        for side in (comparison.a, comparison.b):
            for record, reason in side.left_out:
                print(f"  - left out of {side.label}: run {record.run_id}: {reason}")
    # One line for what is the same in every run: a precision that a device lacks stays missing each time.
    alike = Counter(
        (record.case.id, record.device.backend, record.device.chip, reason) for record, reason in found.not_compared
    )
    for (case, backend, chip, reason), count in alike.items():
        times = f" ({count} records)" if count > 1 else ""
        print(f"not compared: {case} through {backend} on {chip}{times}: {reason}")


def _row(comparison: Comparison) -> list[str]:
    unit = "" if comparison.metric is None else f" {comparison.metric.unit}"
    break_even = comparison.break_even_price_ratio
    return [
        comparison.title,
        _value(comparison.a, unit),
        _value(comparison.b, unit),
        ratio_text(comparison.throughput_ratio),
        MISSING if break_even is None else f"a may cost {break_even:.3g} times b",
        comparison.verdict,
    ]


def _value(side: Side, unit: str) -> str:
    runs = f"{len(side.runs)} run{'' if len(side.runs) == 1 else 's'}"
    return f"{MISSING} ({runs})" if side.value is None else f"{side.value:,.4g}{unit} ({runs})"


def ratio_text(ratio: Ratio | None) -> str:
    """A ratio with its interval and confidence: `1.52 [1.48, 1.57] 95%`."""
    if ratio is None:
        return MISSING
    return f"{ratio.value:.3g} [{ratio.low:.3g}, {ratio.high:.3g}] {ratio.confidence:.0%}"


def _cost_rows(comparison: Comparison) -> list[list[str]]:
    return [
        [
            comparison.title,
            f"{scenario.name}; {scenario.note}" if scenario.note else scenario.name,
            _dollars(scenario.a),
            _dollars(scenario.b),
            ratio_text(scenario.cost_ratio),
        ]
        for scenario in comparison.costs
    ]


def _dollars(cost: SideCost) -> str:
    """Whole instances first, pro rata second, with the date of the price and any warning about it."""
    if cost.billed_usd is None or cost.price is None:
        return f"{MISSING}: {cost.reason}"
    pro_rata = MISSING if cost.pro_rata_usd is None else f"{cost.pro_rata_usd:.4g}"
    warning = f"; {cost.warning}" if cost.warning else ""
    return f"{cost.billed_usd:.4g} {cost.unit} (pro rata {pro_rata}; price as of {cost.price.as_of}{warning})"
