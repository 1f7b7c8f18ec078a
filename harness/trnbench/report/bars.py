"""Bars of shares, a group of bars a name over one scale from 0 to 100 percent, in a wide and a narrow form.

Kinds of bars differ in colour and hatch together, as series do elsewhere; the count stands at the end of each bar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter

from trnbench.report.canvas import Sheet, text_width, wrap
from trnbench.report.plots import NARROW, WIDE, Drawing, drawing
from trnbench.report.styles import COLOURS, INK, MUTED
from trnbench.report.svg import settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_THICK = 15.0
_GAP = 3.0
_LINE = 14.0
_HATCHES = ("", "////", "xx", "..")


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """`value` of `whole`; `text` is printed at its end. A whole of 0 has no bar."""

    value: int
    whole: int
    text: str

    @property
    def percent(self) -> float:
        """The share in percent."""
        return 100.0 * self.value / self.whole if self.whole else 0.0


class BarGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One name with its bars, one of each kind."""

    name: str
    bars: list[Bar]


def shares(groups: list[BarGroup], *, kinds: tuple[str, ...], title: str, description: str, axis: str) -> Drawing:
    """Horizontal bars; `kinds` names the bars of every group, in order, in a legend at the foot."""
    with settings():
        return drawing(_sheet(groups, kinds, axis, WIDE), _sheet(groups, kinds, axis, NARROW), title, description)


def _sheet(groups: list[BarGroup], kinds: tuple[str, ...], axis: str, width: float) -> Sheet:
    """In the narrow form a name stands above its bars, in the wide one beside them."""
    narrow = width <= NARROW
    room = width - 16 if narrow else width * 0.3
    names = [wrap(group.name, 11, room) for group in groups]
    texts = max((text_width(bar.text, 10) for group in groups for bar in group.bars), default=0)
    left = 8.0 if narrow else 8 + max((text_width(line, 11) for lines in names for line in lines), default=0) + 16
    right = width - 16 - texts
    bar_heights = [len(group.bars) * (_THICK + _GAP) for group in groups]
    heads = [_LINE * len(lines) + 4 if narrow else 0.0 for lines in names]
    heights = [
        bars + head + 14 if narrow else max(bars, _LINE * len(lines)) + 14
        for bars, head, lines in zip(bar_heights, heads, names, strict=True)
    ]
    bottom = 8 + sum(heights)
    label = wrap(axis, 10, width - 16)
    legend = [wrap(kind, 10.5, width - 48) for kind in kinds]
    scale = 28 + _LINE * len(label)
    sheet = Sheet(width, bottom + scale + sum(_LINE * len(lines) + 5 for lines in legend) + 8)
    axes = sheet.axes(left, 8, right, bottom)
    _scale(axes, bottom - 8)
    y = 8.0
    for group, lines, head, height in zip(groups, names, heads, heights, strict=True):
        first = y + 4 + _LINE / 2 if narrow else y + (height - _LINE * (len(lines) - 1)) / 2
        for place, line in enumerate(lines):
            sheet.text(8, first + _LINE * place, line)
        top = y + head + 4 if narrow else y + (height - len(group.bars) * (_THICK + _GAP)) / 2
        for place, bar in enumerate(group.bars):
            _draw(axes, bar, top - 8 + place * (_THICK + _GAP), place)
            end = left + (right - left) * bar.percent / 100
            sheet.text(end + 6, top + place * (_THICK + _GAP) + _THICK / 2, bar.text, size=10, colour=MUTED)
        y += height
    for place, line in enumerate(label):
        sheet.text(
            (left + right) / 2 if not narrow else width / 2,
            bottom + 28 + _LINE * place,
            line,
            size=10,
            colour=MUTED,
            align="center",
        )
    below = bottom + scale + 8
    for place, lines in enumerate(legend):
        _key(sheet, below, place)
        for line in lines:
            sheet.text(36, below + _LINE / 2, line, size=10.5)
            below += _LINE
        below += 5
    return sheet


def _scale(axes: Axes, height: float) -> None:
    axes.set_xlim(0, 100)
    axes.set_ylim(height, 0)
    axes.yaxis.set_visible(False)
    axes.xaxis.set_major_locator(FixedLocator([0, 25, 50, 75, 100]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw(axes: Axes, bar: Bar, top: float, kind: int) -> None:
    axes.add_patch(
        Rectangle(
            (0, top),
            bar.percent,
            _THICK,
            facecolor=COLOURS[kind],
            hatch=_HATCHES[kind],
            edgecolor=INK,
            linewidth=0.7,
            clip_on=False,
            zorder=2,
        )
    )


def _key(sheet: Sheet, top: float, kind: int) -> None:
    """The sample of a kind in the legend."""
    sheet.figure.add_artist(
        Rectangle(
            (8 / sheet.width, 1 - (top + 12.5) / sheet.height),
            20 / sheet.width,
            11 / sheet.height,
            facecolor=COLOURS[kind],
            hatch=_HATCHES[kind],
            edgecolor=INK,
            linewidth=0.7,
            transform=sheet.figure.transFigure,
        )
    )
