"""The JSON Schemas of records and passports, generated from the types: `results/schema/record-v2.json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from trnbench.records.passport import PASSPORT_VERSION, Passport
from trnbench.records.schema import SCHEMA_VERSION, Record, Stored

if TYPE_CHECKING:
    from pathlib import Path

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_FILE = f"schema/record-v{SCHEMA_VERSION}.json"
"""Path of the record's schema inside a results folder."""

PASSPORT_SCHEMA_FILE = f"schema/passport-v{PASSPORT_VERSION}.json"


def record_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one record, with the field docstrings as descriptions."""
    return _schema(Record, SCHEMA_VERSION, "record")


def passport_schema() -> dict[str, Any]:
    """JSON Schema of one passport."""
    return _schema(Passport, PASSPORT_VERSION, "passport")


def _schema(stored: type[Stored], version: int, name: str) -> dict[str, Any]:
    (reference,), definitions = msgspec.json.schema_components([stored], ref_template="#/$defs/{name}")
    # The type says integer; what is stored in this version holds exactly this number, and readers may rely on it.
    definitions[stored.__name__]["properties"]["schema_version"] = {"const": version}
    return {
        "$schema": DIALECT,
        "title": f"TrnBench {name}, version {version}",
        **reference,
        "$defs": definitions,
    }


def schema_bytes() -> bytes:
    """The record's schema as it is committed: UTF-8, keys sorted, one space a level, a newline at the end."""
    return _as_committed(record_schema())


def passport_schema_bytes() -> bytes:
    """The passport's schema as it is committed."""
    return _as_committed(passport_schema())


def _as_committed(schema: dict[str, Any]) -> bytes:
    return (json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")


def write_schema(results: Path) -> Path:
    """Write both schemas into a results folder and return the record's path; older texts are replaced."""
    path = results / SCHEMA_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(schema_bytes())
    (results / PASSPORT_SCHEMA_FILE).write_bytes(passport_schema_bytes())
    return path
