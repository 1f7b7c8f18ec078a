"""The strict reader of catalog tables: every fault is one sentence with file, line and column."""

from __future__ import annotations

import csv
import io
from datetime import date
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.catalog.tables import parse_table, read_table
from trnbench.status import UsageError

if TYPE_CHECKING:
    from pathlib import Path


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the tables in these tests."""

    name: str
    count: int
    rate: float | None
    day: date
    kind: Literal["x", "y"]
    note: str = ""


HEADER = "name,count,rate,day,kind,note\n"
GOOD = "a,1,2.5,2026-11-30,x,fine\n"


def parse(text: str) -> list[Example]:
    return parse_table(text, "t.csv", Example, ["name"])


def test_a_good_table_reads_in_any_column_order() -> None:
    """Columns are found by name; a missing optional column takes its default."""
    (row,) = parse("kind,day,rate,count,name\ny,2026-11-30,,7,b\n")
    assert row == Example(name="b", count=7, rate=None, day=date(2026, 11, 30), kind="y")


def test_an_empty_cell_is_unknown_only_where_that_is_allowed() -> None:
    """Unknown is None, never 0: an empty rate is None, an empty count is an error."""
    assert parse(HEADER + "a,1,,2026-11-30,x,\n")[0].rate is None
    with pytest.raises(UsageError, match=r"t\.csv line 2, column count: the cell is empty"):
        parse(HEADER + "a,,2.5,2026-11-30,x,\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv is empty; its first line must name the columns"),
        ("name,count,rate,day,kind,speed\n", "t.csv line 1: unknown column 'speed'; the columns are name, count"),
        ("name,count,rate,day,name\n", "t.csv line 1: column 'name' is given twice"),
        ("name,count,rate\n", "t.csv line 1: missing column 'day', 'kind'"),
        (HEADER + GOOD + "b,1,2.5,2026-11-30,x\n", "t.csv line 3: 5 cells, but the header names 6 columns"),
        (HEADER + GOOD + "b,1,2.5,2026-11-30,x,n,m\n", "t.csv line 3: 7 cells"),
        (HEADER + GOOD + GOOD, "t.csv line 3: name a was already given in line 2"),
        (HEADER + "a,one,2.5,2026-11-30,x,\n", "t.csv line 2, column count: 'one' does not fit"),
        (HEADER + "a,1.5,2.5,2026-11-30,x,\n", "t.csv line 2, column count: '1.5' does not fit"),
        (HEADER + "a,1,fast,2026-11-30,x,\n", "t.csv line 2, column rate: 'fast' does not fit"),
        (HEADER + "a,1,nan,2026-11-30,x,\n", "t.csv line 2, column rate: 'nan'"),
        (HEADER + "a,1,inf,2026-11-30,x,\n", "t.csv line 2, column rate: 'inf'"),
        (HEADER + "a,1,null,2026-11-30,x,\n", "t.csv line 2, column rate: 'null' does not fit"),
        (HEADER + "a,1,2.5,30.11.2026,x,\n", "t.csv line 2, column day: '30.11.2026' does not fit"),
        (HEADER + "a,1,2.5,2026-11-30,z,\n", "t.csv line 2, column kind: 'z' does not fit"),
        (HEADER + '"two\nlines",1,2.5,2026-11-30,x,\n' + "b,no,1,2026-11-30,x,\n", "t.csv line 4, column count"),
        (HEADER + 'a,1,2.5,2026-11-30,x,"open\n', "t.csv line .*: not CSV"),
    ],
)
def test_faults_name_file_line_and_column(text: str, message: str) -> None:
    """H1-like strictness: no fault passes, and each says where it is."""
    with pytest.raises(UsageError, match=message):
        parse(text)


def test_exponents_are_numbers_and_words_are_words() -> None:
    """H1: 1e-4 is a number; a region called "no" stays text, as do 1:30 and 1.10."""
    rows = parse(HEADER + "".join(f"{name},1,1e-4,2026-11-30,x,{name}\n" for name in ("no", "1:30", "1.10")))
    assert [row.name for row in rows] == ["no", "1:30", "1.10"]
    assert rows[0].rate == 0.0001


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Absent and non-UTF-8 files are one sentence; a byte order mark is not a fault."""
    with pytest.raises(UsageError, match=r"cannot read .*absent.csv: No such file"):
        read_table(tmp_path / "absent.csv", Example, ["name"])
    latin = tmp_path / "latin.csv"
    latin.write_bytes((HEADER + "caf\u00e9,1,1,2026-11-30,x,\n").encode("latin-1"))
    with pytest.raises(UsageError, match=r"latin\.csv is not UTF-8"):
        read_table(latin, Example, ["name"])
    marked = tmp_path / "marked.csv"
    marked.write_bytes(b"\xef\xbb\xbf" + (HEADER + GOOD).encode())
    assert read_table(marked, Example, ["name"])[0].name == "a"


def fault(text: str) -> str:
    """The sentence with which a text is refused; empty where it is a table."""
    try:
        parse(text)
    except UsageError as error:
        return str(error)
    return ""


texts = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1).map(str.strip).filter(bool)


@given(
    rows=st.lists(
        st.tuples(texts, st.integers(-(2**53), 2**53), st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        unique_by=lambda row: row[0],
        max_size=5,
    )
)
def test_what_is_written_is_read(rows: list[tuple[str, int, float | None]]) -> None:
    """Any text and any finite number survive the way through a file."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["name", "count", "rate", "day", "kind", "note"])
    for name, count, rate in rows:
        writer.writerow([name, count, "" if rate is None else repr(rate), "2026-11-30", "x", ""])
    assert [(row.name, row.count, row.rate) for row in parse(out.getvalue())] == rows


@given(text=st.text(max_size=200))
def test_any_text_is_a_table_or_one_sentence(text: str) -> None:
    """Nothing but UsageError ever leaves the parser, whatever the file holds."""
    for candidate in (text, HEADER + text, HEADER + "a,1,2.5,2026-11-30," + text):
        message = fault(candidate)
        assert message == "" or message.startswith("t.csv")
