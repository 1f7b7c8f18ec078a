"""What the templates are given: text that is ready to print, with its link. No template computes or rounds anything."""

from __future__ import annotations

from typing import Literal

import msgspec

from trnbench.report.names import file_stem
from trnbench.report.plots import Drawing

TagKind = Literal["good", "bad", "side", ""]


class Tag(msgspec.Struct, frozen=True):
    """A verdict or status: a sign and words, coloured by kind."""

    kind: TagKind
    sign: str
    words: str


class Cell(msgspec.Struct, frozen=True):
    """Text with an optional link (a path from the site's root, or #fragment), a second line and a tag."""

    text: str = ""
    href: str = ""
    note: str = ""
    tag: Tag | None = None


class Column(msgspec.Struct, frozen=True):
    """A column's heading and unit; `style` is "n" for numbers, "nowrap", "reason", "name" or empty."""

    name: str
    style: str = ""
    unit: str = ""

    @property
    def numeric(self) -> bool:
        """Whether the column is set flush right."""
        return self.style == "n"


class TableRow(msgspec.Struct, frozen=True):
    """One row; `differs` marks a row in which two sides are unlike."""

    cells: list[Cell]
    differs: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose every row has one cell per column."""

    id: str
    caption: str
    columns: list[Column]
    rows: list[TableRow]
    headed: bool = False
    """A heading says already what the caption says: it is then kept for screen readers only."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(f"table {self.id}: a row has {len(row.cells)} cells for {len(self.columns)} columns")


class RowGroup(msgspec.Struct, frozen=True):
    """Rows under a heading of their own."""

    heading: str
    rows: list[TableRow]


class GroupedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table in groups of rows; every row has one cell per column."""

    id: str
    caption: str
    columns: list[Column]
    groups: list[RowGroup]
    headed: bool = False

    def __post_init__(self) -> None:
        for group in self.groups:
            Table(id=self.id, caption=self.caption, columns=self.columns, rows=group.rows)

    @property
    def rows(self) -> list[TableRow]:
        """The rows of all groups."""
        return [row for group in self.groups for row in group.rows]


class PageLink(msgspec.Struct, frozen=True, kw_only=True):
    """A page that exists: its name in the navigation, its question, and what it says in a sentence."""

    path: str
    short: str
    title: str
    sentence: str


class Fact(msgspec.Struct, frozen=True):
    """One line of a list of facts."""

    name: str
    value: Cell


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """An image in four forms, its alternative text, and the id of the table that holds its values."""

    drawing: Drawing
    name: str
    alt: str
    caption: str
    table_id: str

    @property
    def files(self) -> dict[str, bytes]:
        """The image files, by path from the site's root."""
        drawing = self.drawing
        return {
            self.wide: drawing.wide,
            self.narrow: drawing.narrow,
            self.wide_dark: drawing.wide_dark,
            self.narrow_dark: drawing.narrow_dark,
        }

    @property
    def wide(self) -> str:
        """Path of the form for wide screens."""
        return f"plots/{file_stem(self.name)}.svg"

    @property
    def narrow(self) -> str:
        """Path of the form for narrow screens."""
        return f"plots/{file_stem(self.name)}.narrow.svg"

    @property
    def wide_dark(self) -> str:
        """Path of the dark form for wide screens."""
        return f"plots/{file_stem(self.name)}.dark.svg"

    @property
    def narrow_dark(self) -> str:
        """Path of the dark form for narrow screens."""
        return f"plots/{file_stem(self.name)}.narrow-dark.svg"

    @property
    def wide_size(self) -> tuple[int, int]:
        """Width and height in px of the wide form."""
        return self.drawing.wide_size

    @property
    def narrow_size(self) -> tuple[int, int]:
        """Width and height in px of the narrow form."""
        return self.drawing.narrow_size
