"""Files beside a record, such as logs: stored before it, named in it with their hash, and never trusted unread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from record_samples import measurement, record, served, trained

from trnbench.records.rules import RecordError
from trnbench.records.store import Store, StoredRecord, StoreError, read_artifact
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"round-1-summary.txt": b"VALID\n", "result_0.txt": ":::MLLOG {} µ\n".encode()}


def stored(root: Path) -> StoredRecord:
    Store(root).write(record(), FILES)
    (found,) = Store(root).load().records
    return found


def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    found = stored(tmp_path)
    assert {one.name: read_artifact(found, one) for one in found.record.artifacts} == FILES
    assert all(one.path.startswith(found.record.record_id) for one in found.record.artifacts)


def test_a_file_beside_a_record_is_no_record(tmp_path: Path) -> None:
    """Also where it is JSON: it is named by the record, so it is not reported as one that cannot be read."""
    Store(tmp_path).write(record(), {"result_summary.json": b"{}"})
    loaded = Store(tmp_path).load()
    assert len(loaded.records) == 1
    assert loaded.rejected == []


@pytest.mark.parametrize("change", ["changed", "gone", "linked"])
def test_a_file_that_is_not_the_one_named_is_refused(tmp_path: Path, change: str) -> None:
    found = stored(tmp_path)
    artifact = found.record.artifacts[0]
    path = found.path.parent / artifact.path
    data = path.read_bytes()
    path.unlink()
    if change == "changed":
        path.write_bytes(data + b" ")
    elif change == "linked":
        (tmp_path / "elsewhere").write_bytes(data)
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match=r"SHA-256 differs|cannot be read|lies outside"):
        read_artifact(found, artifact)


@pytest.mark.parametrize("name", ["../out.txt", "a/b.txt", "", ".hidden"])
def test_a_name_that_is_no_plain_file_name_writes_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordError, match="cannot be called"):
        Store(tmp_path).write(record(), {name: b"x"})
    assert list(tmp_path.rglob("*")) == []


def test_a_store_that_takes_no_files_takes_no_record(tmp_path: Path) -> None:
    """The record would name what is not there."""
    blocked = record()
    folder = Store(tmp_path).folder(blocked)
    folder.mkdir(parents=True)
    (folder / f"{blocked.record_id}.files").write_text("in the way")
    with pytest.raises(StoreError, match="was not written"):
        Store(tmp_path).write(blocked, FILES)
    assert list(tmp_path.rglob("*.json")) == []


def test_what_shows_why_there_is_no_speed_is_kept() -> None:
    """A served or trained case without a valid round keeps its tests and runs; any other measurement goes."""
    for evidence in (
        {"serving": [served(valid=False, verdict="INVALID", reasons=["late"])]},
        {"training": [trained()]},
    ):
        kept = record(measurement=measurement([], **evidence), status=Status.INVALID, reason="no valid run")
        assert kept.measurement is not None
        assert (kept.measurement.serving or kept.measurement.training) != []
    assert record(measurement=measurement([]), status=Status.INVALID, reason="none").measurement is None


def test_without_a_valid_round_nothing_is_ok() -> None:
    left = record(measurement=measurement([], serving=[served()]))
    assert left.status is Status.INVALID
    assert "no round was kept" in left.reason
