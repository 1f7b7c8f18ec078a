"""Curves on their own: kinds of points, failures, limits, what has no place on a scale, and many series."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from test_report_legibility import assert_legible
from test_report_plots import texts

from trnbench.report.curves import KINDS, Curve, Key, Panel, Rule, Spot, curves, drawable
from trnbench.report.styles import COLOURS, PANEL_SERIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page


def line(look: int = 0, **changes: Any) -> Curve:
    """A curve of three points."""
    return Curve(look=look, spots=[Spot(x=x, y=y, **changes) for x, y in ((1.0, 0.01), (2.0, 0.02), (4.0, 1.0))])


def panel(drawn: list[Curve], **changes: Any) -> Panel:
    """A panel with a logarithmic scale upwards."""
    return Panel(**{"up": "seconds", "across": "tokens", "curves": drawn, "log_up": True, **changes})


def draw(panels: list[Panel], keys: list[Key] | None = None) -> str:
    """The wide form."""
    drawing = curves(panels, keys or [Key(words="one", look=0)], title="title", description="words")
    for svg in (drawing.wide, drawing.narrow, drawing.wide_dark, drawing.narrow_dark):
        ElementTree.fromstring(svg)
        assert b"nan" not in re.sub(rb"<text.*?</text>", b"", svg)
    return drawing.wide.decode()


def test_limits_are_drawn_and_labelled_even_outside_the_data() -> None:
    """A limit far above every point is on the scale, and its label stands in the plot."""
    shown = texts(draw([panel([line()], rules=[Rule(value=30.0, label="limit 30 s")])]).encode())
    assert "limit 30 s" in shown
    assert "10" in shown


def test_values_without_a_place_do_not_fail_and_leave_the_names() -> None:
    """F2: zero, a negative, NaN, infinity and nothing at all on a logarithmic scale."""
    odd = Curve(look=1, spots=[Spot(x=1.0, y=y) for y in (0.0, -1.0, math.nan, math.inf, None)])
    empty = Curve(look=2, spots=[Spot(x=None, y=None)])
    names = [Key(words=words, look=look) for look, words in enumerate(("good", "odd", "empty"))]
    shown = texts(draw([panel([line(), odd, empty])], names).encode())
    assert {"good", "odd", "empty"} <= set(shown)
    assert {"odd"} <= set(texts(draw([panel([odd])], names).encode()))
    assert [drawable(value, True) for value in (None, 0.0, -1.0, math.nan, math.inf, 1e-3)] == [False] * 5 + [True]
    assert drawable(0.0, False)


def test_kinds_and_failures_differ_in_shape() -> None:
    """F4: drawn in one grey, a joined, a hollow, a ringed and a crossed point all look different."""
    drawn = []
    for changes in (*({"kind": kind} for kind in KINDS), {"crossed": True}):
        svg = draw([panel([line(**changes)])])
        for colour in COLOURS:
            svg = svg.replace(colour, "#888888")
        body = re.search(r'<g id="axes_1">.*', svg, flags=re.DOTALL)
        assert body
        drawn.append(re.sub(r"[mp][0-9a-f]{10}", "id", body[0]))
    for one, other in itertools.combinations(drawn, 2):
        assert one != other


def test_fourteen_series_are_split_over_equal_scales() -> None:
    """F3: every name appears once; the second block repeats the panels for the other series, on the same scales."""
    names = [f"series {place:02d} " + "x" * 30 for place in range(14)]
    keys = [Key(words=name, look=place) for place, name in enumerate(names)]
    svg = draw([panel([line(place) for place in range(14)], up="heading of a panel")], keys)
    shown = texts(svg.encode())
    assert [text for text in shown if text.startswith("series")] == names
    assert shown.count("heading of a panel") == -(-14 // PANEL_SERIES) == 2
    halves = re.split(r'<g id="axes_2">', svg)
    scales = [re.findall(r'<g id="text_\d+">\s*<!--.*?-->', half) for half in halves]
    assert len(scales) == 2
    assert shown.count("0.01") == 2


@pytest.mark.browser
def test_crowded_curves_stay_legible(open_page: Callable[..., Page]) -> None:
    """F3: 14 names of 40 broad letters, two limits that nearly touch, and long notes: measured in a browser."""
    keys = [Key(words=f"{place:02d} " + "W" * 37, look=place) for place in range(14)]
    keys += [Key(words="crossed out: " + "failed " * 30, sign="cross"), Key(words="no point: " + "reason " * 40)]
    rules = [Rule(value=value, label=f"limit {value}") for value in (1.0, 1.01, 1.02)]
    panels = [
        panel([line(place) for place in range(14)], rules=rules, upright=2.5, up="a heading of many words " * 6),
        panel([line(place) for place in range(14)], rules=rules, log_up=False, from_zero=True, across="tokens " * 30),
    ]
    drawing = curves(panels, keys, title="t", description="d")
    page = open_page()
    assert_legible(page, drawing.wide.decode(), "wide")
    assert_legible(page, drawing.narrow.decode(), "narrow")
