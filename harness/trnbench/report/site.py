"""`trnbench report`: from a folder of records to a static site that needs no server, no script and no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trnbench.catalog.prices import PriceTable
from trnbench.compare.engine import CompareResult, compare_all
from trnbench.records.store import Store
from trnbench.report.answers import AXES
from trnbench.report.beside import gather_deviations, gather_files, gather_mutation, gather_passports, refuse
from trnbench.report.format import instant
from trnbench.report.material import Entry, Material, relative
from trnbench.report.ordering import record_key
from trnbench.report.pages import render
from trnbench.report.publish import publish
from trnbench.status import UsageError

if TYPE_CHECKING:
    from datetime import date

    from trnbench.records.deviations import Deviation
    from trnbench.records.schema import Record

TITLE = "Trainium and GPUs, compared"


class SiteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a build did. `records_in` were read; those not shown are simulated ones that were not asked for.

    `rejected` counts files that could not be read as records, passports or a mutation report, and files beside records
    that are gone or changed; the site lists each with its reason.
    """

    records_in: int
    records_shown: int
    comparisons: int
    pages: int
    rejected: int
    out: Path


def build_site(
    results: Path,
    out: Path,
    *,
    allow_simulated: bool = False,
    today: date | None = None,
    title: str = TITLE,
    prices: PriceTable | None = None,
    deviations: Path | None = None,
) -> SiteSummary:
    """Build the site of the records below `results` into `out` and return what was shown.

    The same records and prices (by default the package's) give the same bytes. `today` ages the prices; by default it
    is the day of the newest record, so that a rebuild changes nothing. Simulated records and passports are shown only
    with `allow_simulated`, and every page then says so. `deviations` is the folder of lists of known deviations, which
    explain what records name by id. Raises `UsageError` where `results` or `deviations` is no folder, a list cannot be
    read, or `out` is not ours to replace, and leaves a former site untouched whenever the build fails.
    """
    if not results.is_dir():
        raise UsageError(f"{results} is not a folder of results")
    if _overlap(results.resolve(), out.resolve()):
        raise UsageError(f"the site cannot lie in {out}: it and the results folder {results} must be apart")
    table = PriceTable.load() if prices is None else prices
    listed = gather_deviations(deviations)
    material = gather(results, table, allow_simulated=allow_simulated, today=today, title=title, deviations=listed)
    files = render(material)
    publish(out, files.sorted(), [entry.record.record_id for entry in material.entries])
    return SiteSummary(
        records_in=material.records_in,
        records_shown=len(material.entries),
        comparisons=len(material.comparisons),
        pages=files.pages,
        rejected=len(material.refused),
        out=out,
    )


def gather(
    results: Path,
    prices: PriceTable,
    *,
    allow_simulated: bool,
    today: date | None,
    title: str,
    deviations: dict[str, list[Deviation]],
) -> Material:
    """Load the store and what lies beside it, leave out what is simulated unless allowed, compare along every axis."""
    loaded = Store(results).load()
    entries, lost = [], []
    for one in loaded.records:
        if allow_simulated or not one.record.simulated:
            beside, missing = gather_files(one, results)
            path = relative(one.path, results)
            entries.append(Entry(record=one.record, path=path, data=one.path.read_bytes(), files=beside))
            lost += missing
    entries.sort(key=lambda entry: record_key(entry.record))
    compared = _compare([entry.record for entry in entries], prices, allow_simulated)
    passports = gather_passports(results, allow_simulated=allow_simulated)
    mutation, broken = gather_mutation(results)
    rejected = [refuse(one.path, one.reason, results) for one in loaded.rejected]
    refused = [*rejected, *lost, *passports.refused, *broken]
    alone: dict[str, list[str]] = {}
    for result in compared:
        for record, reason in result.not_compared:
            alone.setdefault(record.record_id, []).append(f"{result.axis}: {reason}")
    return Material(
        title=title,
        entries=entries,
        comparisons=[one for result in compared for one in result.comparisons],
        alone=alone,
        refused=sorted(refused, key=lambda one: one.path),
        records_in=len(loaded.records),
        simulated_left_out=len(loaded.records) - len(entries),
        today=today or _newest_day([entry.record for entry in entries]),
        deviations=deviations,
        passports=passports.shown,
        passports_left_out=passports.left_out,
        mutation=mutation,
    )


def _compare(records: list[Record], prices: PriceTable, allow_simulated: bool) -> list[CompareResult]:
    return [compare_all(records, axis, prices, allow_simulated) for axis in AXES]


def _newest_day(records: list[Record]) -> date | None:
    finished = [moment for record in records if (moment := instant(record.finished_at))]
    return max(finished).date() if finished else None


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
