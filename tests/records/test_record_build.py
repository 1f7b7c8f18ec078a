"""Assembling records and the rules they must keep."""

from __future__ import annotations

import math
import types
import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import RUN, case, check, device, environment, measurement, record, records, relaxed, timed

from trnbench.records.build import DEFAULT_REASONS, assemble, check_unknown, explain
from trnbench.records.ids import utc_now
from trnbench.records.rules import any_item, check_record, leaves, null_paths
from trnbench.records.schema import MAX_ROUNDS, Compile, Git, Record
from trnbench.records.serialise import RecordError, decode, encode
from trnbench.status import Status


def changed(plain: Record, **changes: object) -> Record:
    return msgspec.structs.replace(plain, **changes)


def nullable_paths(kind: object, path: str = "") -> typing.Iterator[str]:
    """Every path of the record type at which None is allowed."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if type(None) in arguments:
            yield path
        for argument in arguments:
            yield from nullable_paths(argument, path)
    elif origin is list:
        yield from nullable_paths(arguments[0], f"{path}[*]")
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for name, hint in typing.get_type_hints(kind).items():
            if name in kind.__struct_fields__:
                yield from nullable_paths(hint, f"{path}.{name}" if path else name)


def test_every_nullable_field_has_a_default_reason() -> None:
    """So that no null, wherever it comes from, is ever stored without one."""
    assert set(nullable_paths(Record)) == set(DEFAULT_REASONS)
    assert all(reason.strip() for reason in DEFAULT_REASONS.values())


@relaxed
@given(records())
def test_explained_records_pass(original: Record) -> None:
    check_record(original)
    assert explain(original) == original


@relaxed
@given(records(), st.data())
def test_a_removed_reason_is_missed(original: Record, data: st.DataObject) -> None:
    if not original.unknown:
        return
    path = data.draw(st.sampled_from(sorted(original.unknown)))
    rest = {key: reason for key, reason in original.unknown.items() if key != path}
    with pytest.raises(RecordError, match="is null and `unknown` gives no reason"):
        check_unknown(changed(original, unknown=rest))
    for blank in ("", "  \n"):
        with pytest.raises(RecordError, match="empty reason"):
            check_unknown(changed(original, unknown={**original.unknown, path: blank}))


@relaxed
@given(records(), st.data())
def test_a_reason_for_a_known_value_is_refused(original: Record, data: st.DataObject) -> None:
    known = [path for path, value in leaves(original) if value is not None and not path.startswith("unknown")]
    nulls = {*null_paths(original), *map(any_item, null_paths(original))}
    path = data.draw(st.sampled_from([*known, "measurement.speed", "nonsense", "rounds[*]", "environment.flags.x"]))
    if path in nulls:
        return
    with pytest.raises(RecordError, match="is not a null of this record"):
        check_unknown(changed(original, unknown={**original.unknown, path: "because"}))


@pytest.mark.parametrize("unknown", [{}, {"status": "because"}], ids=["missing", "left over"])
def test_reasons_are_checked_on_writing_and_on_reading(unknown: dict[str, str]) -> None:
    """A null without a reason, or a reason without a null, gets neither into a file nor out of one."""
    plain = record()
    broken = changed(plain, unknown={**plain.unknown, **unknown} if unknown else {})
    with pytest.raises(RecordError, match="`unknown`"):
        encode(broken)
    with pytest.raises(RecordError, match=r"^x\.json: .*`unknown`"):
        decode(msgspec.json.encode(broken), "x.json")


def test_one_item_of_many_may_have_its_own_reason() -> None:
    stored = record(
        conformance=[check(), check(value=None, limit=None, verdict="not checked"), check(limit=None)],
        reasons={"conformance[1].value": "this layer was not reached"},
    )
    assert stored.unknown["conformance[1].value"] == "this layer was not reached"
    assert stored.unknown["conformance[*].limit"] == DEFAULT_REASONS["conformance[*].limit"]
    assert "conformance[*].value" not in stored.unknown
    with pytest.raises(RecordError, match=r"conformance\[0\]\.value"):
        check_unknown(changed(stored, unknown={**stored.unknown, "conformance[0].value": "why"}))


def test_absent_cpu_fact_may_be_explained() -> None:
    stored = record(reasons={"environment.cpu.threads": "torch was not loaded"})
    assert stored.unknown["environment.cpu.threads"] == "torch was not loaded"
    assert "environment.cpu.model" not in record(reasons={"environment.cpu.model": "told after all"}).unknown


def test_given_reasons_go_before_defaults_and_leave_out_what_is_known() -> None:
    stored = record(reasons={"price": "the table ends in October", "device.memory_bytes": "not used", "nonsense": "x"})
    assert stored.unknown["price"] == "the table ends in October"
    assert not {"device.memory_bytes", "nonsense"} & set(stored.unknown)


@pytest.mark.parametrize(
    "nothing",
    [None, [], [math.nan], [math.inf], [0.0], [-1.0], [0.01, 0.0, 0.01], [0.01, math.nan]],
    ids=str,
)
def test_no_valid_samples_is_invalid(nothing: list[float] | None) -> None:
    """A13: an empty or impossible set of samples is status invalid with a reason, never a speed of 0 or NaN."""
    measured = None if nothing is None else measurement([timed(seconds) for seconds in nothing])
    stored = record(measurement=measured)
    assert stored.status is Status.INVALID
    assert stored.reason.startswith("no valid samples")
    assert stored.measurement is None
    assert stored.unknown["measurement"].startswith("no valid samples")
    assert decode(encode(stored), "x.json") == stored


@pytest.mark.parametrize("seconds", [math.nan, 0.0])
def test_a_failed_case_keeps_its_status_without_samples(seconds: float) -> None:
    """A13: what failed for another reason stays what it is."""
    stored = record(status=Status.OOM, reason="out of memory", measurement=measurement([timed(seconds)]))
    assert (stored.status, stored.reason, stored.measurement) == (Status.OOM, "out of memory", None)


@pytest.mark.parametrize(("field", "status"), [("compiles", Status.INVALID), ("fallbacks", Status.FALLBACK)])
def test_ok_with_a_compile_or_fallback_in_a_round_is_refused(field: str, status: Status) -> None:
    rounds = [timed(), timed(**{field: 2})]
    with pytest.raises(RecordError, match=rf"status is ok with 2 {field} in measurement.rounds\[1\]"):
        record(measurement=measurement(rounds))
    stored = record(status=status, reason="compiled in round 1", measurement=measurement(rounds))
    by_hand = encode(stored).decode().replace(f'"status": "{status.value}"', '"status": "ok"')
    with pytest.raises(RecordError, match=r"^x\.json: status is ok with 2"):
        decode(by_hand.encode(), "x.json")


def test_unknown_counts_are_no_compiles() -> None:
    stored = record(measurement=measurement([timed(compiles=None, fallbacks=None)]))
    assert stored.status is Status.OK
    assert stored.unknown["measurement.rounds[*].compiles"]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_every_other_status_needs_a_reason(status: Status) -> None:
    with pytest.raises(RecordError, match="reason is empty"):
        record(status=status, reason=" ", measurement=None)
    stored = record(status=status, reason="it was so", measurement=None)
    assert stored.unknown["measurement"] == f"status {status.value}"


def test_a_stand_in_is_recorded_as_cpu() -> None:
    """A simulated device can never appear as an accelerator."""
    assert record(simulated=True).simulated
    with pytest.raises(RecordError, match=r"simulated is true and device\.chip is 'trainium2'"):
        record(simulated=True, device=device(chip="trainium2"))


@pytest.mark.parametrize("text", ["2026-11-30T09:15:00", "2026-11-30", "yesterday", ""])
def test_local_time_is_refused(text: str) -> None:
    """D17: an instant needs an offset."""
    with pytest.raises(RecordError, match="started_at must be ISO 8601 with a UTC offset"):
        record(started_at=text)
    with pytest.raises(RecordError, match="finished_at must be ISO 8601 with a UTC offset"):
        record(finished_at=text)


def test_too_many_rounds_are_refused() -> None:
    """D7."""
    assert record(measurement=measurement([timed()] * MAX_ROUNDS)).measurement
    with pytest.raises(RecordError, match=f"at most {MAX_ROUNDS}"):
        record(measurement=measurement([timed()] * (MAX_ROUNDS + 1)))


def test_energy_that_is_no_number_becomes_null() -> None:
    """D1: the speed stays, the reading goes, and the reason says what it was."""
    stored = record(measurement=measurement([timed(energy_joules=math.nan), timed(energy_joules=2.0)]))
    assert [item.energy_joules for item in stored.measurement.rounds] == [None, 2.0]
    assert stored.unknown["measurement.rounds[*].energy_joules"] == "the energy counter gave nan"


def test_git_and_compile_nulls_are_explained() -> None:
    """D8: without git the record is complete all the same."""
    stored = record(
        environment=environment(git=Git(commit=None, dirty=None, diff_hash=None)),
        measurement=measurement(compile=Compile(count=None, seconds=None, first_step_seconds=1.0, cache=None)),
        reasons={"environment.git.commit": "git is not installed"},
    )
    assert stored.unknown["environment.git.commit"] == "git is not installed"
    assert stored.unknown["environment.git.dirty"] == DEFAULT_REASONS["environment.git.dirty"]
    assert {"measurement.compile.count", "measurement.compile.seconds", "measurement.compile.cache"} <= set(
        stored.unknown
    )


def test_finished_defaults_to_now_and_ids_differ() -> None:
    parts = {"case": case(), "device": device(), "environment": environment(), "run_id": RUN, "status": Status.SKIPPED}
    first = assemble(**parts, started_at=utc_now(), reason="not here")
    second = assemble(**parts, started_at=utc_now(), reason="not here")
    assert first.started_at <= first.finished_at <= second.started_at
    assert first.record_id != second.record_id
