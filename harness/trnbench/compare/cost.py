"""Dollars: per million items, under one dated purchase term at a time, whole instances first.

A rate is of the whole system, so the price must be of the whole system too: instances times their hourly price, plus
what the deployment needs besides (a head node). Mixing a per-chip price with a system's rate is the error of a factor
of 8 or 16 that `usd_per_million` leaves no room for: both arguments are totals.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trnbench.catalog.instances import Instance, instances
from trnbench.catalog.prices import TERMS, PricePoint, PriceTable, check_price, staleness
from trnbench.compare.model import Comparison, CostScenario, Metric, Ratio, Side, SideCost
from trnbench.records.ids import instant
from trnbench.status import UsageError

if TYPE_CHECKING:
    from datetime import date

ALWAYS_SHOWN = "on-demand"
"""The scenario that is shown even where a side has no price, so that the gap is seen."""

_ITEM_OF_UNIT = {"token/s": "USD/Mtoken", "sequence/s": "USD/Msequence", "prompt/s": "USD/Mprompt"}


def usd_per_million(usd_per_hour: float, items_per_second: float) -> float:
    """US dollars per million items: dollars per hour of the whole system over its items per hour, times 1e6."""
    if not usd_per_hour > 0:
        raise UsageError(f"a system's price is {usd_per_hour} USD/h; it must be above 0")
    if not items_per_second > 0:
        raise UsageError(f"a system's rate is {items_per_second} items/s; it must be above 0")
    return usd_per_hour / (items_per_second * 3600) * 1e6


def billed_usd_per_hour(price: PricePoint, whole_instances: int, head_node_usd_per_hour: float = 0.0) -> float:
    """What the provider bills each hour: whole instances, and the head node where the deployment has one."""
    return price.usd_per_hour * whole_instances + head_node_usd_per_hour


def cost_scenarios(
    comparison: Comparison, prices: PriceTable | None, head_node_usd_per_hour: float = 0.0
) -> list[CostScenario]:
    """One scenario per purchase term for which a side has a price, and on-demand always; both sides in the same term.

    The price stored with a side's newest run that has one is used. Only where no run stored a price of that term is
    the table asked, for the day of the newest run, and the scenario says so. Nothing for a rate that has no dollars.
    """
    return _scenarios(comparison, prices, head_node_usd_per_hour, None)


def reprice(
    comparison: Comparison, prices: PriceTable, on: date, head_node_usd_per_hour: float = 0.0
) -> list[CostScenario]:
    """The same comparison at the prices of another day, ignoring what was stored: a view of its own, labelled so.

    Its scenarios are named `repriced 2026-11-30: on-demand`; `cost_scenarios` and stored records stay as they are.
    """
    return _scenarios(comparison, prices, head_node_usd_per_hour, on)


def stale_prices(comparison: Comparison) -> list[str]:
    """One sentence for each price of the comparison that was older than the limit on the day its side last ran."""
    found: dict[str, None] = {}
    for scenario in comparison.costs:
        for side, cost in ((comparison.a, scenario.a), (comparison.b, scenario.b)):
            if cost.price is not None:
                found[staleness(cost.price, instant(side.runs[-1].record.started_at).date())] = None
    return [sentence for sentence in found if sentence]


def _scenarios(
    comparison: Comparison, prices: PriceTable | None, head_node: float, repriced_on: date | None
) -> list[CostScenario]:
    metric = comparison.metric
    if metric is None or metric.unit not in _ITEM_OF_UNIT:
        return []
    scenarios = []
    for term in TERMS:
        a, b = (
            _side_cost(side, term, prices, metric, head_node=head_node, repriced_on=repriced_on)
            for side in (comparison.a, comparison.b)
        )
        if term == ALWAYS_SHOWN or a.price is not None or b.price is not None:
            name = term if repriced_on is None else f"repriced {repriced_on}: {term}"
            scenarios.append(_scenario(name, a, b, comparison.throughput_ratio, head_node))
    return scenarios


def _side_cost(
    side: Side,
    term: str,
    prices: PriceTable | None,
    metric: Metric,
    *,
    head_node: float,
    repriced_on: date | None = None,
) -> SideCost:
    unit = _ITEM_OF_UNIT[metric.unit]
    if side.value is None or side.chips_used is None or not side.runs:
        return SideCost(price=None, billed_usd=None, pro_rata_usd=None, unit=unit, reason="no run carries a speed")
    try:
        price, warning = _price(side, term, prices, repriced_on)
    except UsageError as error:
        return SideCost(price=None, billed_usd=None, pro_rata_usd=None, unit=unit, reason=str(error))
    kind = instances().get(price.instance_type)
    count = _whole_instances(kind, side)
    share, why_no_share = _shared_usd_per_hour(kind, side, price)
    return SideCost(
        price=price,
        billed_usd=usd_per_million(billed_usd_per_hour(price, count, head_node), side.value),
        pro_rata_usd=None if share is None else usd_per_million(share + head_node, side.value),
        unit=unit,
        reason=why_no_share,
        warning=warning,
        instances=count,
    )


def _price(side: Side, term: str, prices: PriceTable | None, repriced_on: date | None) -> tuple[PricePoint, str]:
    """The price of one side in one term and what to warn of. Raises `UsageError` with why there is none."""
    newest = side.runs[-1].record
    ran_on = instant(newest.started_at).date()
    if repriced_on is None:
        stored = [run.record.price for run in side.runs if run.record.price is not None]
        matching = [price for price in stored if price.term == term]
        if matching:
            price = matching[-1]
            check_price(price, f"record {newest.record_id}")
            warnings = [staleness(price, ran_on)]
            if any(other != price for other in matching):
                warnings.append("its runs stored different prices; that of the newest run is used")
            return price, "; ".join(filter(None, warnings))
    if newest.device.instance_type is None:
        raise UsageError("no price: the record names no instance type")
    if newest.device.region is None:
        raise UsageError(f"no price for {newest.device.instance_type}: the record names no region")
    if prices is None:
        raise UsageError(f"no {term} price is stored with the record, and no price table was given")
    day = ran_on if repriced_on is None else repriced_on
    price = prices.find(newest.device.instance_type, newest.device.region, term, day)
    check_price(price, prices.where)
    notes = [staleness(price, day)]
    if repriced_on is None:
        notes.insert(0, f"not stored with the record: taken from {prices.where} for {day}")
    return price, "; ".join(filter(None, notes))


def _whole_instances(kind: Instance | None, side: Side) -> int:
    """Instances that hold the chips used; 1 where the instance is unknown, has none, or ran on its CPU."""
    if kind is None or kind.accelerators == 0 or side.chips_used is None or _ran_on_cpu(side):
        return 1
    return math.ceil(side.chips_used / kind.accelerators)


def _shared_usd_per_hour(kind: Instance | None, side: Side, price: PricePoint) -> tuple[float | None, str]:
    """The instance's price times the share of its chips that was used, or None with the reason."""
    if kind is None:
        return None, f"no pro-rata cost: the catalog does not hold {price.instance_type}"
    if kind.accelerators == 0 or _ran_on_cpu(side) or side.chips_used is None:
        return None, "no pro-rata cost: the CPU is used whole"
    return price.usd_per_hour * side.chips_used / kind.accelerators, ""


def _ran_on_cpu(side: Side) -> bool:
    return side.runs[-1].record.device.chip == "cpu"


def _scenario(name: str, a: SideCost, b: SideCost, throughput: Ratio | None, head_node: float) -> CostScenario:
    notes = []
    if a.price is not None and b.price is not None and a.price.region != b.price.region:
        notes.append(f"prices are from different regions: {a.price.region} vs {b.price.region}")
    if head_node:
        notes.append(f"includes a head node at {head_node:g} USD/h on each side")
    return CostScenario(name=name, a=a, b=b, cost_ratio=_cost_ratio(a, b, throughput, head_node), note="; ".join(notes))


def _cost_ratio(a: SideCost, b: SideCost, throughput: Ratio | None, head_node: float) -> Ratio | None:
    """Cost of `a` over `b`: the ratio of hourly prices over that of rates; a price only shifts the interval of ln."""
    if throughput is None or a.price is None or b.price is None or a.instances is None or b.instances is None:
        return None
    hourly = billed_usd_per_hour(a.price, a.instances, head_node) / billed_usd_per_hour(b.price, b.instances, head_node)
    return Ratio(
        value=hourly / throughput.value,
        low=hourly / throughput.high,
        high=hourly / throughput.low,
        confidence=throughput.confidence,
        method=f"ratio of hourly prices over the throughput ratio ({throughput.method})",
    )
