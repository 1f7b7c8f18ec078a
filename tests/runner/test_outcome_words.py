"""How the driver reads what a child said before it ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.runner.outcome import MAX_REASON, judge, last_words, spoken_lines
from trnbench.runner.process import ChildResult
from trnbench.status import Status

PYTEST_OUTPUT = """
=================================== FAILURES ===================================
_________________________________ test_case[1] _________________________________
test_demo.py:18: in test_case
    if n == 1: raise RuntimeError('CUDA out of memory')
E   ValueError: the answer is wrong
E   in two places
=========================== short test summary info ============================
FAILED test_demo.py::test_case[1] - ValueError: the answer is wrong
1 failed in 0.10s
"""


def child(output: str = "", returncode: int | None = 0, *, timed_out: bool = False) -> ChildResult:
    return ChildResult(returncode=returncode, seconds=1.0, timed_out=timed_out, interrupted=False, output=output)


def test_quoted_source_is_no_evidence() -> None:
    """G8: a traceback quotes code that mentions memory; the error that was raised is another."""
    outcome = judge(child(PYTEST_OUTPUT, 1), 10)
    assert outcome.status is Status.FAILED
    assert outcome.reason.endswith("its last words: ValueError: the answer is wrong")


def test_error_line_is_evidence() -> None:
    outcome = judge(child(PYTEST_OUTPUT.replace("ValueError: the answer is wrong", "MemoryError: 3 GiB"), 1), 10)
    assert outcome.status is Status.OOM


def test_last_line_where_pytest_said_nothing() -> None:
    assert last_words(spoken_lines("one\nlast words\n\n")) == "last words"
    assert last_words(spoken_lines("")) == ""


@pytest.mark.parametrize("code", [-9, 137])
def test_killed_is_memory_only_with_evidence(code: int) -> None:
    """G7: `Killed` and 137 alone say nothing about memory; an allocation failure before it does."""
    assert judge(child("Killed", code), 10).status is Status.CRASHED
    assert judge(child("std::bad_alloc\nKilled", code), 10).status is Status.OOM


def test_process_that_cannot_be_ended_is_named() -> None:
    outcome = judge(child(returncode=None, timed_out=True), 10)
    assert outcome.status is Status.TIMEOUT
    assert "survived SIGKILL" in outcome.reason


@given(st.text(), st.one_of(st.none(), st.integers(-70, 300)), st.booleans())
def test_any_ending_has_a_short_reason_and_is_never_ok(output: str, code: int | None, timed_out: bool) -> None:
    outcome = judge(child(output, code, timed_out=timed_out), 10)
    assert outcome.status is not Status.OK
    assert 0 < len(outcome.reason) <= MAX_REASON
