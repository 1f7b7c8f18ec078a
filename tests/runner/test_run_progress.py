"""What is shown of a run, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from trnbench.case import Case, grid
from trnbench.runner.progress import BarReporter, PlainReporter, reporter_for, spoken
from trnbench.status import Status

CASES: list[Case] = grid(
    suite="demo",
    tier="smoke",
    workload="nano",
    phase="prefill",
    precision="fp32",
    mode="eager",
    batch=1,
    sequence=[1, 2, 3],
)


def test_plain_lines_estimate_the_time_left() -> None:
    stream = io.StringIO()
    reporter = PlainReporter(stream)
    reporter.start(3)
    reporter.case_ended(CASES[0], Status.OK, "", 10.0)
    reporter.case_ended(CASES[1], Status.OOM, "needs more", 30.0)
    reporter.case_ended(CASES[2], Status.OK, "", 20.0)
    first, second, reason, third = stream.getvalue().splitlines()
    assert first.startswith("[1/3] ok")
    assert first.endswith("about 20 s left")
    assert second.endswith("about 20 s left")
    assert "needs more" in reason
    assert "left" not in third


def test_bar_on_a_terminal_shows_failures_above_it() -> None:
    """A status that is not ok stays readable after the bar is gone; text is never taken for markup."""
    file = io.StringIO()
    reporter = reporter_for(Console(file=file, force_terminal=True, width=100))
    assert isinstance(reporter, BarReporter)
    reporter.start(2)
    reporter.case_started(CASES[0])
    reporter.case_ended(CASES[0], Status.CRASHED, "ended in [bold]", 1.0)
    reporter.case_started(CASES[1])
    reporter.case_ended(CASES[1], Status.OK, "", 1.0)
    reporter.finish()
    shown = file.getvalue()
    assert f"crashed: {CASES[0].id}: ended in [bold]" in shown
    assert "2/2" in shown
    assert "left:" in shown


def test_no_bar_without_a_terminal() -> None:
    assert isinstance(reporter_for(Console(file=io.StringIO())), PlainReporter)


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (720, "12 min"), (11_100, "3 h 5 min")])
def test_durations_as_people_say_them(seconds: float, text: str) -> None:
    assert spoken(seconds) == text
