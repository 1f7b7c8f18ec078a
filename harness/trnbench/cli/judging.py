"""`trnbench compare` and `trnbench report`: decide with records, and publish them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare() -> None:
    """Compare."""


def report(
    results: Annotated[Path, typer.Argument(help="Folder of records.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the pages.")] = Path("reports/local"),
) -> None:
    """Build the pages from a folder of records."""


def gate_run(baseline: Path, results: Path, run_ids: list[str]) -> int:
    """Gate."""
    return 0
