"""Which records count, and which cases a resumed run leaves alone."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from record_samples import case, device, environment, measurement, record, timed

from trnbench.records.ids import instant, new_id, utc_now
from trnbench.records.resume import finished, key, latest_attempts
from trnbench.records.schema import Git, Record
from trnbench.records.store import Store, StoredRecord
from trnbench.status import RETRIED_BY_RESUME, Status


def stored(*originals: Record) -> list[StoredRecord]:
    return [StoredRecord(record=item, path=Path(f"{index}.json")) for index, item in enumerate(originals)]


def at(second: int, **changes: object) -> Record:
    return record(started_at=f"2026-11-30T09:15:{second:02}Z", **changes)


def test_newest_attempt_counts_and_all_are_kept() -> None:
    """D6: values 1 and 3 under one identity: 3 counts, attempts are 2, and no 2.0 exists anywhere."""
    first = at(1, measurement=measurement([timed(1.0)]))
    second = at(2, measurement=measurement([timed(3.0)]))
    for order in itertools.permutations((first, second)):
        (attempts,) = latest_attempts(stored(*order))
        assert attempts.count == 2
        assert attempts.newest.record == second
        assert [item.record for item in attempts.records] == [first, second]


def test_a_later_failure_counts_over_an_earlier_success() -> None:
    """D6: the newest, not the nicest."""
    (attempts,) = latest_attempts(stored(at(1), at(2, status=Status.FAILED, reason="loss not finite")))
    assert attempts.newest.record.status is Status.FAILED


def test_newest_is_by_instant() -> None:
    """D17: 18:15+09:00 is before 09:16Z."""
    early = record(started_at="2026-11-30T18:15:00+09:00")
    late = record(started_at="2026-11-30T09:16:00Z")
    assert latest_attempts(stored(late, early))[0].newest.record == late


def test_runs_cases_and_devices_stay_apart() -> None:
    """D6: only a repetition inside one run is an attempt; another run is another sample."""
    different = [
        at(1),
        at(2, run_id="another"),
        at(3, case=case(precision="fp32")),
        at(4, case=case(version="fedcba9876543210")),
        at(5, device=device(chip="trainium2")),
        at(6, device=device(backend="xla")),
    ]
    groups = latest_attempts(stored(*different))
    assert [group.newest.record for group in groups] == different
    assert {group.count for group in groups} == {1}


def test_attempts_survive_the_store(tmp_path: Path) -> None:
    """D6: six reruns within one second."""
    store = Store(tmp_path)
    for microsecond in range(6):
        store.write(record(started_at=f"2026-11-30T09:15:00.00000{microsecond}Z"))
    (attempts,) = latest_attempts(store.load().records)
    assert attempts.count == 6
    assert attempts.newest.record.started_at.endswith("5Z")


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
