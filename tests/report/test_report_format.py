"""Numbers, instants, names and orders as the pages print them."""

from __future__ import annotations

import math
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_samples import sample_case, sample_record

from trnbench.report import format as printed
from trnbench.report.names import file_stem, printable, rerun_command
from trnbench.report.ordering import case_key, natural_key, record_key

if TYPE_CHECKING:
    from pathlib import Path


def test_sizes_name_their_base() -> None:
    """B16: memory is binary and says so, in every size a chip can have."""
    assert printed.byte_size(83_000_000_000) == "77.3 GiB"
    for exponent in range(50):
        text = printed.byte_size(3 * 2**exponent)
        assert re.fullmatch(r"[\d,.]+ (B|[KMGTP]iB)", text), text
    assert printed.byte_size(None) == "n/a"


@given(st.floats(min_value=1e-12, max_value=1e15))
def test_numbers_keep_their_value(value: float) -> None:
    """What is printed reads back as the value, to the digits shown."""
    assert float(printed.number(value).replace(",", "")) == pytest.approx(value, rel=1e-3)
    assert float(printed.trimmed(value).replace(",", "")) == pytest.approx(value, rel=1e-3)
    assert float(printed.ratio(value).replace(",", "")) == pytest.approx(value, rel=1e-2)


@given(st.floats(min_value=1e-7, max_value=1e6))
def test_durations_keep_their_value(value: float) -> None:
    """The unit may change, the duration may not."""
    text, unit = printed.seconds(value).split(" ")
    scale = {"s": 1.0, "ms": 1e-3, "\u00b5s": 1e-6}[unit]
    assert float(text.replace(",", "")) * scale == pytest.approx(value, rel=1e-3)


def test_what_is_not_a_number_says_so() -> None:
    """Missing and non-finite values are words, never 0 and never nan."""
    for function in (printed.number, printed.ratio, printed.seconds, printed.usd, printed.percent):
        assert function(None) == "n/a"
        assert function(math.nan) == function(math.inf) == "not finite"
    assert printed.interval(1.0, None) == "n/a"
    assert printed.number(0.0) == "0"


def test_dollars_have_cents() -> None:
    """Large sums are cut at the cent, small ones keep four digits."""
    assert printed.usd(21972.5) == "$21,972.50"
    assert printed.usd(0.00423456) == "$0.004235"


def test_times_are_one_instant_in_utc() -> None:
    """D17: whatever the offset, the page states UTC, and order follows the instant, not the text."""
    assert printed.utc("2026-11-30T08:00:00+09:00") == "2026-11-29 23:00:00 UTC"
    assert printed.utc("2026-11-30T00:30:00Z") == "2026-11-30 00:30:00 UTC"
    assert printed.utc("2026-11-30T00:30:00.25") == "2026-11-30 00:30:00 UTC"
    assert printed.utc("yesterday") == "yesterday"
    tokyo = sample_record(run="tokyo", started_at="2026-11-30T08:00:00+09:00")
    london = sample_record(run="london", started_at="2026-11-30T00:30:00+00:00")
    assert sorted([london, tokyo], key=record_key) == [tokyo, london]


def test_numbers_are_ordered_as_numbers() -> None:
    """F9: batches by size, versions by version, names by the numbers in them."""
    cases = [sample_case(batch=batch) for batch in (16, 2, 1, 8)]
    assert [case.batch for case in sorted(cases, key=case_key)] == [1, 2, 8, 16]
    assert sorted(["0.10", "0.9", "0.10rc1"], key=natural_key) == ["0.9", "0.10rc1", "0.10"]
    assert sorted(["b16", "b2", "b1", "b8"], key=natural_key) == ["b1", "b2", "b8", "b16"]
    assert sorted(["torch 2.13.0", "torch 2.9.1", "cpu"], key=natural_key) == ["cpu", "torch 2.9.1", "torch 2.13.0"]


@given(st.text())
def test_file_names_are_safe_and_apart(text: str) -> None:
    """F6: any text gives one portable file name, and a changed text never takes another's name."""
    stem = file_stem(text)
    assert re.fullmatch(r"[a-z0-9_-][a-z0-9._-]*", stem)
    assert len(stem) < 200
    assert stem == text or re.search(r"-[0-9a-f]{10}$", stem)


def test_file_names_of_similar_texts_differ() -> None:
    """Texts that differ only in case or in an unsafe character keep two names."""
    texts = ["run-1", "Run-1", "run/1", "run 1", "../run-1", "run_1", "", "x" * 300, "x" * 301]
    assert len({file_stem(text) for text in texts}) == len(texts)


@given(st.text(alphabet=st.characters()))
def test_printable_text_can_be_stored(text: str) -> None:
    """D18: what is printed is valid UTF-8, and free of the characters that XML refuses."""
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f]", printable(text))
    printable(text).encode("utf-8")


def test_the_command_selects_exactly_the_case(tmp_path: Path) -> None:
    """The printed selection matches the case and no longer name that begins with it."""
    short, long = sample_case(batch=8), sample_case(batch=8, micro_batch=4)
    assert long.id.startswith(short.id)
    command = rerun_command(sample_record(case=short), runs=3)
    assert command == f"trnbench run --backend cuda --select '[{short.id}]' --runs 3"
    suite = tmp_path / "test_suite.py"
    suite.write_text(
        f"import pytest\n@pytest.mark.parametrize('case', [{short.id!r}, {long.id!r}])\ndef test_step(case): pass\n",
        encoding="utf-8",
    )
    selected = shlex.split(command)[shlex.split(command).index("--select") + 1]
    options = ["-q", "--collect-only", "-p", "no:cacheprovider", "-p", "no:trnbench", "--rootdir", str(tmp_path)]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", str(suite), "-k", selected, *options],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert [line for line in found.stdout.splitlines() if "::" in line] == [f"test_suite.py::test_step[{short.id}]"]
