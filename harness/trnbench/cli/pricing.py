"""`trnbench prices`: the dated prices behind every dollar, with their age."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trnbench.catalog.prices import STALE_AFTER_DAYS, PriceRow, PriceTable
from trnbench.cli.output import print_json, print_table, warn
from trnbench.status import ExitCode, NothingMeasured

if TYPE_CHECKING:
    from collections.abc import Iterable


class ShownPrice(msgspec.Struct, frozen=True, kw_only=True):
    """One price as `prices --json` prints it: USD per instance-hour, null with a note where the source has none."""

    instance_type: str
    region: str
    term: str
    usd_per_hour: float | None
    currency: str
    as_of: datetime.date
    age_days: int
    stale: bool
    source: str
    note: str


def prices(
    *,
    instance_type: Annotated[str | None, typer.Option("--instance-type", help="Only this instance type.")] = None,
    region: Annotated[str | None, typer.Option("--region", help="Only this region.")] = None,
    file: Annotated[str | None, typer.Option("--prices", help="A CSV of your own instead of the built-in one.")] = None,
    ci: Annotated[
        bool, typer.Option("--ci/--no-ci", help="Exit with 1 where a price is older than the limit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json/--no-json", help="Machine-readable output.")] = False,
) -> None:
    """Show the dated prices behind every dollar, and warn about those older than 90 days."""
    table = PriceTable.load(Path(file) if file is not None else None)
    today = datetime.datetime.now(datetime.UTC).date()
    shown = [
        _shown(row, today)
        for row in _in_force(table.rows)
        if instance_type in (None, row.instance_type) and region in (None, row.region)
    ]
    if not shown:
        wanted = " ".join(part for part in (instance_type, region and f"in {region}") if part)
        raise NothingMeasured(f"{table.where} holds no price for {wanted or 'anything'}")
    if as_json:
        print_json(shown)
    else:
        print_table(["instance type", "region", "term", "USD/h", "as of", "age", "source"], map(_cells, shown))
    stale = [price for price in shown if price.stale]
    if stale:
        oldest = max(price.age_days for price in stale)
        warn(
            f"{len(stale)} of {len(shown)} prices are older than {STALE_AFTER_DAYS} days, the oldest {oldest} days; "
            "check their sources before quoting dollars"
        )
        if ci:
            raise typer.Exit(ExitCode.FAILED)


def _in_force(rows: Iterable[PriceRow]) -> list[PriceRow]:
    """Of each type, region and term the newest price: older ones are history, and their age says nothing."""
    rows = [row for row in rows if row.handed_out]
    newest: dict[tuple[str, str, str], datetime.date] = {}
    for row in rows:
        key = (row.instance_type, row.region, row.term)
        newest[key] = max(row.as_of, newest.get(key, row.as_of))
    return [row for row in rows if row.as_of == newest[row.instance_type, row.region, row.term]]


def _shown(row: PriceRow, today: datetime.date) -> ShownPrice:
    age = (today - row.as_of).days
    return ShownPrice(
        instance_type=row.instance_type,
        region=row.region,
        term=row.term,
        usd_per_hour=row.usd_per_hour,
        currency=row.currency,
        as_of=row.as_of,
        age_days=age,
        stale=age > STALE_AFTER_DAYS,
        source=row.source,
        note=row.note,
    )


def _cells(price: ShownPrice) -> list[str]:
    amount = "n/a" if price.usd_per_hour is None else f"{price.usd_per_hour:.4f}"
    age = f"{price.age_days} days{' (stale)' if price.stale else ''}"
    source = f"{price.source}; {price.note}" if price.note else price.source
    return [price.instance_type, price.region, price.term, amount, price.as_of.isoformat(), age, source]
