"""Passports are stored like records: whole or not at all, strict, and every null explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import device, environment, relaxed

from trnbench.records.ids import utc_now
from trnbench.records.json_schema import PASSPORT_SCHEMA_FILE, passport_schema, passport_schema_bytes, write_schema
from trnbench.records.passport import (
    PASSPORT_VERSION,
    Passport,
    PassportStore,
    Probe,
    assemble_passport,
    compare_passports,
    decode_passport,
    encode_passport,
    find_passport,
    load_passports,
)
from trnbench.records.rules import RecordError
from trnbench.records.store import Store
from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]


def probe(name: str, verdict: str | None, **fields: object) -> Probe:
    return Probe(**{"group": "casts", "precision": "fp32", "name": name, "verdict": verdict, **fields})


def passport(
    *probes: Probe, reasons: Mapping[str, str] | None = None, started_at: str | None = None, mode: str = "eager"
) -> Passport:
    return assemble_passport(
        device=device(),
        environment=environment(),
        mode=mode,
        numerics={"fp32": {"float32_matmul_precision": "highest"}},
        simulated=False,
        probes=probes or [probe("fp32 to bf16", "rounds to nearest even", details={"mismatches": 0})],
        started_at=started_at or utc_now(),
        reasons=reasons or {},
    )


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
scalars = st.one_of(
    st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), names
)


@relaxed
@given(st.dictionaries(names, st.tuples(names, st.dictionaries(names, scalars, max_size=3)), min_size=1, max_size=5))
def test_what_is_written_reads_back_equal(found: dict[str, tuple[str, dict[str, object]]]) -> None:
    written = passport(*[probe(name, verdict, details=details) for name, (verdict, details) in found.items()])
    assert decode_passport(encode_passport(written), "here") == written


def test_stored_by_chip_and_fingerprint(tmp_path: Path) -> None:
    store = PassportStore(tmp_path)
    written = passport(started_at="2026-11-30T10:00:00.000000Z")
    path = store.write(written)
    again = store.write(written)
    folder = tmp_path / "passports" / "cpu" / written.environment.fingerprint
    assert path == folder / "20261130T100000Z-cpu-eager.json"
    assert again == folder / "20261130T100000Z-cpu-eager-2.json"
    assert {stored.path for stored in store.load().passports} == {path, again}
    assert not list(tmp_path.rglob("*.tmp"))


def test_records_and_passports_do_not_mistake_each_other(tmp_path: Path) -> None:
    PassportStore(tmp_path).write(passport())
    loaded = Store(tmp_path).load()
    assert loaded.records == []
    assert loaded.rejected == []


def test_a_null_needs_a_reason() -> None:
    unread = probe("fp32 to e4m3fnuz", None)
    with pytest.raises(RecordError, match=r"probes\[0\]\.verdict is null and nothing says why"):
        passport(unread)
    explained = passport(unread, reasons={"probes[0].verdict": "Type not supported"})
    assert explained.unknown["probes[0].verdict"] == "Type not supported"
    assert "device.region" in explained.unknown
    with pytest.raises(RecordError, match="gives no reason"):
        encode_passport(msgspec.structs.replace(explained, unknown={}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": PASSPORT_VERSION + 1}, "is newer than this trnbench reads"),
        ({"probes": [{"name": "x"}]}, "missing required field"),
        ({"verdict": "good"}, "unknown field"),
        ({"finished_at": "yesterday"}, "finished_at must be ISO 8601"),
    ],
)
def test_broken_files_are_reported_and_the_rest_loads(tmp_path: Path, change: dict[str, object], words: str) -> None:
    store = PassportStore(tmp_path)
    good = store.write(passport())
    plain = json.loads(good.read_bytes()) | change
    (good.parent / "broken.json").write_text(json.dumps(plain))
    (good.parent / "cut.json").write_bytes(good.read_bytes()[:100])
    loaded = store.load()
    assert [stored.path for stored in loaded.passports] == [good]
    reasons = {item.path.name: item.reason for item in loaded.rejected}
    assert words in reasons["broken.json"]
    assert "cut short" in reasons["cut.json"]
    assert all(str(good.parent) in reason for reason in reasons.values())


def test_links_are_not_followed(tmp_path: Path) -> None:
    good = PassportStore(tmp_path).write(passport())
    (good.parent / "link.json").symlink_to(good)
    loaded = load_passports(tmp_path)
    assert [stored.path for stored in loaded.passports] == [good]
    assert "symbolic link" in loaded.rejected[0].reason


def test_numbers_that_json_cannot_hold_and_probes_twice_are_refused() -> None:
    with pytest.raises(RecordError, match="is inf"):
        passport(probe("a", "b", details={"error": float("inf")}))
    with pytest.raises(RecordError, match="casts / a / fp32 appears twice"):
        passport(probe("a", "b"), probe("a", "c"))


def test_the_newest_of_a_folder_is_found(tmp_path: Path) -> None:
    store = PassportStore(tmp_path)
    late = store.write(passport(started_at="2026-11-30T10:00:00.000000Z"))
    store.write(passport(started_at="2026-11-29T10:00:00.000000Z"))
    for place in (tmp_path, tmp_path / "passports" / "cpu", late):
        assert find_passport(place)[0].path == late
    with pytest.raises(UsageError, match="does not exist"):
        find_passport(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="there is no passport in"):
        find_passport(tmp_path / "empty")


def test_differences_are_named() -> None:
    a = passport(probe("same", "x"), probe("changed", "x"), probe("lost", "x"), probe("only a", "x"))
    b = passport(
        *(probe("same", "x", details={"mean": 2.0}), probe("changed", "y"), probe("lost", None), probe("only b", "z")),
        reasons={"probes[2].verdict": "no kernel"},
    )
    found = {each.name: (each.a, each.b) for each in compare_passports(a, b)}
    assert found == {
        "changed": ("x", "y"),
        "lost": ("x", "unknown: no kernel"),
        "only a": ("x", "not probed"),
        "only b": ("not probed", "z"),
    }
    assert compare_passports(a, a) == []


def test_private_text_stays_out() -> None:
    written = passport(probe("a", None), reasons={"probes[0].verdict": f"cannot open {Path.home()}/secret/file"})
    assert str(Path.home() / "secret") not in encode_passport(written).decode()


def test_the_schema_is_committed_and_describes_passports(tmp_path: Path) -> None:
    assert (ROOT / "results" / PASSPORT_SCHEMA_FILE).read_bytes() == passport_schema_bytes()
    write_schema(tmp_path)
    assert (tmp_path / PASSPORT_SCHEMA_FILE).read_bytes() == passport_schema_bytes()
    jsonschema.Draft202012Validator.check_schema(passport_schema())
    jsonschema.validate(json.loads(encode_passport(passport())), passport_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema_version": 2}, passport_schema())
