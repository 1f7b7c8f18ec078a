"""Take a passport in a fresh child process: cores are exclusive, flags read at start, and a runtime may crash."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trnbench.records.passport import Passport
from trnbench.runner.machine import ProbeFailure, as_error, how_it_ended
from trnbench.runner.process import run_child
from trnbench.status import TrnBenchError

if TYPE_CHECKING:
    from trnbench.runner.interrupt import Stop

PASSPORT_TIMEOUT_SECONDS = 1800.0
"""A passport takes a minute on a CPU; a compiler that takes ten seconds a graph gets its time as well."""


class PassportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the child writes: exactly one of the two is set."""

    passport: Passport | None = None
    failure: ProbeFailure | None = None


def passport_of(
    backend: str, mode: str, *, child_module: str, stop: Stop, results: Path, timeout: float = PASSPORT_TIMEOUT_SECONDS
) -> Passport | None:
    """Run `python -m child_module` on the backend and return its passport; None where `stop` was requested meanwhile.

    `results` is where passports go: it does not count as a change of the checkout. Raises `BackendUnavailable` or
    `UsageError` as the child reports, and `TrnBenchError` where it crashed or took longer than `timeout` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="trnbench-") as folder:
        answer_file = Path(folder) / "passport.json"
        command = [sys.executable, "-m", child_module, "--backend", backend, "--mode", mode, "--out", str(answer_file)]
        command += ["--results-dir", str(results.absolute())]
        child = run_child(command, timeout=timeout, stop=stop)
        if child.interrupted:
            return None
        if child.timed_out:
            raise TrnBenchError(f"the passport of backend {backend} was not finished within {timeout:g} s")
        if not answer_file.exists():
            raise TrnBenchError(f"the passport of backend {backend} was not finished: {how_it_ended(child)}")
        answer = msgspec.json.decode(answer_file.read_bytes(), type=PassportAnswer)
    if answer.failure is not None:
        raise as_error(answer.failure)
    assert answer.passport is not None
    return answer.passport
