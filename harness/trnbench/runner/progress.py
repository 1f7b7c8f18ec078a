"""What the person at the terminal sees of a run: a bar with the time left, or plain lines where nobody watches."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from trnbench.status import Status

if TYPE_CHECKING:
    from rich.console import Console

    from trnbench.case import Case

REFRESHES_PER_SECOND = 1
"""Rare on purpose: drawing the bar takes processor time that a case measured on the CPU would miss."""


class Reporter(Protocol):
    """Receives the course of a run, in order."""

    def note(self, text: str) -> None:
        """One sentence about the run as a whole."""

    def start(self, total: int) -> None:
        """`total` cases are about to run."""

    def case_started(self, case: Case) -> None:
        """`case` runs from now on."""

    def case_ended(self, case: Case, status: Status, reason: str, seconds: float) -> None:
        """`case` took `seconds` and ended with `status`; `reason` is empty where it is ok."""

    def finish(self) -> None:
        """No more cases; also called after an error."""


class PlainReporter:
    """One line per finished case with the estimated time left: for logs, pipes and CI."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._total = 0
        self._seconds: list[float] = []

    def note(self, text: str) -> None:
        self._line(text)

    def start(self, total: int) -> None:
        self._total = total
        self._seconds = []

    def case_started(self, case: Case) -> None:
        """A log shows finished cases only."""

    def case_ended(self, case: Case, status: Status, reason: str, seconds: float) -> None:
        self._seconds.append(seconds)
        width = len(str(self._total))
        count = f"[{len(self._seconds):>{width}}/{self._total}]"
        left = self._total - len(self._seconds)
        estimate = sum(self._seconds) / len(self._seconds) * left
        remaining = f"  about {spoken(estimate)} left" if left else ""
        self._line(f"{count} {status.value:<14} {case.id}  {seconds:.1f} s{remaining}")
        if reason:
            self._line(f"{'':>{len(count)}} {reason}")

    def finish(self) -> None:
        """Nothing to take down."""

    def _line(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class BarReporter:
    """A progress bar with the estimated time left, above it one line for every case that did not end ok."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
        )
        self._task: TaskID | None = None

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def start(self, total: int) -> None:
        self._task = self._progress.add_task("", total=total)
        self._progress.start()

    def case_started(self, case: Case) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=case.id)

    def case_ended(self, case: Case, status: Status, reason: str, seconds: float) -> None:
        if status is not Status.OK:
            self.note(f"{status.value}: {case.id}: {reason}")
        if self._task is not None:
            self._progress.advance(self._task)

    def finish(self) -> None:
        self._progress.stop()
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


def reporter_for(console: Console) -> Reporter:
    """A bar on a terminal, plain lines anywhere else."""
    return BarReporter(console) if console.is_terminal else PlainReporter()


def spoken(seconds: float) -> str:
    """A duration as people say it: `40 s`, `12 min`, `3 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
