"""`trnbench report`: publish a folder of records as a static site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trnbench.cli.output import warn
from trnbench.cli.price_age import CiOption, stale_stored_prices, tell_stale_prices
from trnbench.status import NothingMeasured, UsageError
from trnbench.wording import SIMULATED_NOTICE

DEVIATIONS = Path("suites/conformance/deviations")
"""Where a checkout keeps its lists of known deviations."""


def report(
    *,
    results: Annotated[Path, typer.Argument(help="Folder of records.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the pages.")] = Path("reports/local"),
    allow_simulated: Annotated[
        bool, typer.Option("--allow-simulated/--no-allow-simulated", help="Show records of stand-in devices, marked.")
    ] = False,
    prices: Annotated[
        Path | None, typer.Option("--prices", help="A price CSV of your own, beside the package's.")
    ] = None,
    deviations: Annotated[
        Path | None,
        typer.Option(
            "--deviations", help=f"Folder of the lists of known deviations; by default {DEVIATIONS}, if there."
        ),
    ] = None,
    ci: CiOption = False,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the first page in the browser.")] = False,
) -> None:
    """Build the pages from a folder of records and say where they are."""
    if not results.is_dir():
        raise UsageError(f"{results} is no folder; give the folder that holds the records")
    from trnbench.catalog.prices import PriceTable
    from trnbench.records.store import Store
    from trnbench.report.site import build_site

    table = PriceTable.extended(prices)
    listed = deviations or (DEVIATIONS if DEVIATIONS.is_dir() else None)
    summary = build_site(results, out, allow_simulated=allow_simulated, prices=table, deviations=listed)
    index = summary.out / "index.html"
    print(f"{summary.records_shown} of {summary.records_in} records, {summary.comparisons} comparisons: {index}")
    if summary.rejected:
        files = "1 file" if summary.rejected == 1 else f"{summary.rejected} files"
        warn(f"{files} in {results} could not be read; the site lists each with its reason")
    if show:
        import webbrowser

        webbrowser.open(index.resolve().as_uri())
    if summary.records_shown == 0:
        if summary.records_in:
            raise NothingMeasured(f"no record in {results} can be shown: each was {SIMULATED_NOTICE}")
        raise NothingMeasured(f"{results} holds no record to show")
    stored = (each.record for each in Store(results).load().records)
    shown = (record for record in stored if allow_simulated or not record.simulated)
    raise typer.Exit(tell_stale_prices(stale_stored_prices(shown), ci=ci))
