"""How a series looks: colour, marker, line and hatch together, so no two look alike and none relies on hue (F3, F4).

Colours are Okabe and Ito's palette, made for colour-blind readers (https://jfly.uni-koeln.de/color/), without its
yellow, which vanishes on paper, and with its black last. Every marker has an outline in the ink colour, so that the
pale colours keep their contrast.
"""

from __future__ import annotations

from typing import Literal

import msgspec

INK = "#1b1f24"
MUTED = "#57606b"
GRID = "#d9dee4"
PAPER = "#fdfdfc"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#3c3c3b")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
Dashes = Literal["solid", "none"] | tuple[int, tuple[float, ...]]
LINES: tuple[Dashes, ...] = (
    "solid",
    (0, (6, 2)),
    (0, (1, 1.6)),
    (0, (6, 2, 1, 2)),
    (0, (10, 3)),
)
PANEL_SERIES = len(MARKERS)
"""Series drawn in one panel: each has a marker of its own there; more are split over further panels."""

DARK: dict[str, str] = {
    INK: "#e7eaed",
    MUTED: "#a5aeb9",
    GRID: "#353c45",
    PAPER: "#15191e",
    "#0072b2": "#4aa3dc",
    "#d55e00": "#ee7f2d",
    "#009e73": "#22b98e",
    "#3c3c3b": "#c9ccd1",
}
"""The same roles on dark paper: what a light plot's colours become. No light colour is also a dark one."""


class Style(msgspec.Struct, frozen=True):
    """The look of one series."""

    colour: str
    marker: str
    line: Dashes


def style(place: int) -> Style:
    """The look of the series at `place`, counted from 0; unique in colour and marker together for the first 70."""
    return Style(COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)], LINES[place % len(LINES)])
