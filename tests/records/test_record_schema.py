"""The published JSON Schema and the page about the format: both must say what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import msgspec
import pytest
from hypothesis import given
from record_samples import record, records, relaxed

from trnbench.records.json_schema import SCHEMA_FILE, record_schema, schema_bytes, write_schema
from trnbench.records.schema import MAX_RECORD_BYTES, MAX_ROUNDS, SCHEMA_VERSION
from trnbench.records.serialise import decode, encode
from trnbench.records.store import Store
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "record-format.md").read_text(encoding="utf-8")
VALIDATOR = jsonschema.Draft202012Validator(record_schema())


def problems(plain: object) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(plain)]


def test_committed_schema_is_the_generated_one() -> None:
    """Where this fails: write it anew with `trnbench schema`, and think about whether the version must go up."""
    assert (ROOT / "results" / SCHEMA_FILE).read_bytes() == schema_bytes()


def test_schema_is_written_where_it_is_committed(tmp_path: Path) -> None:
    path = write_schema(tmp_path / "results")
    assert path.relative_to(tmp_path / "results") == Path(f"schema/record-v{SCHEMA_VERSION}.json")
    assert path.read_bytes() == schema_bytes()
    assert write_schema(tmp_path / "results") == path
    assert Store(tmp_path / "results").load().rejected == []


def test_schema_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_bytes()))


@relaxed
@given(records())
def test_every_record_validates(original: object) -> None:
    assert problems(json.loads(encode(original))) == []


def test_stored_records_validate() -> None:
    """Examples of the present version, and whatever is published in results/."""
    example = Path(__file__).parent / "examples" / f"record-v{SCHEMA_VERSION}.json"
    paths = [example, *(item.path for item in Store(ROOT / "results").load().records)]
    for path in paths:
        plain = json.loads(path.read_bytes())
        if plain["schema_version"] == SCHEMA_VERSION:
            assert problems(plain) == []


def test_published_records_all_load() -> None:
    assert [item.reason for item in Store(ROOT / "results").load().rejected] == []


def mutants() -> Iterator[tuple[str, object]]:
    """Broken copies of a good record, each by what is wrong with it."""
    text = encode(record()).decode()
    changes = {
        "another version": (f'"schema_version": {SCHEMA_VERSION}', f'"schema_version": {SCHEMA_VERSION + 1}'),
        "unknown status": ('"status": "ok"', '"status": "fine"'),
        "text for a number": ('"chips": 1', '"chips": "1"'),
        "fraction for a count": ('"chips": 1', '"chips": 1.5'),
        "null where none may be": ('"simulated": false', '"simulated": null'),
        "unknown key": ('"simulated": false', '"simulated": false, "mfu": 0.4'),
        "unknown key deep inside": ('"source":', '"gigabytes": 83, "source":'),
        "reason that is no text": ('"price": "', '"price_": 1, "price": "'),
        "unknown precision": ('"precision": "bf16"', '"precision": "fp8"'),
    }
    for name, (old, new) in changes.items():
        assert old in text
        yield name, json.loads(text.replace(old, new, 1))
    for field in json.loads(text):
        if field not in ("artifacts", "unknown"):
            yield f"without {field}", {key: value for key, value in json.loads(text).items() if key != field}


@pytest.mark.parametrize(("name", "plain"), list(mutants()), ids=[name for name, _ in mutants()])
def test_schema_and_reader_refuse_the_same_mutants(name: str, plain: object) -> None:
    assert problems(plain), name
    with pytest.raises(Exception, match=r"^x\.json: "):
        decode(json.dumps(plain).encode(), "x.json")


def page_tables() -> dict[str, list[str]]:
    """Fields that the page lists, by heading, for tables whose first column is `field`."""
    tables: dict[str, list[str]] = {}
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        if "| field |" in body:
            tables[heading] = re.findall(r"^\| `(\w+)` \|", body, re.MULTILINE)
    return tables


def struct_fields() -> dict[str, list[str]]:
    definitions = record_schema()["$defs"]
    return {name: list(part["properties"]) for name, part in definitions.items() if "properties" in part}


def test_the_page_lists_every_field_in_order_and_no_other() -> None:
    assert page_tables() == struct_fields()


def test_the_page_says_which_fields_may_be_null() -> None:
    definitions = record_schema()["$defs"]
    for name, part in definitions.items():
        for field, kind in part.get("properties", {}).items():
            (row,) = re.findall(rf"^\| `{field}` \| ([^|]*) \|", PAGE.split(f"## {name}\n")[1].split("\n## ")[0], re.M)
            options = [*kind.get("anyOf", []), kind]
            nullable = any(option.get("type") == "null" or None in option.get("enum", []) for option in options)
            assert nullable == row.endswith("null"), f"{name}.{field}: {row}"


def test_the_page_names_every_choice_and_limit() -> None:
    for status in Status:
        assert f"`{status.value}`" in PAGE
    for part in record_schema()["$defs"].values():
        for kind in part.get("properties", {}).values():
            for choice in kind.get("enum", []):
                if choice is not None:
                    assert f"`{choice}`" in PAGE
    assert f"at most {MAX_ROUNDS}" in PAGE
    assert f"{MAX_RECORD_BYTES:_}".replace("_", " ") + " bytes" in PAGE
    assert f"| `schema_version` | integer | version of this format: {SCHEMA_VERSION} |" in PAGE


def test_every_struct_of_a_record_is_closed() -> None:
    """Unknown keys are refused everywhere: a misspelt field is an error and never ignored."""
    for name, part in record_schema()["$defs"].items():
        if "properties" in part:
            assert part["additionalProperties"] is False, name
    assert issubclass(type(record()), msgspec.Struct)
