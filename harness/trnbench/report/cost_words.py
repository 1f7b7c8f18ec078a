"""Dollars in words: why there are none, and when a price cancels because both sides ran on the same machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.compare.keys import device_key
from trnbench.report.format import ratio, ratio_interval
from trnbench.report.verdicts import DECIDED

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from trnbench.compare.model import Comparison, CostScenario, SideCost

NOT_RANKED = "not ranked without a verdict on speed"


class NoDollars(msgspec.Struct, frozen=True):
    """Why nothing may be said about cost: in a few words, and with the detail that the comparison gives, if any."""

    why: str
    detail: str = ""

    @property
    def full(self) -> str:
        """Both together."""
        return f"{self.why}: {self.detail}" if self.detail else self.why


def no_dollars(comparison: Comparison, scenario: CostScenario) -> NoDollars:
    """Why nothing may be said about cost in this scenario, which side lacks what included."""
    silent = [side.label for side in (comparison.a, comparison.b) if not side.runs]
    if silent:
        return NoDollars(f"no run of {' and '.join(silent)} carries a speed")
    unpriced = [
        (side.label, _reason(cost))
        for side, cost in ((comparison.a, scenario.a), (comparison.b, scenario.b))
        if cost.price is None
    ]
    if len(unpriced) == 2:
        same = unpriced[0][1] == unpriced[1][1]
        detail = unpriced[0][1] if same else "; ".join(f"{label}: {reason}" for label, reason in unpriced)
        return NoDollars("no price is known for either side", detail)
    if unpriced:
        return NoDollars(f"no price is known for {unpriced[0][0]}", unpriced[0][1])
    return NoDollars(NOT_RANKED if scenario.cost_ratio is not None else "there is no throughput ratio")


def without_prices(comparison: Comparison) -> str:
    """Why a comparison has no dated price on either side; empty where it has one, and its tables say the rest."""
    if not comparison.costs:
        return "no price scenario applies to these sides"
    if any(cost.price for scenario in comparison.costs for cost in (scenario.a, scenario.b)):
        return ""
    return "; ".join(dict.fromkeys(no_dollars(comparison, scenario).full for scenario in comparison.costs))


def price_cancels(comparisons: Sequence[Comparison]) -> str:
    """Says that the price cancels where every comparison has both its sides on the same machine; else empty.

    Derived from the records alone: same device, same CPU, same instance type and region (or none known on any run),
    and as many chips in use, so that whatever the machine costs, both sides pay it.
    """
    if not comparisons or not all(_same_machine(one) for one in comparisons):
        return ""
    told = (
        "Both sides ran on the same machine, so its price cancels: whatever an hour costs, "
        "the cost ratio is 1 over the throughput ratio"
    )
    found = [one.throughput_ratio for one in comparisons if one.throughput_ratio and one.verdict in DECIDED]
    if not found:
        return f"{told}; {NOT_RANKED}."
    if len(comparisons) == 1:
        only = found[0]
        return f"{told}, {ratio(1 / only.value)} ({ratio_interval(1 / only.high, 1 / only.low)})."
    return f"{told}, {ratio_interval(1 / max(one.value for one in found), 1 / min(one.value for one in found))}."


def _same_machine(comparison: Comparison) -> bool:
    runs = [*comparison.a.runs, *comparison.b.runs]
    machines: set[Hashable] = {(device_key(run.record), run.record.device.region) for run in runs}
    both = bool(comparison.a.runs and comparison.b.runs)
    return both and len(machines) == 1 and comparison.a.chips_used == comparison.b.chips_used


def _reason(cost: SideCost) -> str:
    return (cost.reason or "no reason recorded").removeprefix("no price: ")
