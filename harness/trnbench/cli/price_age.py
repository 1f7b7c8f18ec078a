"""Old prices, wherever dollars are shown: a warning with the age, and a failure under `--ci`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.catalog.prices import staleness
from trnbench.cli.output import warn
from trnbench.records.ids import instant
from trnbench.status import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trnbench.records.schema import Record

CiOption = Annotated[bool, typer.Option("--ci/--no-ci", help="Exit with 1 where a price is older than the limit.")]


def tell_stale_prices(sentences: Iterable[str], *, ci: bool) -> ExitCode:
    """Warn of each old price once; FAILED where there is one and `ci` is set, else CLEAN."""
    found = list(dict.fromkeys(sentences))
    for sentence in found:
        warn(sentence)
    return ExitCode.FAILED if found and ci else ExitCode.CLEAN


def stale_stored_prices(records: Iterable[Record]) -> list[str]:
    """One sentence for each record whose stored price was older than the limit on the day that it ran."""
    sentences = [
        staleness(record.price, instant(record.started_at).date()) for record in records if record.price is not None
    ]
    return [sentence for sentence in sentences if sentence]
