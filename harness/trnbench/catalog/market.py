"""Market rates: what others charge or model per accelerator-hour. For reading beside our prices, never for billing.

Other clouds, market indices and cost models do not sell an EC2 instance in a region, so none of these rows can enter
a comparison; `PriceTable` does not see them.
"""

from __future__ import annotations

import functools
from datetime import date
from typing import Literal

import msgspec

from trnbench.catalog.chips import Confidence
from trnbench.catalog.tables import read_package_table


class MarketRate(msgspec.Struct, frozen=True, kw_only=True):
    """One published rate: what it prices, who offers it and on which basis."""

    subject: str
    offered_by: str
    basis: str
    value: float
    unit: Literal["USD per accelerator-hour", "USD per instance-hour", "USD per GB-month"]
    as_of: date
    source: str
    confidence: Confidence
    note: str = ""


@functools.cache
def market_rates() -> tuple[MarketRate, ...]:
    """All market rates, in file order."""
    return tuple(read_package_table("market_rates.csv", MarketRate, ["subject", "offered_by", "basis", "as_of"]))
