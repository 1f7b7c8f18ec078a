"""The JSON Schema of records, generated from the types: `results/schema/record-v2.json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from trnbench.records.schema import SCHEMA_VERSION, Record

if TYPE_CHECKING:
    from pathlib import Path

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_FILE = f"schema/record-v{SCHEMA_VERSION}.json"
"""Path of the schema inside a results folder."""


def record_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one record, with the field docstrings as descriptions."""
    (reference,), definitions = msgspec.json.schema_components([Record], ref_template="#/$defs/{name}")
    # The type says integer; a record of this version holds exactly this number, and readers may rely on it.
    definitions["Record"]["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {
        "$schema": DIALECT,
        "title": f"TrnBench record, version {SCHEMA_VERSION}",
        **reference,
        "$defs": definitions,
    }


def schema_bytes() -> bytes:
    """The schema as it is committed: UTF-8, keys sorted, one space a level, a newline at the end."""
    return (json.dumps(record_schema(), indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")


def write_schema(results: Path) -> Path:
    """Write the schema into a results folder and return its path; an older text of the same version is replaced."""
    path = results / SCHEMA_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(schema_bytes())
    return path
