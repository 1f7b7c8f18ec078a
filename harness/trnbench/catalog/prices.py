"""Prices: USD per instance-hour with region, purchase term, date and source; looked up exactly, never guessed.

`PricePoint` is stored with every record. `PriceTable` reads the package's dated prices or a user's file of the same
columns; it answers with exactly one price, or with an error that says what is there instead.
"""

from __future__ import annotations

import math
from datetime import date
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from trnbench.catalog.tables import read_package_table, read_table
from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Term = Literal[
    "on-demand",
    "reserved-1y",
    "reserved-3y",
    "savings-plan-1y",
    "savings-plan-3y",
    "capacity-block",
    "spot-lowest-zone",
    "spot-highest-zone",
    "user",
]
"""Purchase terms. Spot prices name which availability zone of the region they are from; "user" is any other deal."""

TERMS: tuple[str, ...] = get_args(Term)

STORED_TERM: Term = "on-demand"
"""The term whose price a record keeps: the one that anyone can buy on the day."""

STALE_AFTER_DAYS = 90
"""A price older than this when it is used carries a warning, and is an error in CI mode."""


class PricePoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD per instance-hour, and everything needed to check it."""

    instance_type: str
    region: str
    term: str
    usd_per_hour: float
    currency: str
    as_of: str
    source: str
    note: str


class PriceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a price file. `usd_per_hour` is None where the source lists the type without a price.

    A price list holds several prices for one type and region: other operating systems, dedicated tenancy, and
    reservations that are billed at 0 while unused. Only Linux, shared, used capacity is ever handed out.
    """

    instance_type: str
    region: str
    term: Term
    usd_per_hour: float | None
    currency: str
    as_of: date
    source: str
    operating_system: str = "Linux"
    tenancy: str = "shared"
    capacity_status: str = "used"
    confidence: Literal["A", "B", "C"] | None = None
    note: str = ""

    @property
    def handed_out(self) -> bool:
        """Whether this is a price for plain Linux capacity in use."""
        return (self.operating_system.lower(), self.tenancy.lower(), self.capacity_status.lower()) == (
            "linux",
            "shared",
            "used",
        )


class NoPrice(UsageError):
    """The table holds no price for what was asked; the message says so and what it holds instead."""


class SeveralPrices(UsageError):
    """The table holds more than one price for what was asked; the message lists them."""


class PriceTable:
    """Dated prices. `where` names the file they came from, for messages."""

    def __init__(self, rows: Iterable[PriceRow], where: str) -> None:
        self.rows = tuple(rows)
        self.where = where

    @classmethod
    def load(cls, path: Path | None = None) -> PriceTable:
        """The package's prices, or those of a user's file with the same columns.

        Raises `UsageError` naming file, line and column: besides the faults of any table, a currency other than
        USD, a negative price, and a price of 0 for capacity in use.
        """
        key = ["instance_type", "region", "term", "as_of", "operating_system", "tenancy", "capacity_status", "source"]
        if path is None:
            rows, where = read_package_table("prices.csv", PriceRow, key), "prices.csv"
        else:
            rows, where = read_table(path, PriceRow, key), str(path)
        for row in rows:
            _check_row(row, where)
        return cls(rows, where)

    @classmethod
    def extended(cls, path: Path | None) -> PriceTable:
        """The package's prices, and those of a user's file beside them where one is given.

        A deal of one's own must be able to stand beside the list price of the other side. Raises as `load`.
        """
        own = cls.load()
        if path is None:
            return own
        added = cls.load(path)
        return cls((*own.rows, *added.rows), f"{own.where} and {added.where}")

    def find(self, instance_type: str, region: str, term: str, on: date) -> PricePoint:
        """The one price in force on a day: of the newest date not after it, in this very region and term.

        Raises `NoPrice` where there is none (no other region or term is ever substituted), `SeveralPrices` where
        the newest date has more than one.
        """
        asked = f"{instance_type} in {region}, {term}"
        sold = [row for row in self.rows if row.instance_type == instance_type and row.handed_out]
        rows = [row for row in sold if row.region == region and row.term == term]
        if not rows:
            raise NoPrice(f"no price for {asked}: {self._instead(instance_type, region, term, sold)}")
        in_force = [row for row in rows if row.as_of <= on]
        if not in_force:
            first = min(row.as_of for row in rows)
            raise NoPrice(f"no price for {asked} on {on}: the earliest in {self.where} is of {first}")
        newest = max(row.as_of for row in in_force)
        matches = [row for row in in_force if row.as_of == newest]
        if len(matches) > 1:
            listed = "; ".join(f"{row.usd_per_hour} USD/h from {row.source}" for row in matches)
            raise SeveralPrices(f"{len(matches)} prices for {asked} on {newest} in {self.where}: {listed}")
        return _point(matches[0], asked)

    def terms(self, instance_type: str, region: str) -> tuple[str, ...]:
        """The purchase terms that hold a price for this type and region, in the order of `TERMS`."""
        held = {
            row.term
            for row in self.rows
            if (row.instance_type, row.region) == (instance_type, region)
            and row.handed_out
            and row.usd_per_hour is not None
        }
        return tuple(term for term in TERMS if term in held)

    def _instead(self, instance_type: str, region: str, term: str, sold: list[PriceRow]) -> str:
        if not sold:
            return f"{self.where} does not hold {instance_type}"
        regions = sorted({row.region for row in sold if row.term == term})
        if not regions:
            return f"{self.where} holds {instance_type} only as {', '.join(sorted({row.term for row in sold}))}"
        return f"no price for region {region}; {self.where} holds {', '.join(regions)}"


def price_in_force(instance_type: str | None, region: str | None, on: date) -> tuple[PricePoint | None, str]:
    """The on-demand price of an instance on a day, as a record stores it, or None and the reason there is none."""
    if instance_type is None or region is None:
        return None, "instance type or region not known; give --instance-type and --region"
    try:
        return PriceTable.load().find(instance_type, region, STORED_TERM, on), ""
    except UsageError as error:
        return None, str(error)


def staleness(price: PricePoint, on: date, limit_days: int = STALE_AFTER_DAYS, *, ci: bool = False) -> str:
    """A warning with the price's age if it was older than the limit on the day it was used; empty otherwise.

    In CI mode the same sentence is raised as `UsageError`. A date that does not parse counts as stale.
    """
    try:
        age = (on - date.fromisoformat(price.as_of)).days
    except ValueError:
        message = f"price of {price.instance_type} in {price.region} has no usable date ({price.as_of!r})"
    else:
        if age <= limit_days:
            return ""
        message = (
            f"price of {price.instance_type} in {price.region}, {price.term}, is of {price.as_of}: "
            f"{age} days old on {on}, and the limit is {limit_days}"
        )
    if ci:
        raise UsageError(message)
    return message


def check_price(price: PricePoint, where: str) -> None:
    """Raise `UsageError` for a price that no arithmetic may use: another currency, 0, negative or not finite."""
    if price.currency != "USD":
        raise UsageError(f"{where}: price of {price.instance_type} is in {price.currency!r}; only USD is computed with")
    if not (math.isfinite(price.usd_per_hour) and price.usd_per_hour > 0):
        raise UsageError(f"{where}: price of {price.instance_type} is {price.usd_per_hour} USD/h; it must be above 0")


def _check_row(row: PriceRow, where: str) -> None:
    place = f"{where}: {row.instance_type} in {row.region}, {row.term}, as of {row.as_of}"
    if row.currency != "USD":
        raise UsageError(f"{place}: column currency is {row.currency!r}; only USD is computed with")
    if row.usd_per_hour is None:
        if not row.note:
            raise UsageError(f"{place}: column usd_per_hour is empty; column note must then say why")
        return
    if row.usd_per_hour < 0 or (row.usd_per_hour == 0 and row.handed_out):
        raise UsageError(f"{place}: column usd_per_hour is {row.usd_per_hour}; a compute instance is never free")


def _point(row: PriceRow, asked: str) -> PricePoint:
    if row.usd_per_hour is None:
        raise NoPrice(f"no price for {asked}: {row.note}, says {row.source} as of {row.as_of}")
    return PricePoint(
        instance_type=row.instance_type,
        region=row.region,
        term=row.term,
        usd_per_hour=row.usd_per_hour,
        currency=row.currency,
        as_of=row.as_of.isoformat(),
        source=row.source,
        note=row.note,
    )
