"""The pages about numerics in a real browser: narrow screens, both schemes, every link, and text inside the plot."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import urldefrag

import pytest
from test_report_browser import CONTRAST
from test_report_legibility import assert_legible

from trnbench.wording import DISCLAIMER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def pages_about_numerics(site: Path) -> list[str]:
    """One page of every kind."""
    passports = sorted(path.name for path in (site / "passports").glob("*.html"))
    pair = next(name for name in passports if "against-xla" in name)
    checked = sorted(path for path in (site / "records").glob("*.html") if "Failed: " in path.read_text("utf-8"))
    return [
        *("conformance.html", "passports.html", "mutants.html", "reading.html", "runs/conformance-1.html"),
        f"passports/{pair}",
        f"passports/{passports[0]}",
        f"records/{checked[0].name}",
    ]


@pytest.mark.parametrize("width", [360, 700])
def test_pages_about_numerics_never_scroll_sideways(
    numerics_site: Path, open_page: Callable[..., Page], width: int
) -> None:
    """Wide tables scroll in boxes of their own, which the keyboard reaches; opened details included."""
    page = open_page(width)
    for name in pages_about_numerics(numerics_site):
        page.goto((numerics_site / name).as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate("[...document.querySelectorAll('.scroll, pre')].every(e => e.tabIndex === 0)"), name
        assert page.evaluate("document.scripts.length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_about_numerics_have_enough_contrast(
    numerics_site: Path, open_page: Callable[..., Page], scheme: str
) -> None:
    """WCAG AA for all text; one first-level heading, and no level skipped on the way down."""
    page = open_page(scheme=scheme)
    for name in pages_about_numerics(numerics_site):
        page.goto((numerics_site / name).as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate(CONTRAST) == [], name
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(h => Number(h.tagName[1]))")
        assert levels.count(1) == 1, name
        assert all(after - before <= 1 for before, after in pairwise(levels)), (name, levels)


def test_the_bars_are_legible(numerics_site: Path, open_page: Callable[..., Page]) -> None:
    """No text is clipped or lies over another, in both widths."""
    page = open_page()
    for name in ("mutants-schemes.svg", "mutants-schemes.narrow.svg"):
        assert_legible(page, (numerics_site / "plots" / name).read_text("utf-8"), name)


def test_every_link_about_numerics_is_a_file(numerics_site: Path) -> None:
    """Fragments included. Only the source of a deviation leads out of the site, and says that it does."""
    reached = set()
    for source in sorted(numerics_site.rglob("*.html")):
        html = source.read_text("utf-8")
        assert DISCLAIMER in html, source.name
        inside = re.sub(r'<a rel="external noreferrer" href="https://[^"]*">', "", html)
        for link in re.findall(r'(?:href|src|srcset)="([^"]*)"', inside):
            path, fragment = urldefrag(link)
            assert not re.match(r"[a-z]+:|/", link), link
            target = (source.parent / path).resolve() if path else source.resolve()
            assert target.is_relative_to(numerics_site.resolve())
            assert target.is_file(), link
            reached.add(target)
            if fragment:
                assert f'id="{fragment}"' in target.read_text("utf-8"), (source.name, link)
    every = {path.resolve() for path in numerics_site.rglob("*") if path.is_file()}
    assert {path.name for path in every - reached} == {"trnbench-site.json"}
