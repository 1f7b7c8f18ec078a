"""The store: one file per record under `<suite>/<chip>/<fingerprint>/`, written whole or not at all, never overwritten.

Any number of processes may write and read at once without a lock: a record appears under its name by an exclusive
hard link to a finished, synced file, so a reader sees all of it or nothing, even after SIGKILL or a full disk.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from trnbench.records.ids import compact, instant
from trnbench.records.rules import RecordError
from trnbench.records.schema import MAX_RECORD_BYTES, Artifact, Record
from trnbench.records.serialise import decode, encode
from trnbench.status import TrnBenchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NOT_RECORDS = frozenset({"mutants", "schema", "local", "passports"})
"""Folders at the top of a store that hold no records of it: JSON Schemas, the store of local runs, and passports."""

MAX_NAME = 100
FILES_SUFFIX = ".files"
"""Of the folder that holds what lies beside a record."""
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class StoreError(TrnBenchError):
    """A record could not be written: the disk is full, the folder read-only or in the way."""


class StoredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record and the file that holds it."""

    record: Record
    path: Path


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the store that is no usable record, and why, in one sentence that names the file."""

    path: Path
    reason: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything found in a store: `records` by the instant they started, `rejected` by path."""

    records: list[StoredRecord]
    rejected: list[Rejected]


class Store:
    """A folder of records. Creating one touches nothing; the folder appears with the first record."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, record: Record) -> Path:
        """Where this record belongs: suite, chip and fingerprint, each reduced to a safe file name."""
        suite = safe_name(record.case.suite)
        if suite in NOT_RECORDS:
            suite += "_"
        return self.root / suite / safe_name(record.device.chip) / safe_name(record.environment.fingerprint)

    def write(self, record: Record, files: Mapping[str, bytes] = MappingProxyType({})) -> Path:
        """Store the record durably and return its path; a name already taken gets `-2`, `-3` and so on.

        `files`, by name, are stored beside it in a folder of their own and named in the record as its artifacts. They
        are written first: a record never names a file that is not there.

        Raises `RecordError` for a record that breaks the format or exceeds `MAX_RECORD_BYTES`, and `StoreError` where
        the file system refuses; either way no part of the record is left behind.
        """
        beside = _artifacts(record, files)
        record = msgspec.structs.replace(record, artifacts=[*record.artifacts, *beside])
        data = encode(record)
        if len(data) > MAX_RECORD_BYTES:
            raise RecordError(
                f"the record of case {record.case.id} has {len(data)} bytes, mostly {_largest_part(record)}; at most "
                f"{MAX_RECORD_BYTES} fit: store raw samples as an artifact beside it"
            )
        stem = "-".join([compact(record.started_at), safe_name(record.run_id), safe_name(record.case.id)])
        what = f"the record of case {record.case.id}"
        for artifact in beside:
            told = f"{artifact.name} beside {what}"
            replace_file(self.folder(record) / artifact.path, files[artifact.name], what=told)
        return write_file(self.folder(record), stem, data, what=what, unique=record.record_id)

    def load(self) -> Loaded:
        """Read every record; a file that is none is reported by path and reason and the rest still loads.

        Only `.json` files count, so what an interrupted writer leaves (`.*.tmp`) does not. Symbolic links are
        reported, never followed: what they point to may lie outside the store, or count twice. A store without a
        folder is empty; a root that is a file raises `UsageError`.
        """
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{self.root} is not a folder; name the folder that holds the records")
        found: list[StoredRecord] = []
        rejected: list[Rejected] = []
        first_with_id: dict[str, Path] = {}
        for path in self._candidates(rejected):
            try:
                record = decode(read_file(path), str(path))
            except RecordError as error:
                rejected.append(Rejected(path=path, reason=str(error)))
                continue
            original = first_with_id.setdefault(record.record_id, path)
            if original != path:
                reason = f"{path}: the same record_id as {original}; a copy would count twice"
                rejected.append(Rejected(path=path, reason=reason))
                continue
            found.append(StoredRecord(record=record, path=path))
        artifacts = {stored.path.parent / item.path for stored in found for item in stored.record.artifacts}
        return Loaded(
            records=sorted(found, key=lambda stored: (instant(stored.record.started_at), stored.record.record_id)),
            rejected=sorted((item for item in rejected if item.path not in artifacts), key=lambda item: item.path),
        )

    def _candidates(self, rejected: list[Rejected]) -> Iterator[Path]:
        """Every `.json` entry and every linked folder in path order; unreadable folders go to `rejected`."""

        def unreadable(error: OSError) -> None:
            path = Path(error.filename)
            rejected.append(Rejected(path=path, reason=f"{path}: the folder cannot be read: {error.strerror}"))

        for folder, folders, files in os.walk(self.root, onerror=unreadable if self.root.exists() else None):
            here = Path(folder)
            if here == self.root:
                folders[:] = [name for name in folders if name not in NOT_RECORDS]
            folders.sort()
            yield from (here / name for name in folders if (here / name).is_symlink())
            yield from (here / name for name in sorted(files) if name.endswith(".json"))


def _artifacts(record: Record, files: Mapping[str, bytes]) -> list[Artifact]:
    """What `files` become beside the record; raises `RecordError` for a name that is not safe in a path."""
    for name in files:
        if safe_name(name) != name:
            raise RecordError(f"a file beside a record cannot be called {name!r}; {safe_name(name)!r} would do")
    folder = f"{safe_name(record.record_id)}{FILES_SUFFIX}"
    return [
        Artifact(name=name, path=f"{folder}/{name}", sha256=hashlib.sha256(data).hexdigest())
        for name, data in sorted(files.items())
    ]


def read_artifact(stored: StoredRecord, artifact: Artifact) -> bytes:
    """The bytes of a file beside a record; raises `RecordError` where it is gone, not plain, or not what was stored."""
    path = stored.path.parent / artifact.path
    if not path.resolve().is_relative_to(stored.path.parent.resolve()) or path.is_symlink():
        raise RecordError(f"{stored.path}: artifact {artifact.name} lies outside the record's folder")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != artifact.sha256:
        raise RecordError(f"{path}: not the file that its record names: the SHA-256 differs")
    return data


def write_file(folder: Path, stem: str, data: bytes, *, what: str, unique: str) -> Path:
    """Write `data` durably under `stem` in `folder`, whole or not at all; a name already taken gets `-2`, `-3`, ...

    `what` is the subject of the error's sentence, `unique` names the file where the file system has no hard links.
    Raises `StoreError` where the file system refuses; no part of the file is then left behind.
    """
    return _written(folder, data, what, lambda temporary: _publish(temporary, folder, stem, safe_name(unique)))


def replace_file(path: Path, data: bytes, *, what: str) -> Path:
    """Put `data` at `path` durably, whole or not at all, in place of what was there; otherwise as `write_file`."""
    return _written(path.parent, data, what, lambda temporary: temporary.replace(path))


def _written(folder: Path, data: bytes, what: str, publish: Callable[[Path], Path]) -> Path:
    """Write a temporary file in `folder` and let `publish` give it its name; nothing else is left behind."""
    temporary = folder / f".{secrets.token_hex(8)}.tmp"
    try:
        _make_folders(folder)
        try:
            _write_synced(temporary, data)
            path = publish(temporary)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        _sync_folder(folder)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        problem = "the disk is full" if full else (error.strerror or str(error)).lower()
        raise StoreError(f"{what} was not written to {folder}: {problem}; nothing partial is left") from None
    return path


def safe_name(text: str) -> str:
    """`text` as one portable file name of at most `MAX_NAME` characters: letters, digits, dot, dash and underscore.

    Never empty, never hidden, never `..`; what is cut off a long name is replaced by a hash of the whole.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text)
    name = re.sub(r"^\.+", "_", name) or "_"
    if len(name) > MAX_NAME:
        name = f"{name[: MAX_NAME - 17]}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    return name


def _largest_part(record: Record) -> str:
    sizes = {name: len(msgspec.json.encode(getattr(record, name))) for name in record.__struct_fields__}
    if record.measurement is not None:
        parts = record.measurement
        sizes |= {
            f"measurement.{name}": len(msgspec.json.encode(getattr(parts, name))) for name in ("rounds", "timings")
        }
        del sizes["measurement"]
    return max(sizes, key=lambda name: sizes[name])


def _make_folders(folder: Path) -> None:
    """Create the missing folders, each entry synced into its parent, so a power cut cannot lose the path to a file."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        _sync_folder(path.parent)


def _write_synced(path: Path, data: bytes) -> None:
    # Not tempfile: its files are private to the user, and a link keeps the mode; records follow the umask.
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _publish(temporary: Path, folder: Path, stem: str, record_id: str) -> Path:
    """Give the finished file its name, atomically and only if nobody has it; the number says which attempt got it."""
    number = 1
    while True:
        path = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            number += 1
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            # A file system without hard links: a rename replaces silently, so take a name that only this record has.
            path = folder / f"{stem}-{record_id}.json"
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            return temporary.rename(path)
        else:
            return path


def _sync_folder(folder: Path) -> None:
    """Make new names in `folder` durable, where the system lets a folder be opened (Windows does not)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_file(path: Path) -> bytes:
    """Bytes of a regular file of acceptable size; anything else raises `RecordError` without being opened."""
    try:
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            raise RecordError(f"{path}: a symbolic link; records are plain files inside the store")
        if not stat.S_ISREG(facts.st_mode):
            raise RecordError(f"{path}: not a regular file")
        if facts.st_size > MAX_RECORD_BYTES:
            raise RecordError(f"{path}: {facts.st_size} bytes; a record has at most {MAX_RECORD_BYTES}")
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from None
