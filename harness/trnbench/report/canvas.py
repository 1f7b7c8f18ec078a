"""A drawing surface measured in px from the top left: what the plots share of layout, wrapping and small print."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

from trnbench import wording
from trnbench.report.names import printable
from trnbench.report.styles import GRID, INK, MUTED, PAPER, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DPI = 72
_SMALL_PRINT = 7.5
_TOKEN = re.compile(r"[^\s\-_/,]*[\s\-_/,]?")
_REFERENCE_SIZE = 200.0


@functools.cache
def _advance(character: str, bold: bool) -> float:
    font = FontProperties(family="DejaVu Sans", size=_REFERENCE_SIZE, weight="bold" if bold else "normal")
    return float(text_to_path.get_text_width_height_descent(character, font, ismath=False)[0]) / _REFERENCE_SIZE


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Width of `text` in px at `size` px: the sum of its characters' widths, without the kerning that narrows it."""
    return size * sum(_advance(character, bold) for character in text)


def wrap(text: str, size: float, room: float, bold: bool = False) -> list[str]:
    """`text` in lines no wider than `room` px, broken after spaces and joints, inside a word only where it must be."""
    lines: list[str] = []
    line = ""
    for token in _TOKEN.findall(" ".join(printable(text).split())):
        piece = token
        if line and text_width((line + piece).rstrip(), size, bold) > room:
            lines.append(line.rstrip())
            line = ""
        while text_width(piece.rstrip(), size, bold) > room and len(piece) > 1:
            fits = max(1, next(n for n in range(len(piece), -1, -1) if text_width(piece[:n], size, bold) <= room))
            lines.append(piece[:fits])
            piece = piece[fits:]
        line += piece
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


class Sheet:
    """A figure of `width` x `height` px with text and marks placed in px from its top left corner.

    The disclaimer is set at the foot; `height` excludes it, the figure grows by what it takes.
    """

    def __init__(self, width: float, height: float) -> None:
        small_print = wrap(wording.DISCLAIMER, _SMALL_PRINT, width - 8)
        self.width = width
        self.height = height + 10 + 10 * len(small_print)
        self.figure = Figure(figsize=(width / _DPI, self.height / _DPI), dpi=_DPI, facecolor=PAPER)
        for place, line in enumerate(small_print):
            self.text(4, height + 12 + 10 * place, line, size=_SMALL_PRINT, colour=MUTED)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 11,
        colour: str = INK,
        align: str = "left",
        bold: bool = False,
    ) -> None:
        """One line of text whose vertical centre lies at `y`."""
        self.figure.text(
            x / self.width,
            1 - y / self.height,
            printable(text),
            size=size,
            color=colour,
            ha=align,
            va="center_baseline",
            weight="bold" if bold else "normal",
        )

    def axes(self, left: float, top: float, right: float, bottom: float) -> Axes:
        """Axes between these px, with a quiet frame: no box, only the scale at the foot."""
        axes = self.figure.add_axes(
            (left / self.width, 1 - bottom / self.height, (right - left) / self.width, (bottom - top) / self.height)
        )
        axes.set_facecolor("none")
        for side in ("top", "left", "right"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(MUTED)
        axes.tick_params(which="both", colors=MUTED, labelsize=10, length=4, width=0.8)
        axes.tick_params(which="minor", labelbottom=False, labelleft=False, length=2)
        axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        return axes

    def key(self, x: float, y: float, style: Style) -> None:
        """The sample of a series that a legend shows: 22 px wide from `x`, centred at `y`."""
        self.figure.add_artist(
            Line2D(
                [x / self.width, (x + 11) / self.width, (x + 22) / self.width],
                [1 - y / self.height] * 3,
                color=style.colour,
                linestyle=style.line,
                linewidth=1.6,
                marker=style.marker,
                markevery=[1],
                markersize=7,
                markeredgecolor=INK,
                markeredgewidth=0.7,
            )
        )

    def sign(self, x: float, y: float, kind: str) -> None:
        """What a legend shows of a kind of point or line, centred at (x, y): see `curves.Key`."""
        place = {"x": x / self.width, "y": 1 - y / self.height}
        if kind == "upright":
            half = 7 / self.height
            ends = [place["y"] - half, place["y"] + half]
            line = Line2D([place["x"]] * 2, ends, color=INK, linewidth=1.2, linestyle=(0, (8, 2, 2, 2)))
            self.figure.add_artist(line)
            return
        filled = {"joined": MUTED, "ringed": MUTED, "hollow": PAPER, "cross": "none"}[kind]
        if kind == "ringed":
            self._mark(place, "o", 14, "none", MUTED)
        self._mark(place, "x" if kind == "cross" else "o", 8 if kind == "cross" else 6, filled, INK)

    def _mark(self, place: dict[str, float], marker: str, size: float, filled: str, edge: str) -> None:
        self.figure.add_artist(
            Line2D(
                [place["x"]],
                [place["y"]],
                linestyle="none",
                marker=marker,
                markersize=size,
                markerfacecolor=filled,
                markeredgecolor=edge,
                markeredgewidth=1.2,
            )
        )
