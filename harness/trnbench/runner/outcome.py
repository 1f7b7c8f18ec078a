"""What became of a case whose child wrote no record: a status and one sentence, from how the process ended."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, NamedTuple

from trnbench.backends.failures import classify_message, failure_reason
from trnbench.status import ExitCode, Status

if TYPE_CHECKING:
    from trnbench.records.schema import Record
    from trnbench.runner.process import ChildResult

MAX_REASON = 400
SHELL_SIGNAL_BASE = 128

_FRAME = re.compile(r"=+|-+|_+|\.+|[FEsx.]+\s+\[|no tests ran|\d+ \w+ in |FAILED |ERROR |Current thread")
"""Starts of lines in which pytest frames what others said."""

_ERROR_LINE = re.compile(r"E\s{2,}(?=\S)")
_QUOTED_SOURCE = "    "
"""Tracebacks indent the source lines they quote; what such a line mentions did not happen."""

_EXIT_CODES: dict[int | None, tuple[Status, str]] = {
    ExitCode.CLEAN: (Status.SKIPPED, "the test ended without measuring anything"),
    ExitCode.NOTHING_MEASURED: (Status.SKIPPED, "the test ended without measuring anything"),
    ExitCode.FAILED: (Status.FAILED, "the test failed before it measured anything"),
    ExitCode.USAGE: (Status.FAILED, "pytest could not run the test"),
    ExitCode.BACKEND_UNAVAILABLE: (Status.CRASHED, "the backend opened for the probe but not for the case"),
}


class Outcome(NamedTuple):
    """How a case ended, and its record once there is one."""

    status: Status
    reason: str
    record: Record | None = None


def judge(child: ChildResult, timeout: float) -> Outcome:
    """Say why a child left no record. Memory is named as the cause only where its own output says so."""
    lines = spoken_lines(child.output)
    said = last_words(lines)
    if child.interrupted:
        return Outcome(Status.INTERRUPTED, "the run was interrupted while this case was running")
    if child.timed_out:
        undead = "; its process survived SIGKILL and still holds the device" if child.returncode is None else ""
        return Outcome(Status.TIMEOUT, _with_words(f"ran longer than the limit of {timeout:g} s{undead}", said))
    text = "\n".join(_ERROR_LINE.sub("", line) for line in lines)
    evidence = classify_message(text)
    number = _signal_number(child.returncode)
    if number is not None:
        ended = f"the process was killed by {_signal_name(number)}"
        if number == signal.SIGKILL:
            ended += ", by a person, a job scheduler or the kernel for want of memory"
        status = Status.OOM if evidence is Status.OOM else Status.CRASHED
        return Outcome(status, _with_words(ended, said))
    if evidence is not None:
        return Outcome(evidence, bounded(failure_reason(text)))
    status, sentence = _EXIT_CODES.get(
        child.returncode, (Status.CRASHED, f"the process ended with exit code {child.returncode}")
    )
    return Outcome(status, _with_words(sentence, said))


def spoken_lines(output: str) -> list[str]:
    """The lines that a pytest child or the runtime in it said, without pytest's frame and quoted source code."""
    lines = (line.rstrip() for line in output.splitlines())
    return [line for line in lines if line and not line.startswith(_QUOTED_SOURCE) and not _FRAME.match(line)]


def last_words(lines: list[str]) -> str:
    """The most telling of `spoken_lines`: the head of the last error that pytest reports, else the last line."""
    errors = [_ERROR_LINE.sub("", line) for line in lines if _ERROR_LINE.match(line)]
    heads = [line for line in errors if re.match(r"[\w.]+(: |$)", line)]
    return (heads or errors or lines or [""])[-1]


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
