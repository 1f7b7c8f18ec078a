"""Curves over a common scale, panel below panel, with limits drawn as lines: what serving and training are shown by.

Series differ in colour, marker and line together (F3, F4). Within a series the kind of a point is told by its shape:
filled and joined, hollow, or ringed; a cross lies over a point that failed. A value without a place on the scale is
not drawn, and the caller says so in words (F2).
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Literal

import msgspec
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from trnbench.report.canvas import Sheet, wrap
from trnbench.report.plots import NARROW, WIDE, Drawing, drawing
from trnbench.report.styles import GRID, INK, MUTED, PANEL_SERIES, PAPER, Style, style
from trnbench.report.svg import settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Kind = Literal["joined", "hollow", "ringed"]
KINDS: tuple[Kind, ...] = ("joined", "hollow", "ringed")
_LINE = 14.0
_LEFT = 62.0
_FAR = 1e60


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """One point; None where there is no value. `crossed` marks a failure."""

    x: float | None
    y: float | None
    kind: Kind = "joined"
    crossed: bool = False


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Points of one look; those of kind "joined" are connected in the order given. `uprights` are dotted, at its x."""

    look: int
    spots: list[Spot]
    uprights: list[float] = []


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A horizontal line with its label."""

    value: float
    label: str


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over one pair of scales. `upright`, where given, is a vertical line that the keys explain."""

    up: str
    across: str
    curves: list[Curve]
    rules: list[Rule] = []
    upright: float | None = None
    log_up: bool = False
    log_across: bool = False
    from_zero: bool = False


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the legend: of a series (`look`), of a kind of point or line (`sign`), or words alone."""

    words: str
    look: int | None = None
    sign: Kind | Literal["cross", "upright", ""] = ""


def curves(panels: list[Panel], keys: list[Key], *, title: str, description: str) -> Drawing:
    """The panels below one another. More series than markers repeat all panels for the next ones, on equal scales."""
    with settings():
        wide, narrow = (_sheet(panels, keys, width) for width in (WIDE, NARROW))
        return drawing(wide, narrow, title, description)


def drawable(value: float | None, log: bool) -> bool:
    """Whether the value has a place on such a scale."""
    return value is not None and math.isfinite(value) and abs(value) < _FAR and (not log or value > 1 / _FAR)


def _sheet(panels: list[Panel], keys: list[Key], width: float) -> Sheet:
    looks = sorted({key.look for key in keys if key.look is not None}) or [0]
    blocks = [looks[start : start + PANEL_SERIES] for start in range(0, len(looks), PANEL_SERIES)]
    plot_height = 190.0 if width > NARROW else 160.0
    across = [wrap(panel.across, 10.5, width - _LEFT - 10) for panel in panels]
    heads = [wrap(panel.up, 10.5, width - 16) for panel in panels]
    panel_heights = [
        _LINE * len(head) + 12 + plot_height + 22 + _LINE * len(words) + 8
        for head, words in zip(heads, across, strict=True)
    ]
    legends = [
        [(key, wrap(key.words, 10.5, width - (50 if _has_sign(key) else 18))) for key in keys if _shown(key, block)]
        for block in blocks
    ]
    legend_heights = [sum(_LINE * len(lines) + 5 for _, lines in legend) + 10 for legend in legends]
    sheet = Sheet(width, len(blocks) * sum(panel_heights) + sum(legend_heights))
    y = 0.0
    for block, legend in zip(blocks, legends, strict=True):
        for panel, head, words, height in zip(panels, heads, across, panel_heights, strict=True):
            for place, line in enumerate(head):
                sheet.text(8, y + 10 + _LINE * place, line, size=10.5, colour=MUTED)
            top = y + _LINE * len(head) + 12
            _panel(sheet, panel, block, top, top + plot_height)
            for place, line in enumerate(words):
                middle = (_LEFT + width - 14) / 2
                sheet.text(
                    middle, top + plot_height + 29 + _LINE * place, line, size=10.5, colour=MUTED, align="center"
                )
            y += height
        below = y + 4
        for key, lines in legend:
            _key(sheet, below + _LINE / 2, key)
            for line in lines:
                sheet.text(42 if _has_sign(key) else 8, below + _LINE / 2, line, size=10.5)
                below += _LINE
            below += 5
        y = below + 6
    return sheet


def _shown(key: Key, block: list[int]) -> bool:
    return key.look is None or key.look in block


def _has_sign(key: Key) -> bool:
    return key.look is not None or bool(key.sign)


def _panel(sheet: Sheet, panel: Panel, block: list[int], top: float, bottom: float) -> None:
    axes = sheet.axes(_LEFT, top, sheet.width - 14, bottom)
    axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
    spots = [spot for curve in panel.curves for spot in curve.spots]
    across = [spot.x for spot in spots if spot.x is not None and drawable(spot.x, panel.log_across)]
    across += [panel.upright] if panel.upright is not None else []
    up = [spot.y for spot in spots if spot.y is not None and drawable(spot.y, panel.log_up)]
    up += [rule.value for rule in panel.rules]
    axes.set_xlim(*_scale(axes.xaxis, across, panel.log_across, (sheet.width - _LEFT) / 62, zero=panel.from_zero))
    low, high = _scale(axes.yaxis, up, panel.log_up, 5.0)
    if panel.rules:
        # Room for a label above the highest line, and for one below the lowest where nothing lies below that.
        share = _LINE / (bottom - top)
        under = share if len(panel.rules) > 1 and min(rule.value for rule in panel.rules) <= min(up) else 0.0
        span = high / low if panel.log_up else high - low
        high = high * span**share if panel.log_up else high + span * share
        low = low / span**under if panel.log_up else low - span * under
    axes.set_ylim(low, high)
    if panel.upright is not None:
        axes.axvline(panel.upright, color=INK, linewidth=1.2, linestyle=(0, (8, 2, 2, 2)), zorder=1.5)
    for rule in panel.rules:
        axes.axhline(rule.value, color=INK, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1.5)
    for curve in panel.curves:
        if curve.look in block:
            _draw(axes, curve, panel)
    for rule, y in zip(panel.rules, _label_places(panel, low, high, top, bottom), strict=True):
        sheet.text(_LEFT + 6, y, rule.label, size=10)


def _label_places(panel: Panel, low: float, high: float, top: float, bottom: float) -> list[float]:
    """Where the labels of the rules stand, outside of the axes never.

    Each stands above its line; the lowest one below it, where it would stand on the line of the next.
    """

    def share(value: float) -> float:
        if panel.log_up:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    places = {place: bottom - (bottom - top) * share(rule.value) - 8 for place, rule in enumerate(panel.rules)}
    ordered = sorted(places, key=lambda place: places[place], reverse=True)
    if len(ordered) > 1 and places[ordered[0]] - places[ordered[1]] < 2 * _LINE:
        below = places[ordered[0]] + 2 * 8
        if below + _LINE / 2 <= bottom:
            places[ordered[0]] = below
    for lower, upper in itertools.pairwise(ordered):
        places[upper] = min(places[upper], places[lower] - _LINE)
    return [max(top + 6 + _LINE * ordered[::-1].index(place), places[place]) for place in range(len(places))]


def _scale(axis: Axis, values: list[float], log: bool, ticks: float, zero: bool = False) -> tuple[float, float]:
    """Limits that hold every value with some air, and plain numbers on the scale."""
    low, high = (min(values), max(values)) if values else (0.1, 1.0)
    if log:
        air = max(math.log(high / low) * 0.08, 0.1)
        _set_log(axis)
        decades = math.log10(high / low)
        axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0) if decades < ticks / 2.5 else (1.0,), numticks=12))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(_tick))
        return low / math.exp(air), high * math.exp(air)
    axis.set_major_locator(MaxNLocator(nbins=max(3, int(ticks)), steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(_tick))
    if zero:
        return 0.0, high * 1.06 or 1.0
    air = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return low - air, high + air


def _set_log(axis: Axis) -> None:
    if axis is axis.axes.xaxis:
        axis.axes.set_xscale("log")
    else:
        axis.axes.set_yscale("log")


def _tick(value: float, _: int | None) -> str:
    return f"{value:,.6g}"


def _draw(axes: Axes, curve: Curve, panel: Panel) -> None:
    look = style(curve.look)
    spots = [
        (spot.x, spot.y, spot)
        for spot in curve.spots
        if spot.x is not None
        and spot.y is not None
        and drawable(spot.x, panel.log_across)
        and drawable(spot.y, panel.log_up)
    ]
    for x in curve.uprights:
        axes.axvline(x, color=look.colour, linewidth=1.4, linestyle=(0, (1, 2)), zorder=1.5)
    joined = [(x, y) for x, y, spot in spots if spot.kind == "joined"]
    axes.plot(
        [x for x, _ in joined], [y for _, y in joined], color=look.colour, linewidth=1.3, linestyle=look.line, zorder=2
    )
    for kind in KINDS:
        _marks(axes, [(x, y) for x, y, spot in spots if spot.kind == kind], look, kind)
    crossed = [(x, y) for x, y, spot in spots if spot.crossed]
    axes.plot(
        [x for x, _ in crossed],
        [y for _, y in crossed],
        linestyle="none",
        marker="x",
        markersize=9,
        markeredgewidth=1.6,
        color=INK,
        clip_on=False,
        zorder=5,
    )


def _marks(axes: Axes, points: list[tuple[float, float]], look: Style, kind: Kind) -> None:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if kind == "ringed":
        axes.plot(
            xs,
            ys,
            linestyle="none",
            marker="o",
            markersize=14,
            markerfacecolor="none",
            markeredgecolor=look.colour,
            markeredgewidth=1.4,
            clip_on=False,
            zorder=3,
        )
    axes.plot(
        xs,
        ys,
        linestyle="none",
        marker=look.marker,
        markersize=5.0 if kind == "hollow" else 6.5,
        markerfacecolor=PAPER if kind == "hollow" else look.colour,
        markeredgecolor=look.colour if kind == "hollow" else INK,
        markeredgewidth=1.2 if kind == "hollow" else 0.7,
        clip_on=False,
        zorder=4,
    )


def _key(sheet: Sheet, y: float, key: Key) -> None:
    if key.look is not None:
        sheet.key(10, y, style(key.look))
    elif key.sign:
        sheet.sign(21, y, key.sign)
