"""The tables of dollars: dated prices of both sides and the ratio of costs, one purchase term at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.catalog.prices import staleness
from trnbench.report.cost_words import no_dollars
from trnbench.report.format import count, ratio, ratio_interval, usd
from trnbench.report.verdicts import cheaper_tag
from trnbench.report.views import Cell, Column, Table, TableRow

if TYPE_CHECKING:
    from datetime import date

    from trnbench.compare.model import Comparison, Side, SideCost


def prices_table(comparison: Comparison) -> Table:
    """Every dated price and what a unit of work costs at it, or why there is none."""
    return Table(
        id="prices-table",
        caption="Prices, by purchase term",
        columns=[
            Column("Side", "name", "and purchase term"),
            Column("Price", "n", "an instance-hour"),
            Column("Instance", "nowrap", "and region"),
            Column("As of", "nowrap"),
            Column("Cost, whole instance", "n"),
            Column("Cost, pro rata", "n"),
            Column("Source or reason", "reason"),
        ],
        rows=[
            _price_row(scenario.name, side, cost)
            for scenario in comparison.costs
            for side, cost in ((comparison.a, scenario.a), (comparison.b, scenario.b))
        ],
    )


def _price_row(name: str, side: Side, cost: SideCost) -> TableRow:
    price = cost.price
    basis = " ".join(part for part in (cost.reason, cost.warning) if part)
    return TableRow(
        [
            Cell(side.label, note=name),
            Cell(usd(price.usd_per_hour) if price else "n/a", note=_instances(cost)),
            Cell(price.instance_type, note=price.region) if price else Cell("n/a"),
            Cell(price.as_of) if price else Cell("n/a"),
            Cell(usd(cost.billed_usd), note=cost.unit if cost.billed_usd is not None else ""),
            Cell(usd(cost.pro_rata_usd), note=cost.unit if cost.pro_rata_usd is not None else ""),
            Cell(price.source if price else basis or "no price", note=" ".join([price.note, basis]) if price else ""),
        ]
    )


def cost_ratios_table(comparison: Comparison) -> Table:
    """The cost ratio of each purchase term; terms are never blended."""
    return Table(
        id="cost-ratios-table",
        caption=f"Cost of a unit of work, {comparison.a.label} over {comparison.b.label}",
        columns=[
            Column("Purchase term", "name"),
            Column("Cost ratio", "n", "with interval"),
            Column("Cheaper", "reason"),
        ],
        rows=[
            TableRow(
                [
                    Cell(scenario.name, note=scenario.note),
                    Cell(
                        ratio(scenario.cost_ratio.value),
                        "#prices-table",
                        ratio_interval(scenario.cost_ratio.low, scenario.cost_ratio.high),
                    )
                    if scenario.cost_ratio
                    else Cell("n/a"),
                    Cell(
                        note="" if scenario.cost_ratio else no_dollars(comparison, scenario).full,
                        tag=cheaper_tag(comparison, scenario),
                    ),
                ]
            )
            for scenario in comparison.costs
        ],
    )


def stale_prices(comparison: Comparison, today: date | None) -> list[str]:
    """One warning for each price that is older than the limit on `today`; none without a day."""
    if today is None:
        return []
    prices = [cost.price for scenario in comparison.costs for cost in (scenario.a, scenario.b) if cost.price]
    return list(dict.fromkeys(warning for price in prices if (warning := staleness(price, today))))


def _instances(cost: SideCost) -> str:
    return "" if cost.instances is None else count(cost.instances, "instance") + " billed"
