"""Records to bytes and back: strict JSON in UTF-8, laid out so that a line of a diff is a field.

Works on bytes only, so the locale has no say. What is written reads back equal, or nothing is written.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from trnbench.records.migrations import MIGRATIONS, Migration, migrate
from trnbench.records.rules import RecordError, check_record
from trnbench.records.schema import SCHEMA_VERSION, Record, Stored
from trnbench.status import TrnBenchError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RecordError", "decode", "encode", "parse_strict"]

_Stored = TypeVar("_Stored", bound=Stored)

_CONFLICT = re.compile(rb"^(?:<{7}|\|{7}|={7}|>{7})(?:[ \r\n]|\Z)", re.MULTILINE)
_STRING = r'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(_STRING + r"(\s*:)?|[{}]")


def encode(record: Record) -> bytes:
    """The record as strict JSON: one field a line, one space a level, fields as declared, map keys sorted.

    Raises `RecordError` before a byte is produced where a number is not finite, a text is not valid Unicode, a value
    has the wrong type, or the record breaks a rule of the format.
    """
    check_record(record)
    return strict_bytes(record, f"the record of case {record.case.id}")


def strict_bytes(value: Stored, what: str) -> bytes:
    """Any stored struct as `encode` lays out a record, without the rules that span fields; `what` begins each error."""
    try:
        data = msgspec.json.encode(value, order="deterministic")
        msgspec.json.decode(data, type=type(value))
    except (msgspec.ValidationError, TypeError) as error:
        raise RecordError(f"{what} cannot be stored: {_plain(error)}") from None
    except UnicodeEncodeError:
        raise RecordError(f"{what} holds text that is not valid Unicode") from None
    return msgspec.json.format(data, indent=1) + b"\n"


def decode(data: bytes, where: str) -> Record:
    """Read one record; `where` names the file in every error.

    Older schema versions are migrated; fields they lack read as null with a reason in `unknown`. Raises `RecordError`
    for an empty, cut, merged, foreign, newer or inconsistent file, naming the line or byte offset and the key.
    """
    record = decode_as(data, where, Record, SCHEMA_VERSION, MIGRATIONS)
    try:
        check_record(record)
    except RecordError as error:
        raise RecordError(f"{where}: {error}") from None
    return record


def decode_as(
    data: bytes, where: str, record_type: type[_Stored], current: int, migrations: Mapping[int, Migration]
) -> _Stored:
    """`decode` for a given type, version and migration table, without the rules that span fields."""
    plain = parse_strict(data, where)
    if not isinstance(plain, dict) or "schema_version" not in plain:
        found = f"the keys {', '.join(sorted(plain)[:4])}" if isinstance(plain, dict) else f"a {type(plain).__name__}"
        raise RecordError(f"{where}: not a TrnBench record: it has no key 'schema_version' but {found}")
    version = plain["schema_version"]
    if type(version) is not int or version < 1:
        raise RecordError(f"{where}: key 'schema_version' is {version!r}; it must be a whole number from 1")
    if version > current:
        raise RecordError(
            f"{where}: schema_version {version} is newer than this trnbench reads ({current}); upgrade trnbench"
        )
    migrate(plain, current, migrations)
    try:
        return msgspec.convert(plain, record_type, strict=True)
    except (msgspec.ValidationError, TrnBenchError) as error:
        raise RecordError(f"{where}: {_plain(error)}") from None


def parse_strict(data: bytes, where: str) -> Any:
    """Plain values of one JSON text, refusing what JSON readers disagree on: NaN, infinities and repeated keys.

    Raises `RecordError` with the line of a conflict marker or repeated key, else the byte offset.
    """
    if not data.strip():
        raise RecordError(f"{where}: the file is empty ({len(data)} bytes); a record was never written or was lost")
    marker = _CONFLICT.search(data)
    if marker:
        line = data.count(b"\n", 0, marker.start()) + 1
        raise RecordError(f"{where}: line {line} holds a merge conflict marker; restore one side of the conflict")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        cut = "the file is cut short" if error.reason == "unexpected end of data" else "not UTF-8"
        raise RecordError(f"{where}: {cut} at byte {error.start} of {len(data)}") from None
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_not_a_number, parse_float=_finite, parse_int=_whole
        )
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode("utf-8"))
        whole = text.rstrip().endswith("}") and text[error.pos :].strip() and "Unterminated" not in error.msg
        problem = "the file is cut short" if text.lstrip().startswith("{") and not whole else "not JSON"
        raise RecordError(
            f"{where}: {problem} at byte {offset} of {len(data)} (line {error.lineno}): {error.msg}"
        ) from None
    except _RepeatedKeyError as error:
        raise RecordError(f"{where}: key {error.key!r} appears twice in one object{_line_of_repeat(text)}") from None
    except _NumberError as error:
        line = _line_of_literal(text, error.literal)
        raise RecordError(f"{where}: line {line}: {error.literal[:40]} is not a number that JSON can hold") from None
    except RecursionError:
        raise RecordError(f"{where}: not a record: its values are nested too deeply") from None


class _RepeatedKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class _NumberError(Exception):
    def __init__(self, literal: str) -> None:
        super().__init__(literal)
        self.literal = literal


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedKeyError(key)
            seen.add(key)
    return result


def _not_a_number(literal: str) -> NoReturn:
    raise _NumberError(literal)


def _finite(literal: str) -> float:
    value = float(literal)
    return value if math.isfinite(value) else _not_a_number(literal)


def _whole(literal: str) -> int:
    # Python itself refuses more than 4300 digits with a ValueError; no count or size has that many.
    return int(literal) if len(literal) <= 40 else _not_a_number(literal)


def _line_of_repeat(text: str) -> str:
    """The words `, the second time in line N` for the first key that repeats one of its own object."""
    open_objects: list[set[str]] = []
    for token in _TOKEN.finditer(text):
        if token[0] == "{":
            open_objects.append(set())
        elif token[0] == "}":
            open_objects.pop()
        elif token[1]:
            key = json.loads(token[0].removesuffix(token[1]))
            if key in open_objects[-1]:
                return f", the second time in line {_line(text, token.start())}"
            open_objects[-1].add(key)
    return ""


def _line_of_literal(text: str, literal: str) -> int:
    """Line of the first `literal` outside strings."""
    matches = re.finditer(f"{_STRING}|{re.escape(literal)}", text)
    return next(_line(text, match.start()) for match in matches if match[0] == literal)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _plain(error: Exception) -> str:
    """msgspec's message with its path as a key of the record: "... at key device.chips"."""
    return str(error).replace(" - at `$.", " at key `").replace(" - at `$`", "").replace("`", "'")
