"""How commands print: tables for people, JSON for machines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PIPE_WIDTH = 200
"""Columns of a table that goes into a file or a pipe, where no terminal gives a width."""


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table; cells are plain text, never markup. ASCII borders where the encoding has no others."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    table = Table(title=Text(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell) for cell in row])
    console.print(table)


def print_json(value: object) -> None:
    """Print `value` as indented strict JSON in UTF-8; structs become objects by field name."""
    write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def write_bytes(data: bytes) -> None:
    """Write to stdout as is: machine output is UTF-8 whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def warn(text: str) -> None:
    """One line on stderr, so that machine output stays clean."""
    print(f"trnbench: {text}", file=sys.stderr)
