"""Reading catalog tables: CSV files whose every cell is checked against a typed row, with errors that name the cell."""

from __future__ import annotations

import csv
import io
import math
from importlib import resources
from typing import TYPE_CHECKING, TypeVar

import msgspec

from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

Row = TypeVar("Row", bound=msgspec.Struct)

PACKAGE_DATA = "data"


def read_package_table(name: str, row_type: type[Row], key: Sequence[str]) -> list[Row]:
    """Rows of one of the package's own data files; see `parse_table`."""
    text = (resources.files("trnbench.catalog") / PACKAGE_DATA / name).read_text(encoding="utf-8")
    return parse_table(text, name, row_type, key)


def read_table(path: Path, row_type: type[Row], key: Sequence[str]) -> list[Row]:
    """Rows of a file of the user's; see `parse_table`. A file that is absent or not UTF-8 raises `UsageError`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: byte {error.start} does not decode") from None
    return parse_table(text, str(path), row_type, key)


def parse_table(text: str, where: str, row_type: type[Row], key: Sequence[str]) -> list[Row]:
    """Turn CSV text into rows of `row_type`, one field a column, in any column order.

    An empty cell is None where the field's type allows it and an error elsewhere, except that a plain `str` field
    may be empty only if it has a default. Raises `UsageError` with file, line and column for: an unknown, missing
    or repeated column, a row with too few or too many cells, a cell of the wrong type, a number that is not finite,
    and two rows with the same `key` fields.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, None)
        if header is None:
            raise UsageError(f"{where} is empty; its first line must name the columns")
        _check_header(header, where, row_type)
        rows = [(reader.line_num, _row(cells, header, where, reader.line_num, row_type)) for cells in reader if cells]
    except csv.Error as error:
        raise UsageError(f"{where} line {reader.line_num}: not CSV ({error})") from None
    _check_unique(rows, where, key)
    return [row for _, row in rows]


def _check_header(header: Sequence[str], where: str, row_type: type[msgspec.Struct]) -> None:
    known = {field.name: field for field in msgspec.structs.fields(row_type)}
    for position, name in enumerate(header):
        if name not in known:
            raise UsageError(f"{where} line 1: unknown column {name!r}; the columns are {', '.join(known)}")
        if name in header[:position]:
            raise UsageError(f"{where} line 1: column {name!r} is given twice")
    missing = [name for name, field in known.items() if field.required and name not in header]
    if missing:
        raise UsageError(f"{where} line 1: missing column {', '.join(repr(name) for name in missing)}")


def _row(cells: Sequence[str], header: Sequence[str], where: str, line: int, row_type: type[Row]) -> Row:
    if len(cells) != len(header):
        raise UsageError(f"{where} line {line}: {len(cells)} cells, but the header names {len(header)} columns")
    fields = {field.name: field for field in msgspec.structs.fields(row_type)}
    values: dict[str, object] = {}
    for name, cell in zip(header, cells, strict=True):
        field = fields[name]
        if cell.strip() == "" and not field.required:
            continue
        values[name] = _cell(cell.strip(), field.type, f"{where} line {line}, column {name}")
    return row_type(**values)


def _cell(cell: str, expected: object, place: str) -> object:
    optional = type(None) in getattr(expected, "__args__", ())
    if cell == "":
        if optional:
            return None
        raise UsageError(f"{place}: the cell is empty")
    try:
        value: object = msgspec.convert(cell, expected, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: {cell!r} does not fit ({error})") from None
    if optional and value is None:
        # Lax conversion reads the word "null" as None; here only an empty cell means unknown.
        raise UsageError(f"{place}: {cell!r} does not fit (leave the cell empty where the value is unknown)")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{place}: {cell!r} is not a finite number")
    return value


def _check_unique(rows: Iterable[tuple[int, msgspec.Struct]], where: str, key: Sequence[str]) -> None:
    first: dict[tuple[object, ...], int] = {}
    for line, row in rows:
        value = tuple(getattr(row, name) for name in key)
        if value in first:
            named = ", ".join(f"{name} {getattr(row, name)}" for name in key)
            raise UsageError(f"{where} line {line}: {named} was already given in line {first[value]}")
        first[value] = line
