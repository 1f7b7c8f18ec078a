"""What became of a case whose child wrote no record: a status and one sentence, from how the process ended."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, NamedTuple

from trnbench.backends.failures import classify_message, failure_reason
from trnbench.status import ExitCode, Status

if TYPE_CHECKING:
    from trnbench.runner.process import ChildResult

MAX_REASON = 400
SHELL_SIGNAL_BASE = 128

BENIGN: frozenset[Status] = frozenset({Status.OK, Status.SKIPPED, Status.UNSUPPORTED})
"""Outcomes that do not make a run fail: a case that does not apply here says nothing against the code or the chip."""

_PYTEST_NOISE = re.compile(r"^(=+|-+|_+|\.+|[FEsx.]+\s+\[|no tests ran|\d+ \w+ in |FAILED |ERROR |Current thread)")


_EXIT_CODES: dict[int | None, tuple[Status, str]] = {
    ExitCode.CLEAN: (Status.SKIPPED, "the test ended without measuring anything"),
    ExitCode.NOTHING_MEASURED: (Status.SKIPPED, "the test ended without measuring anything"),
    ExitCode.FAILED: (Status.FAILED, "the test failed before it measured anything"),
}


class Outcome(NamedTuple):
    """Status and reason of a case that the driver has to write down itself."""

    status: Status
    reason: str


def judge(child: ChildResult, timeout: float) -> Outcome:
    """Say why a child left no record. Memory is named as the cause only where its own output says so."""
    said = said_last(child.output)
    if child.interrupted:
        return Outcome(Status.INTERRUPTED, "the run was interrupted while this case was running")
    if child.timed_out:
        undead = "; its process survived SIGKILL and still holds the device" if child.returncode is None else ""
        return Outcome(Status.TIMEOUT, _with_words(f"ran longer than the limit of {timeout:g} s{undead}", said))
    evidence = classify_message(child.output)
    number = _signal_number(child.returncode)
    if number is not None:
        ended = f"the process was killed by {_signal_name(number)}"
        if number == signal.SIGKILL:
            ended += ", by a person, a job scheduler or the kernel for want of memory"
        status = Status.OOM if evidence is Status.OOM else Status.CRASHED
        return Outcome(status, _with_words(ended, said))
    if evidence is not None:
        return Outcome(evidence, bounded(failure_reason(child.output)))
    status, sentence = _EXIT_CODES.get(
        child.returncode, (Status.CRASHED, f"the process ended with exit code {child.returncode}")
    )
    return Outcome(status, _with_words(sentence, said))


def said_last(output: str) -> str:
    """The most telling line of a pytest child's output: its last error line, else the last line that is not frame."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if re.match(r"E\s{2,}\S", line)]
    if errors:
        return errors[-1]
    return next((line for line in reversed(lines) if not _PYTEST_NOISE.match(line)), "")


def bounded(text: str) -> str:
    """`text` cut to `MAX_REASON` characters; what names this machine is taken out when the record is assembled."""
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 3]}..."


def _with_words(sentence: str, said: str) -> str:
    return bounded(f"{sentence}; its last words: {said}" if said else sentence)


def _signal_number(code: int | None) -> int | None:
    """The signal that ended a process: subprocess says -9, a shell in between says 137; None for an exit code."""
    if code is None:
        return None
    number = -code if code < 0 else code - SHELL_SIGNAL_BASE
    return number if number in signal.valid_signals() else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
