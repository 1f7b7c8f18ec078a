"""What lies beside the records: their files, passports, the mutation test of the checks, and lists of deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.records.deviations import load_deviations
from trnbench.records.mutation import MUTATION_FILE, read_mutation_report
from trnbench.records.passport import PassportStore
from trnbench.records.rules import RecordError
from trnbench.records.store import read_artifact
from trnbench.report.material import FileBeside, PassportEntry, Refused, relative, shown_path
from trnbench.report.names import file_stem
from trnbench.status import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.records.deviations import Deviation
    from trnbench.records.mutation import MutationReport
    from trnbench.records.store import StoredRecord


class FoundPassports(msgspec.Struct, frozen=True, kw_only=True):
    """Passports to be shown, oldest first; how many simulated ones may not be; and the files that are none."""

    shown: list[PassportEntry]
    left_out: int
    refused: list[Refused]


_PLAIN = (".txt", ".json", ".csv", ".yaml", ".log")
"""Endings under which a browser shows a file as text; all others get a further ".txt", so that none runs as a page."""


def gather_files(stored: StoredRecord, results: Path) -> tuple[list[FileBeside], list[Refused]]:
    """The files that a record names, and those of them that are gone or no longer what was stored."""
    found: list[FileBeside] = []
    refused: list[Refused] = []
    folder = f"records/{file_stem(stored.record.record_id)}"
    taken: set[str] = set()
    for artifact in stored.record.artifacts:
        try:
            data = read_artifact(stored, artifact)
        except (RecordError, OSError, ValueError) as error:
            problem = refuse(stored.path.parent / artifact.path, str(error), results)
            shown = f"{relative(stored.path.parent, results)}/{shown_path(artifact)}"
            refused.append(Refused(path=shown, reason=problem.reason))
            found.append(FileBeside(artifact=artifact, data=None, problem=problem.reason))
            continue
        name = _site_name(artifact.name, taken)
        taken.add(name)
        found.append(FileBeside(artifact=artifact, data=data, target=f"{folder}/{name}"))
    return found, refused


def _site_name(name: str, taken: set[str]) -> str:
    """A name that is safe in a path, is shown as text, and that no other file of the record has."""
    stem, dot, ending = name.rpartition(".")
    plain = f"{dot}{ending}".lower() if stem else ""
    base, suffix = (file_stem(stem), plain) if plain in _PLAIN else (file_stem(name), ".txt")
    number, found = 1, f"{base}{suffix}"
    while found in taken:
        number += 1
        found = f"{base}-{number}{suffix}"
    return found


def gather_passports(results: Path, *, allow_simulated: bool) -> FoundPassports:
    """The passports of a results folder. A copy of one is refused: it would stand on the pages twice."""
    loaded = PassportStore(results).load()
    refused = [refuse(one.path, one.reason, results) for one in loaded.rejected]
    found: dict[str, PassportEntry] = {}
    for stored in loaded.passports:
        name = stored.passport.passport_id
        path = relative(stored.path, results)
        if name in found:
            refused.append(Refused(path=path, reason=f"the same passport_id as {found[name].path}"))
        else:
            found[name] = PassportEntry(passport=stored.passport, path=path, data=stored.path.read_bytes())
    shown = [entry for entry in found.values() if allow_simulated or not entry.passport.simulated]
    return FoundPassports(shown=shown, left_out=len(found) - len(shown), refused=refused)


def gather_mutation(results: Path) -> tuple[MutationReport | None, list[Refused]]:
    """The mutation report of a results folder, if it has one that can be read."""
    try:
        return read_mutation_report(results), []
    except (RecordError, OSError) as error:
        return None, [refuse(results / MUTATION_FILE, str(error), results)]


def gather_deviations(folder: Path | None) -> dict[str, list[Deviation]]:
    """The known deviations that a folder lists, by backend. Raises `UsageError` for what is no folder or no list."""
    if folder is None:
        return {}
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; give the one that holds the lists of known deviations")
    backends = sorted(path.stem for path in folder.glob("*.toml"))
    return {backend: load_deviations(folder, backend) for backend in backends}


def refuse(path: Path, reason: str, results: Path) -> Refused:
    """A refused file; no page prints where on its builder's machine the results lay."""
    shown = relative(path, results)
    for root in (str(results.resolve()), str(results)):
        reason = reason.replace(root + "/", "")
    return Refused(path=shown, reason=reason.removeprefix(f"{shown}: "))
