"""State of the checkout that a run was made from, in one call of git: never guessed, never raising.

`results/` and `reports/` at the top of the checkout, and the folders a caller names as outputs, are left out: the
tool writes there itself, and one record must not make the next one dirty. Files that git ignores do not count.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.records.schema import Git

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OUTPUT_FOLDERS = ("results", "reports")
TIMEOUT_SECONDS = 10.0
MAX_HASHED_BYTES = 64 * 1024 * 1024
MAX_HASHED_FILES = 10_000

# Set by git for its hooks: with them, `git -C` would answer for the hook's repository and index instead of `start`'s.
_HOOK_VARIABLES = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE"}
)


def git_state(start: Path, outputs: Sequence[Path] = ()) -> tuple[Git, dict[str, str]]:
    """Commit, dirtiness and diff hash of the checkout that holds `start`, and a reason for each null among them.

    `dirty` counts staged, unstaged and untracked changes. `diff_hash` (16 hex digits) covers path and content of
    every changed and untracked file, so two runs of the same uncommitted code share it; it is null when clean. The
    reasons are keyed by field: `commit`, `dirty`, `diff_hash`. They name no path and no host.
    """
    try:
        listing = _status(start, outputs)
    except FileNotFoundError:
        return _unknown("git is not installed, or the folder is gone")
    except subprocess.TimeoutExpired:
        return _unknown(f"git did not answer within {TIMEOUT_SECONDS:g} s")
    except subprocess.CalledProcessError as error:
        return _unknown(_refusal(error))
    except OSError as error:
        return _unknown(f"git could not be started: {error.strerror}")
    lines = listing.split(b"\0")
    commit = next(
        (line.removeprefix(b"# branch.oid ").decode() for line in lines if line.startswith(b"# branch.oid ")), None
    )
    reasons: dict[str, str] = {}
    if commit is None or commit == "(initial)":
        commit, reasons["commit"] = None, "the checkout has no commit yet"
    changes = sorted(line for line in lines if line[:2] in (b"1 ", b"u ", b"? "))
    if not changes:
        reasons["diff_hash"] = "nothing differs from the commit"
        return Git(commit=commit, dirty=False, diff_hash=None), reasons
    diff_hash = _diff_hash(_top(start), changes)
    if diff_hash is None:
        reasons["diff_hash"] = "the changed files are too many or too large to hash, or could not be read"
    return Git(commit=commit, dirty=True, diff_hash=diff_hash), reasons


def _unknown(reason: str) -> tuple[Git, dict[str, str]]:
    return Git(commit=None, dirty=None, diff_hash=None), dict.fromkeys(("commit", "dirty", "diff_hash"), reason)


def _refusal(error: subprocess.CalledProcessError) -> str:
    message = error.stderr or b""
    if b"not a git repository" in message:
        return "not in a git checkout"
    if b"dubious ownership" in message:
        return "git refuses this checkout because another user owns it (safe.directory)"
    return f"git failed with exit code {error.returncode}"


def _status(start: Path, outputs: Sequence[Path]) -> bytes:
    excluded = [f":(top,exclude){folder}" for folder in OUTPUT_FOLDERS]
    # A path outside the checkout makes git refuse the whole command, so only those below `start`'s checkout are named.
    top = _top(start)
    for output in outputs:
        resolved = output.resolve()
        if resolved != top and resolved.is_relative_to(top):
            excluded.append(f":(top,exclude,literal){resolved.relative_to(top).as_posix()}")
    environment = {name: value for name, value in os.environ.items() if name not in _HOOK_VARIABLES}
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(start), "status"]
    command += ["--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--no-renames", "--", ":(top)", *excluded]
    finished = subprocess.run(
        command,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_SECONDS,
        env={**environment, "LC_ALL": "C"},
    )
    return finished.stdout


def _top(start: Path) -> Path:
    """Top of the checkout: the nearest folder with a `.git`, which is a file in worktrees and submodules."""
    here = start.resolve()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _diff_hash(top: Path, changes: list[bytes]) -> str | None:
    """Hash of what is on disk for each change, and of git's own line for it, which holds the staged object."""
    digest = hashlib.sha256()
    budget = MAX_HASHED_BYTES
    if len(changes) > MAX_HASHED_FILES:
        return None
    for change in changes:
        fields = {b"1 ": 8, b"u ": 10, b"? ": 1}[change[:2]]
        name = change.split(b" ", fields)[fields]
        digest.update(len(change).to_bytes(8, "big") + change)
        try:
            for block in _content(Path(os.fsdecode(os.fsencode(top) + b"/" + name))):
                budget -= len(block)
                if budget < 0:
                    return None
                digest.update(block)
        except OSError:
            return None
    return digest.hexdigest()[:16]


def _content(path: Path) -> Iterator[bytes]:
    """Kind and bytes of one changed path; a folder here is a nested repository, known by git's line alone."""
    if path.is_symlink():
        yield b"link " + os.fsencode(path.readlink())
    elif path.is_dir():
        yield b"folder"
    elif not path.exists():
        yield b"deleted"
    elif path.is_file():
        yield b"file "
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                yield block
    else:
        yield b"special"
