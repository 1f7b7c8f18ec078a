"""Puts a finished site in place: whole or not at all, and over nothing but a site that this module wrote.

The site is written into a new folder beside the old one and takes its place by renaming. Files in the old folder that
are not listed in its manifest are not ours: they move along unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

from trnbench import wording
from trnbench.status import TrnBenchError, UsageError

MANIFEST = "trnbench-site.json"
_GENERATOR = "trnbench report"


class PublishError(TrnBenchError):
    """The site could not be written; what was there before is untouched."""


def publish(out: Path, files: dict[str, bytes], record_ids: list[str]) -> None:
    """Write `files` (by path from the root) and a manifest to `out`, replacing a former site.

    Raises `UsageError` where `out` holds something else, before anything is written, and `PublishError` where the file
    system refuses; either way the old site stays as it was.
    """
    target = out.resolve()
    kept = foreign_files(target)
    clash = sorted(set(kept) & {*files, MANIFEST})
    if clash:
        raise UsageError(f"{out}: {clash[0]} is not a file of the former site, and the new one has a file of that name")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", suffix=".building", dir=target.parent))
    except OSError as error:
        raise PublishError(f"cannot write beside {out}: {error.strerror}") from None
    try:
        _write(staging, files, record_ids)
        for name in kept:
            _carry_over(target / name, staging / name)
        _swap(staging, target)
    except OSError as error:
        raise PublishError(f"cannot write the site to {out}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def foreign_files(target: Path) -> list[str]:
    """Paths below `target` that no former site put there; empty for a folder that does not exist.

    Raises `UsageError` for something that is neither a site nor a folder that may become one: without a manifest only
    dot files and folders that are themselves sites are accepted.
    """
    if not target.exists():
        return []
    if not target.is_dir():
        raise UsageError(f"{target.name} is a file; the site needs a folder")
    if (target / MANIFEST).is_file():
        listed = _manifest_files(target / MANIFEST)
        return [path for path in _all_files(target) if path not in listed and path != MANIFEST]
    for entry in sorted(target.iterdir()):
        is_site = entry.is_dir() and not entry.is_symlink() and (entry / MANIFEST).is_file()
        if not is_site and not (entry.is_file() and entry.name.startswith(".")):
            raise UsageError(
                f"{target.name} holds {entry.name} and no {MANIFEST}, so it is not a site of ours and stays untouched; "
                "give an empty or new folder"
            )
    return _all_files(target)


def _manifest_files(path: Path) -> set[str]:
    try:
        content = json.loads(path.read_bytes())
        if content["generator"] != _GENERATOR:
            raise ValueError("another generator")
        return set(content["files"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path.parent.name}/{MANIFEST} is not a manifest of ours; the folder stays untouched"
        ) from None


def _all_files(folder: Path) -> list[str]:
    found = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        found += [(Path(place) / name).relative_to(folder).as_posix() for name in [*names, *links]]
    return sorted(found)


def _write(staging: Path, files: dict[str, bytes], record_ids: list[str]) -> None:
    staging.chmod(0o777 & ~_umask())
    for name, data in files.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    manifest = {
        "generator": _GENERATOR,
        "disclaimer": wording.DISCLAIMER,
        "records": sorted(record_ids),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    (staging / MANIFEST).write_bytes(text.encode("utf-8", "replace") + b"\n")


def _carry_over(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


def _swap(staging: Path, target: Path) -> None:
    """Renames only; where the second one fails, the first is taken back."""
    if not target.exists():
        staging.rename(target)
        return
    former = Path(tempfile.mkdtemp(prefix=f".{target.name}-", suffix=".former", dir=target.parent))
    try:
        target.rename(former / target.name)
        try:
            staging.rename(target)
        except OSError:
            (former / target.name).rename(target)
            raise
    finally:
        if target.exists():
            shutil.rmtree(former, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
