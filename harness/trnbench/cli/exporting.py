"""`trnbench export`: a served record in the layout of another tool."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from trnbench.status import UsageError


def export(
    *,
    record: Annotated[Path, typer.Argument(help="A record of a served case, as stored.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write into; it must not exist, or be empty.")],
) -> None:
    """Write a served record in the layout of MLPerf(R) Endpoints, for viewers of it; it stays no MLPerf result."""
    from trnbench.records.serialise import decode
    from trnbench.records.store import read_file
    from trnbench.serving.endpoints_export import export_endpoints

    found = decode(read_file(record), str(record))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out} is not an empty folder; nothing was written")
    for path in export_endpoints(found, out):
        print(path)
