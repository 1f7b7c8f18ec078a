"""The site in a real browser: no sideways scrolling, no dead link, no script that runs, readable in light and dark."""

from __future__ import annotations

import functools
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from site_helpers import build, hostile_records, kinds_of_pages, runs_of
from site_samples import sample_check, write_all

from trnbench.report.site import build_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def test_no_page_scrolls_sideways(site: Path, open_page: Callable[..., Page]) -> None:
    """At 360 px only tables and code scroll, in boxes of their own; opened details included."""
    page = open_page(360)
    for name in kinds_of_pages(site):
        page.goto((site / name).as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name


@pytest.mark.parametrize("width", [640, 320])
def test_twice_the_zoom_scrolls_no_page_sideways(site: Path, open_page: Callable[..., Page], width: int) -> None:
    """A window of 1280 px at 200 % is laid out as one of 640; 320 px is what WCAG asks of reflow."""
    page = open_page(width)
    for name in kinds_of_pages(site):
        page.goto((site / name).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_what_checks_tell_is_read_without_scrolling(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    """Both sides' errors and long places stand side by side at 1280 px; so do the cases of a run."""
    where = "worst at layers.3.attention.query.weight: relative error 0.0172, limit 0.0273 from 12 runs " * 2
    checks = [sample_check("every parameter's gradient", 0.62345, where=where)]
    records = [record for kind in ("trn2", "h100") for record in runs_of(kind, 900.0, conformance=checks)]
    site = build(tmp_path, records)
    page = open_page()
    for folder, table in (("comparisons", "checks-table"), ("records", "checks-table"), ("runs", "cases-table")):
        page.goto(next((site / folder).glob("*.html")).as_uri())
        box = page.locator(f".scroll:has(> #{table})")
        assert box.evaluate("e => e.scrollWidth <= e.clientWidth"), folder
    page.goto(next((site / "comparisons").glob("*.html")).as_uri())
    widths = page.evaluate("[...document.querySelectorAll('#checks-table td.told')].map(e => e.clientWidth)")
    assert len(widths) == 2
    assert min(widths) > 200


def test_on_paper_nothing_is_cut_and_all_is_light(site: Path, open_page: Callable[..., Page]) -> None:
    """Printed from a dark screen: white paper, light plots, enough contrast, and no table wider than the page."""
    page = open_page(718, "dark")
    page.emulate_media(media="print", color_scheme="dark")
    for name in kinds_of_pages(site):
        page.goto((site / name).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 718, name
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("[...document.images].every(i => !i.currentSrc.includes('dark'))"), name
        assert page.evaluate(CONTRAST) == [], name


def collect_links(page: Page) -> list[str]:
    """Every href, src and srcset of the page, as written."""
    return page.evaluate(
        """() => [...document.querySelectorAll('[href], [src], [srcset]')].flatMap(e =>
        ['href', 'src', 'srcset'].map(a => e.getAttribute(a)).filter(Boolean))"""
    )


def walk(start: str, root: str, page: Page, exists: Callable[[str], bool]) -> int:
    """Follow every link from `start`; all must lie below `root`, exist, and have the fragment they name."""
    seen: set[str] = set()
    fragments: dict[str, set[str]] = {}
    wanted: list[tuple[str, str, str]] = []
    queue = [start]
    while queue:
        address = queue.pop()
        if address in seen:
            continue
        seen.add(address)
        assert address.startswith(root), f"{address} lies outside {root}"
        if not address.endswith(".html"):
            assert exists(address), address
            continue
        page.goto(address)
        fragments[address] = set(page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)"))
        for link in collect_links(page):
            target, fragment = urldefrag(urljoin(address, link))
            wanted.append((address, target, unquote(fragment)))
            queue.append(target)
    for source, target, fragment in wanted:
        assert not fragment or fragment in fragments[target], f"{source} names {target}#{fragment}"
    return len(seen)


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without writing to the terminal."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves a folder on the loopback interface and returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(folder: Path) -> str:
        handler = functools.partial(QuietHandler, directory=str(folder))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def small_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with markup in every name: three runs a side, one comparison, one gap."""
    folder = tmp_path_factory.mktemp("hostile")
    build_site(write_all(folder / "results", hostile_records()), folder / "www" / "repo")
    return folder / "www" / "repo"


def test_no_link_is_dead_from_the_file_system(small_site: Path, open_page: Callable[..., Page]) -> None:
    """F8: opened by file://, every link resolves inside the site, fragments included, and every file is reached."""
    root = small_site.as_uri() + "/"

    def exists(address: str) -> bool:
        return (small_site / unquote(address.removeprefix(root))).is_file()

    reached = walk(root + "index.html", root, open_page(), exists)
    assert reached == sum(path.is_file() for path in small_site.rglob("*")) - 1  # the manifest is for machines


@pytest.mark.parametrize("place", ["/", "/repo/"])
def test_no_link_is_dead_when_served(
    small_site: Path, open_page: Callable[..., Page], serve: Callable[[Path], str], place: str
) -> None:
    """F8: at the root of a server and under a sub-path."""
    address = serve(small_site if place == "/" else small_site.parent)
    page = open_page()

    def exists(target: str) -> bool:
        return page.request.get(target).ok

    assert walk(address + place + "index.html", address + place, page, exists) > 20


def test_every_link_of_the_large_site_is_a_file(site: Path) -> None:
    """F8: the same for every page, read without a browser; no address with a scheme or a leading slash."""
    for source in site.rglob("*.html"):
        for link in re.findall(r'(?:href|src|srcset)="([^"]*)"', source.read_text("utf-8")):
            path, fragment = urldefrag(link)
            assert not re.match(r"[a-z]+:|/", link), link
            target = (source.parent / path).resolve() if path else source
            assert target.is_relative_to(site.resolve())
            assert target.is_file(), link
            if fragment:
                assert f'id="{fragment}"' in target.read_text("utf-8"), link


def test_markup_in_names_never_runs(small_site: Path, open_page: Callable[..., Page]) -> None:
    """F6: no dialog opens (open_page fails on one), no element appears that the templates do not have."""
    page = open_page()
    for source in sorted(small_site.rglob("*.html")):
        page.goto(source.as_uri())
        assert page.evaluate("document.scripts.length") == 0
        assert page.evaluate("[...document.images].every(i => i.getAttribute('src').includes('plots/'))")
    page.goto((small_site / "index.html").as_uri())
    assert "<img src=x onerror=alert(1)>" in page.inner_text("body")


CONTRAST = """() => {
  const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const channel = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !e.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${e.className} ${walker.currentNode.data.trim().slice(0, 40)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(site: Path, open_page: Callable[..., Page], scheme: str) -> None:
    """WCAG AA, 4.5 to 1, for every piece of text in both schemes; and dark really is dark."""
    page = open_page(scheme=scheme)
    for name in kinds_of_pages(site):
        page.goto((site / name).as_uri())
        assert page.evaluate(CONTRAST) == [], name
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(int(part) for part in re.findall(r"\d+", paper)) < 60) == (scheme == "dark")


@pytest.mark.parametrize(
    ("width", "scheme", "ending"),
    [
        (1280, "light", ".svg"),
        (1280, "dark", ".dark.svg"),
        (360, "light", ".narrow.svg"),
        (360, "dark", ".narrow-dark.svg"),
    ],
)
def test_the_fitting_image_is_shown(
    site: Path, open_page: Callable[..., Page], width: int, scheme: str, ending: str
) -> None:
    """Each width and scheme gets its own form of a plot, and it loads."""
    page = open_page(width, scheme)
    page.goto((site / "index.html").as_uri())
    shown = page.evaluate("[...document.images].map(i => [i.currentSrc, i.complete && i.naturalWidth > 0])")
    assert shown
    for source, loaded in shown:
        assert re.sub(r"^.*/[^.]*[^/]*?(?=\.(dark|narrow|narrow-dark)?\.?svg$)", "", source) == ending, source
        assert loaded, source


def test_the_keyboard_reaches_everything(site: Path, open_page: Callable[..., Page]) -> None:
    """The first stop is the skip link, which becomes visible; every scrolling box can take the focus."""
    page = open_page()
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    assert page.evaluate("[...document.querySelectorAll('.scroll, pre')].every(e => e.tabIndex === 0)")


def test_headings_descend_without_gaps(site: Path, open_page: Callable[..., Page]) -> None:
    """One first-level heading a page, and no level is skipped on the way down."""
    page = open_page()
    for name in kinds_of_pages(site):
        page.goto((site / name).as_uri())
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(h => Number(h.tagName[1]))")
        assert levels.count(1) == 1, name
        assert levels[0] == 1, name
        assert all(after - before <= 1 for before, after in pairwise(levels)), (name, levels)
