"""Plots as they are drawn in a real browser: text measured where it stands, words and a table beside every image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from site_helpers import kinds_of_pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

BOXES = """() => {
  const svg = document.querySelector('svg'), view = svg.viewBox.baseVal;
  const frame = svg.getBoundingClientRect(), scale = view.width / frame.width;
  const box = e => {
    const b = e.getBoundingClientRect();
    return [b.left - frame.left, b.top - frame.top, b.right - frame.left, b.bottom - frame.top].map(v => v * scale);
  };
  return {
    size: [view.width, view.height],
    texts: [...svg.querySelectorAll('text')].map(e => [e.textContent, ...box(e)]),
    axes: [...svg.querySelectorAll('[id^=axes_]')].map(e => box(e.querySelector('[id^=patch_]'))),
    inside: [...svg.querySelectorAll('[id^=axes_] > [id^=text_] text')].map(e => e.textContent),
  };
}"""


def overlap(one: list[float], other: list[float]) -> bool:
    """Whether two boxes share more than a pixel in both directions."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    along = min(one[3], other[3]) - max(one[1], other[1])
    return across > 1 and along > 2


def assert_legible(page: Page, svg: str, name: str) -> None:
    """No text leaves the image, none overlaps another, and none but words in place of a point lies over the axes."""
    page.set_content(f"<body style='margin:0'>{svg[svg.index('<svg') :]}</body>")
    found = page.evaluate(BOXES)
    width, height = found["size"]
    texts = [(text, box) for text, *box in found["texts"]]
    for place, (text, box) in enumerate(texts):
        assert box[0] >= -0.5, (name, text)
        assert box[1] >= -0.5, (name, text)
        assert box[2] <= width + 0.5, (name, text, box, width)
        assert box[3] <= height + 0.5, (name, text)
        for other_text, other in texts[place + 1 :]:
            assert not overlap(box, other), (name, text, other_text)


def test_text_in_plots_is_neither_clipped_nor_overlapping(site: Path, open_page: Callable[..., Page]) -> None:
    """F3: measured in the browser, for every plot of the site in both widths."""
    page = open_page()
    plots = [path for path in sorted((site / "plots").glob("*.svg")) if "dark" not in path.name]
    assert len(plots) > 10
    for path in plots:
        assert_legible(page, path.read_text("utf-8"), path.name)


def test_fourteen_long_names_stay_legible(open_page: Callable[..., Page]) -> None:
    """F3: 14 series and 14 rows with 40-character names, broad letters included."""
    from trnbench.report.plots import Row, Series, intervals, rounds

    names = [
        f"{place:02d} " + ("W" * 37 if place % 2 else "run of a-long_name/with joints 0123456789")[:37]
        for place in range(14)
    ]
    assert {len(name) for name in names} == {40}
    lines = [Series(name=name, values=[1.0 + place, 2.0, 3.0]) for place, name in enumerate(names)]
    rows = [Row(name=name, value=10.0**place, text=f"1e{place}") for place, name in enumerate(names)]
    page = open_page()
    for drawing in (
        rounds(lines, title="t", description="d", axis="seconds of a round"),
        intervals(rows, title="t", description="d", axis="seconds", log=True),
    ):
        assert_legible(page, drawing.wide.decode(), "wide")
        assert_legible(page, drawing.narrow.decode(), "narrow")


def test_every_image_has_words_and_a_table(site: Path, open_page: Callable[..., Page]) -> None:
    """F4: an alternative text that says what is seen, and a link to a table with the values on the same page."""
    page = open_page()
    for name in kinds_of_pages(site):
        page.goto((site / name).as_uri())
        figures = page.evaluate(
            """() => [...document.querySelectorAll('figure')].map(f => {
            const target = document.getElementById(f.querySelector('figcaption a').getAttribute('href').slice(1));
            return [f.querySelector('img').alt.length, target.tagName, target.querySelectorAll('tbody tr').length];
            })"""
        )
        for length, tag, rows in figures:
            assert length > 40, name
            assert tag == "TABLE", name
            assert rows > 0, name
        assert page.evaluate("document.images.length") == len(figures)
