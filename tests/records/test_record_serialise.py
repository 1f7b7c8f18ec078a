"""Writing and reading records: strict both ways, and every refusal says where."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import check, finite, keys, measurement, record, records, relaxed, timed, words

from trnbench.records.migrations import added
from trnbench.records.rules import check_record
from trnbench.records.schema import SCHEMA_VERSION, Memory, Record
from trnbench.records.serialise import RecordError, decode, decode_as, encode, parse_strict
from trnbench.status import Status, UsageError

NOT_FINITE = [math.nan, math.inf, -math.inf]


def refuse_constant(literal: str) -> float:
    raise AssertionError(f"{literal} is not JSON")


@relaxed
@given(records())
def test_every_record_reads_back_equal(original: Record) -> None:
    data = encode(original)
    assert decode(data, "x.json") == original
    assert encode(decode(data, "x.json")) == data
    json.loads(data, parse_constant=refuse_constant)


@relaxed
@given(records())
def test_layout_puts_a_field_a_line_in_declared_order(original: Record) -> None:
    text = encode(original).decode("utf-8")
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")
    top = [line.split('"')[1] for line in text.split("\n") if line.startswith(' "')]
    assert top == list(Record.__struct_fields__)


def test_layout_does_not_depend_on_the_order_of_maps() -> None:
    plain = record()
    turned = msgspec.structs.replace(
        plain,
        environment=msgspec.structs.replace(
            plain.environment,
            flags=dict(reversed(plain.environment.flags.items())),
            versions=dict(reversed(plain.environment.versions.items())),
        ),
        unknown=dict(reversed(plain.unknown.items())),
    )
    assert list(turned.environment.flags) != list(plain.environment.flags)
    assert encode(turned) == encode(plain)


FLOAT_PLACES = {
    "measurement.rounds[1].seconds": lambda bad: {"measurement": measurement([timed(), timed(bad)])},
    "measurement.rounds[0].energy_joules": lambda bad: {"measurement": measurement([timed(energy_joules=bad)])},
    "measurement.timings.ttft_seconds[1]": lambda bad: {"measurement": measurement(timings={"ttft_seconds": [1, bad]})},
    "conformance[0].value": lambda bad: {"conformance": [check(value=bad)]},
    "conformance[0].limit": lambda bad: {"conformance": [check(limit=bad)]},
}


@pytest.mark.parametrize("bad", NOT_FINITE)
@pytest.mark.parametrize("place", FLOAT_PLACES)
def test_not_finite_is_never_written(place: str, bad: float) -> None:
    """D1: NaN and infinity raise with the path before a byte exists (msgspec alone would write null in silence)."""
    # Failed, because for an ok record the rule about valid samples speaks first.
    broken = msgspec.structs.replace(
        record(), status=Status.FAILED, reason="synthetic", **FLOAT_PLACES[place](bad), unknown={}
    )
    with pytest.raises(RecordError, match="finite") as caught:
        encode(broken)
    assert place in str(caught.value)


@pytest.mark.parametrize("bad", NOT_FINITE)
def test_not_finite_in_flags_and_read_back_is_never_written(bad: float) -> None:
    """D1: also where any scalar may stand."""
    plain = record()
    broken = msgspec.structs.replace(plain, device=msgspec.structs.replace(plain.device, read_back={"clock": bad}))
    with pytest.raises(RecordError, match=r"device\.read_back\.clock"):
        encode(broken)


@pytest.mark.parametrize("bad", NOT_FINITE)
def test_not_finite_check_value_becomes_null_with_a_verdict(bad: float) -> None:
    """D1: the value is null, the verdict beside it says why, and the file parses in strict mode."""
    stored = record(status=Status.NONCONFORMANT, reason="logits not finite", conformance=[check(value=bad)])
    plain = json.loads(encode(stored), parse_constant=refuse_constant)
    assert plain["conformance"][0]["value"] is None
    assert plain["conformance"][0]["verdict"] == "non-finite"
    assert plain["unknown"]["conformance[*].value"]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_not_finite_is_refused_on_reading(literal: str) -> None:
    """D1: whoever wrote the file, with the line of the literal and not of the same word in a text."""
    text = encode(record(reason=f"said {literal}")).decode().replace('"seconds": 0.011', f'"seconds": {literal}')
    line = text[: text.index(f": {literal}")].count("\n") + 1
    with pytest.raises(RecordError, match=rf"x\.json: line {line}: .*not a number"):
        decode(text.encode(), "x.json")


def test_bytes_are_stored_raw() -> None:
    """B16: 83 000 000 000 bytes is stored as that integer, with no unit and no rounding."""
    stored = record(measurement=measurement(memory=Memory(peak_bytes=83_000_000_000, source="counter")))
    plain = json.loads(encode(stored))
    assert plain["measurement"]["memory"]["peak_bytes"] == 83_000_000_000
    assert b'"peak_bytes": 83000000000' in encode(stored)
    assert isinstance(plain["device"]["memory_bytes"], int)


@pytest.mark.parametrize("data", [b"", b"\n", b" \n \n"])
def test_empty_file_is_named(data: bytes) -> None:
    """D3."""
    with pytest.raises(RecordError, match=rf"^x\.json: the file is empty \({len(data)} bytes\)"):
        decode(data, "x.json")


def test_cut_file_is_named_with_its_byte_offset() -> None:
    """D2: wherever the file was cut, also inside a character."""
    data = encode(record(reason="\N{MICRO SIGN}s and \N{SNOWMAN}"))
    for length in range(1, len(data.rstrip()), 7):
        with pytest.raises(RecordError, match=r"^x\.json: the file is cut short at byte \d+ of") as caught:
            decode(data[:length], "x.json")
        offset = int(str(caught.value).split("at byte ")[1].split()[0])
        assert 0 <= offset <= length
    inside = data.index("\N{SNOWMAN}".encode()) + 1
    with pytest.raises(RecordError, match=rf"cut short at byte {inside - 1} of {inside}"):
        decode(data[:inside], "x.json")


def test_cut_offset_counts_bytes_not_characters() -> None:
    """D2: after non-ASCII text the two differ."""
    data = encode(record(reason="\N{SNOWMAN}" * 50))
    cut = data[: data.index(b'"simulated"')].rstrip()
    with pytest.raises(RecordError, match=rf"at byte {len(cut)} of {len(cut)} "):
        decode(cut, "x.json")


@pytest.mark.parametrize("marker", ["<<<<<<< HEAD", "||||||| base", "=======", ">>>>>>> other branch"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_conflict_marker_is_named_with_its_line(marker: str, ending: str) -> None:
    """D5."""
    lines = encode(record()).decode().splitlines()
    lines.insert(6, marker)
    with pytest.raises(RecordError, match=r"^x\.json: line 7 holds a merge conflict marker"):
        decode(ending.join(lines).encode(), "x.json")


def test_conflict_marker_inside_text_is_text() -> None:
    """D5: a reason may quote one."""
    quoted = record(reason="said:\n<<<<<<< HEAD\n=======\n")
    assert decode(encode(quoted), "x.json").reason == quoted.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"machine_info": {}, "benchmarks": []}', "no key 'schema_version' but the keys benchmarks, machine_info"),
        ("[]", "not a TrnBench record"),
        ("3", "not a TrnBench record"),
        ('"schema_version"', "not a TrnBench record"),
        ("hello", "not JSON at byte 0"),
        ("{'schema_version': 1}", "not JSON at byte 1"),
        ('{"schema_version": 1,}', "not JSON at byte"),
        ('{"schema_version": "1"}', "key 'schema_version' is '1'"),
        ('{"schema_version": true}', "key 'schema_version' is True"),
        ('{"schema_version": 1.0}', "key 'schema_version' is 1.0"),
        ('{"schema_version": 0}', "must be a whole number from 1"),
        ('{"schema_version": 2}', "missing required field `?'?record_id"),
        ("\N{ZERO WIDTH NO-BREAK SPACE}{}", "not JSON at byte 0"),
        ("[" * 100_000, "nested too deeply|cut short|not JSON"),
        ('{"schema_version": ' + "9" * 5000 + "}", "line 1: 9{40} is not a number that JSON can hold"),
    ],
)
def test_foreign_file_is_named(text: str, expected: str) -> None:
    """D5: somebody else's JSON in the results folder."""
    with pytest.raises(RecordError, match=rf"^x\.json: .*(?:{expected})") as caught:
        decode(text.encode("utf-8"), "x.json")
    assert isinstance(caught.value, UsageError)
    assert len(str(caught.value)) < 300


def test_latin_1_is_refused_with_its_offset() -> None:
    """D18: the file's bytes decide, not the locale."""
    with pytest.raises(RecordError, match=r"not UTF-8 at byte 12 of"):
        decode('{"reason": "\xb5s"}'.encode("latin-1"), "x.json")


def test_repeated_key_is_named_with_its_line() -> None:
    lines = encode(record()).decode().splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith('  "chip"'))
    lines.insert(place + 1, '  "chip": "trainium2",')
    with pytest.raises(RecordError, match=rf"key 'chip' appears twice in one object, .* line {place + 2}$"):
        decode("\n".join(lines).encode(), "x.json")


def test_same_key_in_two_objects_is_no_repeat() -> None:
    assert parse_strict(b'{"a": {"k": 1}, "b": [{"k": 2}, {"k": 3}], "k": "k", "c": "\\"k\\":"}', "x")["k"] == "k"


@given(st.dictionaries(words, finite | words | st.dictionaries(keys, finite), min_size=1), st.data())
def test_any_repeated_key_is_found(plain: dict[str, object], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(plain)))
    text = json.dumps(plain)[:-1] + f",\n{json.dumps(key)}: 0}}"
    with pytest.raises(RecordError, match=r"appears twice in one object, the second time in line 2"):
        parse_strict(text.encode(), "x.json")


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('"simulated": false', '"simulated": 0', "simulated"),
        ('"chips": 1', '"chips": "1"', r"device\.chips"),
        ('"chips": 1', '"chips": 1.5', r"device\.chips"),
        ('"status": "ok"', '"status": "fine"', "status"),
        ('"seconds": 0.011', '"seconds": "0.011"', r"measurement\.rounds\[1\]\.seconds"),
        ('"simulated": false', '"simulated": false, "speed": 3', "speed"),
        ('"batch": 4', '"batch": 0', "batch"),
    ],
)
def test_wrong_type_is_named_with_its_key(old: str, new: str, key: str) -> None:
    text = encode(record()).decode()
    assert old in text
    with pytest.raises(RecordError, match=rf"^x\.json: .*{key}"):
        decode(text.replace(old, new).encode(), "x.json")


def test_text_that_is_not_unicode_is_refused_before_writing() -> None:
    """D18: a lone surrogate, as Python makes of undecodable file names, has no UTF-8."""
    with pytest.raises(RecordError, match="not valid Unicode"):
        encode(record(reason="\udcff"))


def test_wrong_type_is_refused_before_writing() -> None:
    """msgspec does not check types when a struct is built: writing does, or nobody could read the file."""
    plain = record()
    with pytest.raises(RecordError, match=r"cannot be stored: .*device\.chips"):
        encode(msgspec.structs.replace(plain, device=msgspec.structs.replace(plain.device, chips="one")))


def test_newer_version_is_refused_by_name() -> None:
    """D16: a file of schema version 99."""
    text = encode(record()).decode().replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 99')
    with pytest.raises(
        RecordError, match=rf"^x\.json: schema_version 99 is newer than this trnbench reads \({SCHEMA_VERSION}\)"
    ):
        decode(text.encode(), "x.json")


def test_older_version_reads_with_nulls_and_reasons() -> None:
    """D16: the next version of a synthetic format adds a field at the top and one in every round; files still read."""
    here = SCHEMA_VERSION
    later = msgspec.defstruct("Later", [("operator", str | None)], bases=(Record,), kw_only=True, frozen=True)
    table = {here + 1: added("operator"), here + 2: added("measurement.rounds[*].throttled", "device.firmware")}
    original = record()
    read = decode_as(encode(original), "x.json", later, here + 1, {here + 1: table[here + 1]})
    assert read.operator is None
    assert read.schema_version == here + 1
    assert read.unknown == {**original.unknown, "operator": f"not recorded by schema version {here}"}
    assert read.measurement == original.measurement

    plain = json.loads(encode(original))
    table[here + 1](plain, here)
    table[here + 2](plain, here + 1)
    assert [item["throttled"] for item in plain["measurement"]["rounds"]] == [None, None, None]
    assert plain["unknown"]["measurement.rounds[*].throttled"] == f"not recorded by schema version {here + 1}"
    assert plain["unknown"]["device.firmware"] == f"not recorded by schema version {here + 1}"


def test_added_field_is_not_explained_where_nothing_could_hold_it() -> None:
    """D16: a failed record has no rounds, so nothing is null there and no reason may be left over."""
    plain = json.loads(encode(record(status=Status.FAILED, reason="it failed", measurement=None)))
    before = dict(plain["unknown"])
    added("measurement.rounds[*].throttled")(plain, 1)
    assert plain["unknown"] == before
    added("reason")(plain, 1)
    assert plain["reason"] == "it failed"


def test_every_version_has_a_migration_and_a_stored_example() -> None:
    """D16: whoever raises SCHEMA_VERSION must say how older files read, and keep one of each."""
    from trnbench.records.migrations import MIGRATIONS

    assert sorted(MIGRATIONS) == list(range(2, SCHEMA_VERSION + 1))
    for version in range(1, SCHEMA_VERSION + 1):
        example = Path(__file__).parent / "examples" / f"record-v{version}.json"
        read = decode(example.read_bytes(), example.name)
        check_record(read)
        assert read.schema_version == SCHEMA_VERSION


def test_missing_defaults_read_as_defaults() -> None:
    """A file without the optional keys is valid: they are declared with defaults in version 1."""
    plain = json.loads(encode(record()))
    del plain["artifacts"], plain["measurement"]["timings"]
    assert decode(json.dumps(plain).encode(), "x.json").artifacts == []


@given(st.binary(max_size=200))
def test_any_bytes_end_in_one_sentence(data: bytes) -> None:
    with pytest.raises(RecordError, match=r"^x\.json: "):
        decode(data, "x.json")


@relaxed
@given(records(), st.data())
def test_any_flipped_byte_reads_or_is_refused(original: Record, data: st.DataObject) -> None:
    raw = bytearray(encode(original))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode(bytes(raw), "x.json")
    except RecordError as error:
        sentence = str(error)
    else:
        sentence = "x.json: read"
        check_record(read)
    assert sentence.startswith("x.json: ")


def test_a_case_that_is_only_checked_is_ok_by_its_checks_alone() -> None:
    """Ok without rounds, but never without a check, with a failed one, or with a measurement."""
    good = decode((Path(__file__).parent / "examples" / "record-v2.json").read_bytes(), "record-v2.json")
    check_record(good)
    failed = [msgspec.structs.replace(good.conformance[0], verdict="fail")]
    for changes, wrong in (
        ({"conformance": []}, "without a single check"),
        ({"conformance": failed}, "it must be nonconformant"),
        ({"measurement": record().measurement}, "measures nothing, so measurement must be null"),
    ):
        with pytest.raises(RecordError, match=wrong):
            check_record(msgspec.structs.replace(good, **changes))
