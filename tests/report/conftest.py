"""One site for all tests that only read it, and a browser to open it in."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from conformance_samples import write_conformance
from playwright.sync_api import Browser, Page, Request, sync_playwright
from site_samples import many_outcomes, write_all

from trnbench.report.site import SiteSummary, build_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two devices, every kind of gap, and one file that is no record."""
    root = write_all(tmp_path_factory.mktemp("store") / "results", many_outcomes())
    (root / "decoder" / "cut.json").write_text('{"schema_version": 1, "record_id": "0', encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def built(results: Path, tmp_path_factory: pytest.TempPathFactory) -> SiteSummary:
    """The summary of the site built from `results`."""
    return build_site(results, tmp_path_factory.mktemp("published") / "site")


@pytest.fixture
def site(built: SiteSummary) -> Path:
    """The folder of the built site."""
    return built.out


@pytest.fixture(scope="session")
def numerics_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site with checked cases of every verdict, passports, deviations and a mutation report."""
    folder = tmp_path_factory.mktemp("numerics")
    results = write_conformance(folder / "results")
    return build_site(results, folder / "site", deviations=folder / "deviations").out


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium; these tests are meaningless without one."""
    assert CHROMIUM, "the browser tests need chromium on the PATH; leave them out with -m 'not browser'"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages of a given width and colour scheme, and fails on any message of the console or failed request."""
    opened: list[Page] = []
    complaints: list[str] = []

    def complain_of_request(request: Request) -> None:
        # Leaving a page aborts what it was still loading; that is no fault of the page.
        if request.failure != "net::ERR_ABORTED":
            complaints.append(f"failed: {request.url}: {request.failure}")

    def make(width: int = 1280, scheme: str = "light") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", complain_of_request)
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        opened.append(page)
        return page

    yield make
    for page in opened:
        page.close()
    assert complaints == []
