"""The plots: values with intervals, one row a name, and series over their rounds. Each in a wide and a narrow form.

A value that cannot be drawn (missing, not finite, or zero on a logarithmic scale) keeps its row and says why in words
(F2). Names are measured and wrapped, never clipped and never set over the axes (F3).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from trnbench.report.canvas import Sheet, text_width, wrap
from trnbench.report.format import number
from trnbench.report.styles import GRID, INK, MUTED, PANEL_SERIES, PAPER, Dashes, Style, style
from trnbench.report.svg import darkened, settings, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE, NARROW = 720.0, 340.0
PANEL_ROWS = 24
"""Rows that one plot of intervals holds before it is split, so that names stay readable."""
_LINE = 14.0
_LARGEST = 1e60
_MARKS_PER_SERIES = 24


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One name and its value; `text` is printed beside it. `low` and `high` bound the value where known.

    `missing` says in words why there is no value; `look` is the place of the row's style, equal for equal kinds.
    """

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""
    missing: str = ""
    look: int = 0


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The horizontal scale that rows share."""

    label: str
    log: bool
    reference: float | None

    def holds(self, value: float) -> bool:
        """Whether the value has a place on the scale; what no quantity of ours can reach has none."""
        return abs(value) < _LARGEST and (value > 1 / _LARGEST or not self.log)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line: `values[i]` belongs to round i + 1; None leaves a hole."""

    name: str
    values: list[float | None]


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A plot in its four forms. Sizes are (width, height) in px."""

    wide: bytes
    narrow: bytes
    wide_dark: bytes
    narrow_dark: bytes
    wide_size: tuple[int, int]
    narrow_size: tuple[int, int]


def intervals(
    rows: list[Row], *, title: str, description: str, axis: str, log: bool = False, reference: float | None = None
) -> Drawing:
    """Rows of points with intervals over one horizontal scale; `reference` draws a line, as 1 does between ratios."""
    scale = Scale(label=axis, log=log, reference=reference)
    with settings():
        wide = _intervals_wide(rows, scale)
        narrow = _intervals_narrow(rows, scale)
        return drawing(wide, narrow, title, description)


def rounds(series: list[Series], *, title: str, description: str, axis: str) -> Drawing:
    """Lines over the number of the round. More series than markers are split over panels with equal scales."""
    with settings():
        wide, narrow = (_rounds_sheet(series, axis, width) for width in (WIDE, NARROW))
        return drawing(wide, narrow, title, description)


def obstacle(row: Row, log: bool) -> str:
    """Why the row has no point on this scale, in words; empty where it has one."""
    if row.value is None:
        return row.missing or "missing"
    if not math.isfinite(row.value):
        return "not a finite number"
    if abs(row.value) >= _LARGEST or (log and 0 < row.value <= 1 / _LARGEST):
        return f"{number(row.value)}: too far off to be drawn"
    if log and row.value == 0:
        return "0: has no place on a logarithmic scale"
    if log and row.value < 0:
        return f"{number(row.value)}: has no place on a logarithmic scale"
    return ""


def drawing(wide: Sheet, narrow: Sheet, title: str, description: str) -> Drawing:
    """Both sheets as images on light and on dark paper; call it inside `settings()`."""
    wide_svg, narrow_svg = to_svg(wide.figure, title, description), to_svg(narrow.figure, title, description)
    return Drawing(
        wide=wide_svg,
        narrow=narrow_svg,
        wide_dark=darkened(wide_svg),
        narrow_dark=darkened(narrow_svg),
        wide_size=(round(wide.width), round(wide.height)),
        narrow_size=(round(narrow.width), round(narrow.height)),
    )


def _intervals_wide(rows: list[Row], scale: Scale) -> Sheet:
    names = [wrap(row.name, 11, WIDE * 0.42) for row in rows]
    left = 8 + max((text_width(line, 11) for lines in names for line in lines), default=0) + 16
    right = WIDE - 12 - max((text_width(row.text, 10) for row in rows), default=0) - 12
    heights = [max(26.0, _LINE * len(lines) + 10) for lines in names]
    top, bottom = 10.0, 10.0 + sum(heights)
    sheet = Sheet(WIDE, bottom + 44)
    axes = sheet.axes(left, top, right, bottom)
    centre = top
    centres = []
    for row, lines, height in zip(rows, names, heights, strict=True):
        middle = centre + height / 2
        centres.append(middle - top)
        for place, line in enumerate(lines):
            sheet.text(8, middle + _LINE * (place - (len(lines) - 1) / 2), line)
        sheet.text(WIDE - 8, middle, row.text, size=10, colour=MUTED, align="right")
        centre += height
    _draw_rows(axes, rows, centres, scale)
    sheet.text((left + right) / 2, bottom + 32, scale.label, size=10.5, colour=MUTED, align="center")
    return sheet


def _intervals_narrow(rows: list[Row], scale: Scale) -> Sheet:
    left, right = 26.0, NARROW - 26
    names = [wrap(row.name, 11, NARROW - 16) for row in rows]
    texts = [wrap(row.text, 10, NARROW - 16) if row.text else [] for row in rows]
    top, y = 4.0, 4.0
    heads = [8 + _LINE * (len(lines) + len(text)) for lines, text in zip(names, texts, strict=True)]
    bottom = top + sum(heads) + 22 * len(rows)
    label = wrap(scale.label, 10, NARROW - 16)
    sheet = Sheet(NARROW, bottom + 26 + _LINE * len(label))
    centres = []
    for lines, text, head in zip(names, texts, heads, strict=True):
        for place, line in enumerate(lines + text):
            named = place < len(lines)
            sheet.text(8, y + 8 + _LINE * (place + 0.5), line, size=11 if named else 10, colour=INK if named else MUTED)
        centres.append(y + head + 10 - top)
        y += head + 22
    _draw_rows(sheet.axes(left, top, right, bottom), rows, centres, scale, lines_apart=True)
    for place, line in enumerate(label):
        sheet.text(NARROW / 2, bottom + 28 + _LINE * place, line, size=10, colour=MUTED, align="center")
    return sheet


def _draw_rows(axes: Axes, rows: list[Row], centres: list[float], scale: Scale, *, lines_apart: bool = False) -> None:
    """Points and intervals at the given heights in px; with `lines_apart` the reference is drawn row by row.

    The axes' own size says how far apart px are: their vertical limits are set to it, counted downwards.
    """
    width, height = (float(side) for side in axes.get_window_extent().size)
    axes.set_ylim(height, 0)
    axes.yaxis.set_visible(False)
    drawable = [row for row in rows if not obstacle(row, scale.log)]
    ends = [end for row in drawable for end in (row.value, row.low, row.high) if end is not None and scale.holds(end)]
    _set_scale(axes, [*ends, *([scale.reference] if scale.reference is not None else [])], scale.log, width)
    if lines_apart:
        axes.grid(visible=False)
    elif scale.reference is not None:
        axes.axvline(scale.reference, color=MUTED, linewidth=1.2, zorder=1)
    for row, y in zip(rows, centres, strict=True):
        reason = obstacle(row, scale.log)
        if row.value is None or reason:
            _say(axes, y, reason, width)
            continue
        if lines_apart and scale.reference is not None:
            axes.plot([scale.reference] * 2, [y - 9, y + 9], color=MUTED, linewidth=1.2, zorder=1)
        look = style(row.look)
        if row.low is not None and row.high is not None and math.isfinite(row.low) and math.isfinite(row.high):
            ends_of_scale = axes.get_xlim()
            low = row.low if scale.holds(row.low) else ends_of_scale[0]
            high = row.high if scale.holds(row.high) else ends_of_scale[1]
            # One line with a stroke at each end: it is drawn faster than three lines.
            (bar,) = axes.plot([low, high], [y, y], color=look.colour, linewidth=2.2, clip_on=False, zorder=2)
            bar.set(solid_capstyle="butt", marker="|", markersize=8, markeredgewidth=1.6)
        _points(axes, [row.value], [y], look, size=8)


def _say(axes: Axes, y: float, reason: str, width: float) -> None:
    """Words in place of a point, on paper of their own so that no line crosses them."""
    shown = wrap(reason, 10, width - 8)
    text = shown[0] if len(shown) == 1 else shown[0].rstrip() + " \u2026"
    words = axes.text(0, y, text, transform=axes.get_yaxis_transform(), size=10, color=MUTED, va="center_baseline")
    words.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 1.5})


def _points(
    axes: Axes, x: list[float], y: list[float], look: Style, *, size: float, line: Dashes = "none", every: int = 1
) -> None:
    axes.plot(
        x,
        y,
        linestyle=line,
        linewidth=1.3,
        color=look.colour,
        marker=look.marker,
        markevery=every,
        markersize=size,
        markeredgecolor=INK,
        markeredgewidth=0.7,
        clip_on=False,
        zorder=3,
    )


def _set_scale(axes: Axes, ends: list[float], log: bool, room: float) -> None:
    """Limits that hold every end with some air, and plain numbers on the scale."""
    ticks = max(3, int(room // 60))
    low, high = (min(ends), max(ends)) if ends else (1.0, 1.0)
    if log:
        air = max(math.log(high / low) * 0.06, 0.04)
        axes.set_xscale("log")
        axes.set_xlim(low / math.exp(air), high * math.exp(air))
        decades = math.log10(high / low)
        locator = (
            MaxNLocator(nbins=ticks, steps=[1, 2, 2.5, 5, 10])
            if decades < 0.7
            else LogLocator(10, subs=(1.0, 2.0, 5.0) if decades < ticks / 3 else (1.0,), numticks=ticks + 1)
        )
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        air = (high - low) * 0.06 or abs(high) * 0.05 or 1.0
        axes.set_xlim(low - air, high + air)
        locator = MaxNLocator(nbins=ticks, steps=[1, 2, 2.5, 5, 10])
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))


def _tick(value: float, _: int | None) -> str:
    return f"{value:,.6g}"


def _rounds_sheet(series: list[Series], axis: str, width: float) -> Sheet:
    panels = [series[start : start + PANEL_SERIES] for start in range(0, len(series), PANEL_SERIES)] or [[]]
    names = [[wrap(one.name, 10.5, width - 52) for one in panel] for panel in panels]
    plot_height = 200.0 if width > NARROW else 160.0
    legends = [sum(_LINE * len(lines) + 5 for lines in panel) + 12 for panel in names]
    head, scale = 26.0, 42.0
    sheet = Sheet(width, sum(head + plot_height + scale + legend for legend in legends))
    values = [value for one in series for value in one.values if value is not None and math.isfinite(value)]
    longest = max((len(one.values) for one in series), default=1)
    left, y = 62.0, 0.0
    for number_of_panel, (panel, panel_names, legend) in enumerate(zip(panels, names, legends, strict=True)):
        sheet.text(8, y + 12, axis, size=10.5, colour=MUTED)
        axes = sheet.axes(left, y + head, width - 14, y + head + plot_height)
        axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
        axes.grid(visible=False, axis="x")
        axes.set_xlim(0.5, longest + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        air = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
        axes.set_ylim(low - air, high + air)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.yaxis.set_major_formatter(FuncFormatter(_tick))
        below = y + head + plot_height + scale
        for place, (one, lines) in enumerate(zip(panel, panel_names, strict=True)):
            look = style(number_of_panel * PANEL_SERIES + place)
            _draw_series(axes, one, look)
            sheet.key(10, below + _LINE / 2, look)
            for line in lines:
                sheet.text(42, below + _LINE / 2, line, size=10.5)
                below += _LINE
            below += 5
        sheet.text((left + width) / 2, y + head + plot_height + 28, "round", size=10.5, colour=MUTED, align="center")
        y += head + plot_height + scale + legend
    return sheet


def _draw_series(axes: Axes, series: Series, look: Style) -> None:
    rounds_numbers = [float(place + 1) for place in range(len(series.values))]
    values = [value if value is not None and math.isfinite(value) else math.nan for value in series.values]
    every = max(1, len(values) // _MARKS_PER_SERIES)
    _points(axes, rounds_numbers, values, look, size=5.5, line=look.line, every=every)
