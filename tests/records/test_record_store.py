"""The store in one process: paths, what is refused, what is reported, and the order of what is read."""

from __future__ import annotations

import datetime
import errno
import os
import stat
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import case, check, device, environment, measurement, moments, record, relaxed, timed

from trnbench.records.schema import MAX_RECORD_BYTES, MAX_ROUNDS, SCHEMA_VERSION, Artifact
from trnbench.records.serialise import RecordError, encode
from trnbench.records.store import MAX_NAME, Store, StoreError, safe_name
from trnbench.status import Status, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def leftovers(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def test_path_says_suite_chip_fingerprint_time_run_and_case(tmp_path: Path) -> None:
    stored = record(started_at="2026-11-30T18:15:00.5+09:00")
    path = Store(tmp_path).write(stored)
    assert path.relative_to(tmp_path).parts[:3] == ("decoder", "cpu", "fedcba9876543210")
    assert path.name == f"20261130T091500Z-{stored.run_id}-{stored.case.id}.json"
    assert path.read_bytes() == encode(stored)


@pytest.mark.parametrize(
    "nasty", ["../../etc", "a/b", "..", ".", "", ".hidden", "a\\b", "C:\\x", "new\nline", "\N{SNOWMAN}", "x" * 500]
)
def test_every_part_of_the_path_is_made_safe(tmp_path: Path, nasty: str) -> None:
    root = tmp_path / "results"
    stored = record(
        case=case(suite=nasty, workload=nasty),
        device=device(chip=nasty),
        environment=environment(fingerprint=nasty),
        run_id=nasty,
    )
    path = Store(root).write(stored)
    assert path.resolve().is_relative_to(root.resolve())
    assert len(path.relative_to(root).parts) == 4
    assert [item.path for item in Store(root).load().records] == [path]
    assert Store(root).load().records[0].record == stored


@given(st.text())
def test_safe_names_are_safe(text: str) -> None:
    name = safe_name(text)
    assert 0 < len(name) <= MAX_NAME
    assert not name.startswith(".")
    assert name.isascii()
    assert not set(name) & set("/\\: \n\0")
    assert safe_name(name) == name


def test_long_names_stay_apart() -> None:
    assert safe_name("x" * 500 + "a") != safe_name("x" * 500 + "b")


@pytest.mark.parametrize("suite", ["schema", "local"])
def test_suites_cannot_hide_in_folders_that_are_not_read(tmp_path: Path, suite: str) -> None:
    path = Store(tmp_path).write(record(case=case(suite=suite)))
    assert [item.path for item in Store(tmp_path).load().records] == [path]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """D4, D6: the same run, case and second again gets a number; both stay."""
    start = "2026-11-30T09:15:00Z"
    first, second, third = (record(started_at=start) for _ in range(3))
    paths = [Store(tmp_path).write(item) for item in (first, second, third)]
    assert [path.stem[-3:] for path in paths] == ["s64", "4-2", "4-3"]
    assert [path.read_bytes() for path in paths] == [encode(first), encode(second), encode(third)]


def test_records_follow_the_umask_and_leave_nothing_else(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = Store(tmp_path).write(record())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert leftovers(tmp_path) == [path]
    assert path.stat().st_nlink == 1


def test_size_is_bounded(tmp_path: Path) -> None:
    """D7: 70 000 rounds or a huge parameter never reach the disk; the sentence says what is too large."""
    big = record(measurement=measurement(timings={"ttft_seconds": [0.123456789] * 70_000}))
    with pytest.raises(RecordError, match=rf"mostly measurement\.timings; at most {MAX_RECORD_BYTES}"):
        Store(tmp_path).write(big)
    with pytest.raises(RecordError, match=r"mostly case"):
        Store(tmp_path).write(record(case=case(parallel={f"axis{i}": 1 for i in range(20_000)})))
    assert leftovers(tmp_path) == []


def test_the_largest_ordinary_record_fits(tmp_path: Path) -> None:
    """D7: the bound on rounds leaves room for many checks."""
    rounds = [timed(0.0123456789012345, energy_joules=123.456789012345)] * MAX_ROUNDS
    checks = [check(value=0.12345678901234, where="layer 12, position 1023") for _ in range(200)]
    path = Store(tmp_path).write(record(measurement=measurement(rounds), conformance=checks))
    assert path.stat().st_size <= MAX_RECORD_BYTES


def test_oversized_file_is_refused_unread(tmp_path: Path) -> None:
    """D7: a sparse file of 10 GB is reported by its size."""
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(10**10)
    (rejected,) = Store(tmp_path).load().rejected
    assert "10000000000 bytes; a record has at most" in rejected.reason


def test_a_record_that_breaks_a_rule_is_not_written(tmp_path: Path) -> None:
    """D1: no byte and no folder."""
    broken = msgspec.structs.replace(record(), measurement=measurement([timed(float("nan"))]))
    with pytest.raises(RecordError):
        Store(tmp_path / "results").write(broken)
    assert not (tmp_path / "results").exists()


def test_bad_files_are_reported_and_the_rest_loads(tmp_path: Path) -> None:
    """D2, D3, D5, D16: empty, cut, merged, foreign and newer files beside three good ones."""
    store = Store(tmp_path)
    good = [store.write(record()) for _ in range(3)]
    folder, text = good[0].parent, good[0].read_text(encoding="utf-8")
    bad = {
        "cut.json": (text[:500], "cut short at byte"),
        "empty.json": ("", "the file is empty (0 bytes)"),
        "foreign.json": ('{"benchmarks": []}', "not a TrnBench record"),
        "merged.json": (f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> x\n", "line 1 holds a merge conflict marker"),
        "newer.json": (
            text.replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 99'),
            "schema_version 99 is newer",
        ),
    }
    for name, (content, _) in bad.items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / ".0123.tmp").write_text("half a rec", encoding="utf-8")
    (folder / "notes.txt").write_text("not a record", encoding="utf-8")
    loaded = store.load()
    assert sorted(item.path for item in loaded.records) == sorted(good)
    assert [item.path.name for item in loaded.rejected] == sorted(bad)
    for item in loaded.rejected:
        assert item.reason.startswith(f"{item.path}: ")
        assert bad[item.path.name][1] in item.reason


def test_schema_and_local_folders_are_not_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    Store(tmp_path / "local").write(record())
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "record-v1.json").write_text("{}", encoding="utf-8")
    assert store.load().records == store.load().rejected == []
    assert len(Store(tmp_path / "local").load().records) == 1


def test_missing_store_is_empty_and_a_file_is_refused(tmp_path: Path) -> None:
    assert Store(tmp_path / "nowhere").load().records == []
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match="is not a folder"):
        Store(tmp_path / "file").load()
    with pytest.raises(StoreError, match="was not written"):
        Store(tmp_path / "file").write(record())


def test_links_and_devices_are_reported_not_followed(tmp_path: Path) -> None:
    """A link to a record would count twice, one to a folder above would never end, a pipe would never answer."""
    store = Store(tmp_path / "results")
    path = store.write(record())
    secret = tmp_path / "secret.json"
    secret.write_text('{"password": 1}', encoding="utf-8")
    (path.parent / "again.json").symlink_to(path)
    (path.parent / "outside.json").symlink_to(secret)
    (path.parent / "dangling.json").symlink_to(tmp_path / "nothing")
    (path.parent / "loop").symlink_to(tmp_path / "results")
    os.mkfifo(path.parent / "pipe.json")
    loaded = store.load()
    assert [item.path for item in loaded.records] == [path]
    assert [item.path.name for item in loaded.rejected] == [
        "again.json",
        "dangling.json",
        "loop",
        "outside.json",
        "pipe.json",
    ]
    assert not any("password" in item.reason for item in loaded.rejected)
    assert ["symbolic link" in item.reason for item in loaded.rejected] == [True, True, True, True, False]


def test_a_copied_file_counts_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.write(record())
    (path.parent / "zcopy.json").write_bytes(path.read_bytes())
    loaded = store.load()
    assert [item.path for item in loaded.records] == [path]
    assert "the same record_id as" in loaded.rejected[0].reason


def test_an_artifact_beside_its_record_is_no_bad_record(tmp_path: Path) -> None:
    """D7: raw samples live in a file of their own that the record names."""
    store = Store(tmp_path)
    path = store.write(record(artifacts=[Artifact(name="samples", path="samples.json", sha256="0" * 64)]))
    (path.parent / "samples.json").write_text("[1, 2, 3]", encoding="utf-8")
    assert store.load().rejected == []
    (path.parent / "other.json").write_text("[1, 2, 3]", encoding="utf-8")
    assert [item.path.name for item in store.load().rejected] == ["other.json"]


def test_order_is_by_instant_not_by_text(tmp_path: Path) -> None:
    """D17: 08:00+09:00 is earlier than 00:30+00:00, which its text hides."""
    starts = ["2026-11-30T00:30:00+00:00", "2026-11-30T08:00:00+09:00", "2026-11-29T23:15:00Z"]
    store = Store(tmp_path)
    for start in starts:
        store.write(record(started_at=start))
    assert [item.record.started_at for item in store.load().records] == [starts[1], starts[2], starts[0]]
    assert sorted(starts) != [starts[1], starts[2], starts[0]]


@relaxed
@given(st.lists(moments, min_size=2, max_size=5))
def test_order_is_by_instant_for_all_offsets(
    tmp_path_factory: pytest.TempPathFactory, started: list[datetime.datetime]
) -> None:
    """D17."""
    store = Store(tmp_path_factory.mktemp("store"))
    for moment in started:
        store.write(record(started_at=moment.isoformat()))
    loaded = store.load()
    assert loaded.rejected == []
    read = [datetime.datetime.fromisoformat(item.record.started_at).timestamp() for item in loaded.records]
    assert read == sorted(moment.timestamp() for moment in started)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["fsync", "mkdir", "link"])
def test_a_refusal_at_any_step_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """G11, D3: wherever the system says no, one sentence and no partial file."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StoreError) as caught:
        Store(tmp_path / "results").write(record())
    monkeypatch.undo()
    assert leftovers(tmp_path) == []
    expected = "the disk is full" if code in (errno.ENOSPC, errno.EDQUOT) else os.strerror(code).lower()
    assert f"{expected}; nothing partial is left" in str(caught.value)
    assert Store(tmp_path / "results").write(record()).exists()


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_file_systems_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """D4: there the record's own id makes the name, so nothing is overwritten either."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    start = "2026-11-30T09:15:00Z"
    first, second = record(started_at=start), record(started_at=start)
    paths = [Store(tmp_path).write(first), Store(tmp_path).write(second)]
    assert [path.read_bytes() for path in paths] == [encode(first), encode(second)]
    assert sorted(leftovers(tmp_path)) == sorted(paths)
    with pytest.raises(StoreError, match="file exists"):
        Store(tmp_path).write(first)
    assert sorted(leftovers(tmp_path)) == sorted(paths)


def test_failed_cases_are_stored_too(tmp_path: Path) -> None:
    """D20: with their timing, under their own status."""
    store = Store(tmp_path)
    store.write(record(status=Status.NONCONFORMANT, reason="loss off by 3 bounds"))
    (loaded,) = store.load().records
    assert loaded.record.status is Status.NONCONFORMANT
    assert loaded.record.measurement is not None
