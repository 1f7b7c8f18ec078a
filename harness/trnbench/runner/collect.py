"""Ask pytest, in a child process, which cases the suites declare. Opens no device and needs no torch."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trnbench.case import Case
from trnbench.runner.process import run_child
from trnbench.status import TrnBenchError, UsageError
from trnbench.wording import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.runner.interrupt import Stop

COLLECT_TIMEOUT_SECONDS = 300.0


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One case of the suites and the pytest item that runs it; `nodeid` is relative to the suites' root."""

    nodeid: str
    case: Case


def suites_root(suites: Path) -> Path:
    """The folder that pytest's node ids are relative to, whatever the working directory is."""
    return (suites if suites.is_dir() else suites.parent).absolute()


def pytest_command(suites: Path) -> list[str]:
    """The start of every pytest command line that the driver runs.

    Nothing is cached in the user's folder, and hypothesis, where installed, is kept from loading a second's worth of
    modules into processes that have no use for it.
    """
    return [
        *(sys.executable, "-m", "pytest", f"--rootdir={suites_root(suites)}", "-q", "--color=no"),
        *("-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
    ]


def collect(
    suites: Path,
    *,
    stop: Stop,
    backend: str | None,
    tier: str | None,
    select: str | None,
    suite: str | None = None,
    more: Sequence[str] = (),
) -> list[Listed]:
    """The selected cases in the suites' own order; empty when nothing matches.

    `select` is a pytest -k expression, `suite` the name that cases declare as theirs, `more` what else pytest is told.
    Raises `UsageError`, quoting pytest, where a suite cannot be read, and where no case of the tier belongs to `suite`.
    """
    with tempfile.TemporaryDirectory(prefix="trnbench-") as folder:
        listing = Path(folder) / "cases.json"
        command = [*pytest_command(suites), str(suites.absolute()), "--trnbench-list", str(listing)]
        if backend is not None:
            command += ["--backend", backend]
        if tier is not None:
            command += ["--tier", tier]
        if select is not None:
            command += ["-k", select]
        command += more
        child = run_child(command, timeout=COLLECT_TIMEOUT_SECONDS, stop=stop)
        if child.interrupted:
            return []
        if child.timed_out:
            raise UsageError(f"reading the suites in {suites} took longer than {COLLECT_TIMEOUT_SECONDS:g} s")
        if not listing.exists():
            raise UsageError(f"the suites in {suites} cannot be read: {_first_error(child.output)}")
        try:
            listed = msgspec.json.decode(listing.read_bytes(), type=list[Listed])
        except msgspec.DecodeError as error:
            raise TrnBenchError(f"the list of cases that pytest wrote cannot be read: {error}") from None
    if suite is None:
        return listed
    known = sorted({item.case.suite for item in listed})
    if known and suite not in known:
        raise UsageError(f"no selected case belongs to --suite {suite}; {nearest(suite, known, _there_are(known))}")
    return [item for item in listed if item.case.suite == suite]


def _there_are(suites: list[str]) -> str:
    return f"there are cases of {', '.join(suites)}"


def _first_error(output: str) -> str:
    """The line of a failed collection that says why: pytest marks it with a leading E, or with ERROR."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for prefix in ("E  ", "ERROR: ", "ERROR"):
        for line in lines:
            if line.startswith(prefix):
                return line.removeprefix(prefix).strip()[:300]
    return lines[-1][:300] if lines else "pytest ended without a word"
