"""Which cases a resumed run leaves alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from record_samples import case, environment, record

from trnbench.records.ids import instant, new_id, utc_now
from trnbench.records.resume import finished, key
from trnbench.records.schema import Git, Record
from trnbench.records.store import StoredRecord
from trnbench.status import RETRIED_BY_RESUME, Status


def stored(*originals: Record) -> list[StoredRecord]:
    return [StoredRecord(record=item, path=Path(f"{index}.json")) for index, item in enumerate(originals)]


def at(second: int, **changes: object) -> Record:
    return record(started_at=f"2026-11-30T09:15:{second:02}Z", **changes)


@pytest.mark.parametrize("status", list(Status))
def test_finished_keeps_verdicts_on_the_case_and_drops_those_on_the_moment(status: Status) -> None:
    """G11."""
    done = finished(stored(at(1, status=status, reason="as it was")))
    assert bool(done) == (status not in RETRIED_BY_RESUME)


def test_resume_after_an_interruption_reruns_the_rest() -> None:
    """G11: 5 cases, 2 finished, the third interrupted: cases 3 to 5 remain."""
    cases = [case(sequence=64 * number) for number in range(1, 6)]
    written = [at(1, case=cases[0]), at(2, case=cases[1])]
    written.append(at(3, case=cases[2], status=Status.INTERRUPTED, reason="Ctrl-C", measurement=None))
    done = finished(stored(*written))
    keys = [key(msgspec.structs.replace(written[0], case=one)) for one in cases]
    assert [one for one, name in zip(cases, keys, strict=True) if name not in done] == cases[2:]


def test_an_interrupted_rerun_is_not_finished() -> None:
    """G11: the newest outcome decides, also when it is worse."""
    assert finished(stored(at(1), at(2, status=Status.TIMEOUT, reason="60 s", measurement=None))) == {}
    assert len(finished(stored(at(1, status=Status.TIMEOUT, reason="60 s", measurement=None), at(2)))) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"case": case(precision="fp32")},
        {"environment": environment(fingerprint="other")},
        {"environment": environment(git=Git(commit="1" * 40, dirty=False, diff_hash=None))},
        {"environment": environment(git=Git(commit="0" * 40, dirty=True, diff_hash="other"))},
    ],
    ids=["case", "fingerprint", "commit", "uncommitted code"],
)
def test_key_tells_case_machine_and_code_apart(other: dict[str, object]) -> None:
    """D9, D11: another case, machine or code is not finished by this record; a repetition is."""
    assert key(at(1, **other)) != key(at(1))
    assert key(at(1)) == key(at(2, run_id="another"))


def test_finished_may_be_asked_of_one_run() -> None:
    assert len(finished(stored(at(1)), run_id=at(1).run_id)) == 1
    assert finished(stored(at(1)), run_id="another") == {}


def test_ids_are_unique_and_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """D4."""
    assert len({new_id() for _ in range(10_000)}) == 10_000
    clock = iter([10**18, 10**18 + 10**6, 2 * 10**18, 10**19])
    monkeypatch.setattr("time.time_ns", lambda: next(clock))
    ids = [new_id() for _ in range(4)]
    assert ids == sorted(ids)
    assert {len(one) for one in ids} == {22}


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "UTC", "America/St_Johns"])
def test_now_is_utc_under_any_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """D17: the same run under TZ=Asia/Tokyo and TZ=UTC."""
    import datetime
    import time

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        text = utc_now()
        assert text.endswith("Z")
        assert abs(instant(text) - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=1)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_instants_outside_the_calendar_are_value_errors(text: str) -> None:
    with pytest.raises(ValueError, match="outside the calendar"):
        instant(text)
