"""Records for a command: from folders and single files, with every file that is none named on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.output import warn
from trnbench.records.serialise import decode
from trnbench.records.store import Store
from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from trnbench.records.schema import Record


def load_records(paths: Iterable[Path]) -> list[Record]:
    """Every record below the given folders and in the given files, each once, in time order within a path.

    Files in a folder that are no records are reported on stderr and left out. Raises `UsageError` where a path does
    not exist, and `RecordError` where a file given by name is no record.
    """
    records: dict[str, Record] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist; give a results folder or a record file")
        if path.is_dir():
            loaded = Store(path).load()
            for rejected in loaded.rejected:
                warn(f"ignored {rejected.reason}")
            found = [stored.record for stored in loaded.records]
        else:
            found = [_read(path)]
        records.update({record.record_id: record for record in found})
    return list(records.values())


def _read(path: Path) -> Record:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    return decode(data, str(path))
