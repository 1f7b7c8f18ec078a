"""From material to files: renders every page, figure, record copy and export of the site, all in memory and sorted."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from trnbench import wording
from trnbench.report.comparison_page import build_comparison
from trnbench.report.conformance_export import conformance_csv, conformance_json, mutants_json
from trnbench.report.export import comparison_csv, comparison_json
from trnbench.report.index_page import build_index
from trnbench.report.index_tables import runs_table
from trnbench.report.material import Material, assert_complete
from trnbench.report.names import (
    comparison_page,
    file_stem,
    passport_page,
    passport_pair_page,
    passport_stem,
    printable,
    record_page,
    run_page,
)
from trnbench.report.numerics_pages import CONFORMANCE, MUTANTS, PASSPORTS, TITLES, build_numerics
from trnbench.report.passport_names import pairs_worth_comparing
from trnbench.report.passport_page import build_passport
from trnbench.report.passport_pair_page import build_passport_pair
from trnbench.report.reading_page import build_reading
from trnbench.report.record_page import build_record
from trnbench.report.run_page import build_run
from trnbench.report.serving_page import SERVING, SERVING_TITLE
from trnbench.report.training_page import TRAINING, TRAINING_TITLE
from trnbench.report.workload_export import serving_csv, serving_json, training_csv, training_json
from trnbench.report.workload_pages import build_workloads
from trnbench.status import UsageError

if TYPE_CHECKING:
    from trnbench.report.numerics_pages import Numerics
    from trnbench.report.views import Figure, PageLink
    from trnbench.report.workload_pages import Workloads

_PATH = re.compile(r"[\w .,:+*()-]+(/[\w .,:+*()-]+)+")
"""No character of it means anything in HTML."""
_ANSWER, _RUNS, _READING = ("Answer", "index.html"), ("Runs", "runs.html"), ("How to read it", "reading.html")


class PageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A page's place in the site, its title and its one-line description."""

    path: str
    title: str
    description: str


class SiteInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What every page carries."""

    title: str
    navigation: tuple[tuple[str, str], ...]
    disclaimer: str
    simulated_notice: str


class Files:
    """The files of the site by path from its root. Two different contents under one path are refused."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def add(self, path: str, data: bytes) -> None:
        """Add a file. Raises `UsageError` where another content already has the path."""
        if self._files.setdefault(path, data) != data:
            raise UsageError(f"two different contents for {path}: two records or comparisons share one id")

    def sorted(self) -> dict[str, bytes]:
        """All files, by path."""
        return dict(sorted(self._files.items()))

    @property
    def pages(self) -> int:
        """How many HTML pages there are."""
        return sum(path.endswith(".html") for path in self._files)


class Renderer:
    """Renders templates with autoescape always on; a name that a template uses and nobody gave is an error."""

    def __init__(self, material: Material, linked: list[PageLink]) -> None:
        self.files = Files()
        self._environment = Environment(
            loader=PackageLoader("trnbench.report", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            finalize=lambda value: printable(value) if type(value) is str else value,
        )
        self._environment.filters["breakable"] = breakable
        self._site = SiteInfo(
            title=material.title,
            navigation=(_ANSWER, *((page.short, page.path) for page in linked), _RUNS, _READING),
            disclaimer=wording.DISCLAIMER,
            simulated_notice=wording.SIMULATED_NOTICE if material.shows_simulated else "",
        )

    def page(self, template: str, path: str, title: str, description: str, view: object) -> None:
        """Render one page into the files."""
        html = self._environment.get_template(template).render(
            view=view,
            site=self._site,
            page=PageInfo(path=path, title=title, description=description),
            root="../" * path.count("/"),
        )
        self.files.add(path, html.encode("utf-8"))

    def figures(self, figures: list[Figure]) -> None:
        """Add the image files of the figures."""
        for figure in figures:
            for path, data in figure.files.items():
                self.files.add(path, data)


def breakable(text: str) -> str:
    """`text`, with a place for a line break after each slash of a plain path; anything that could be markup stays."""
    shown = printable(text)
    return Markup(shown.replace("/", "/<wbr>")) if _PATH.fullmatch(shown) else shown


def render(material: Material) -> Files:
    """Every file of the site except its manifest."""
    numerics, workloads = build_numerics(material), build_workloads(material)
    renderer = Renderer(material, [*workloads.links, *numerics.links])
    index = build_index(material, workloads.links, numerics.links)
    renderer.page("index.html.j2", "index.html", material.title, index.lead, index)
    renderer.figures([figure for section in index.sections for group in section.groups for figure in group.figures])
    renderer.page("runs.html.j2", "runs.html", "Runs", "Every run, newest first", runs_table(material, "runs-table"))
    words = build_reading()
    renderer.page("reading.html.j2", "reading.html", "How to read it", "What the words on these pages mean", words)
    _workloads(renderer, material, workloads)
    _numerics(renderer, material, numerics)
    _comparisons(renderer, material)
    _runs(renderer, material)
    _records(renderer, material)
    static = files("trnbench.report") / "static"
    for file in sorted(static.iterdir(), key=lambda file: file.name):
        renderer.files.add(f"static/{file.name}", file.read_bytes())
    return renderer.files


def _workloads(renderer: Renderer, material: Material, found: Workloads) -> None:
    if found.serving is not None:
        renderer.page("serving.html.j2", SERVING, SERVING_TITLE, found.serving.headline, found.serving)
        renderer.figures(found.serving.figures)
        renderer.files.add("serving.csv", serving_csv(material))
        renderer.files.add("serving.json", serving_json(material))
    if found.training is not None:
        renderer.page("training.html.j2", TRAINING, TRAINING_TITLE, found.training.headline, found.training)
        renderer.figures(found.training.figures)
        renderer.files.add("training.csv", training_csv(material))
        renderer.files.add("training.json", training_json(material))


def _numerics(renderer: Renderer, material: Material, found: Numerics) -> None:
    if found.conformance is not None:
        renderer.page(
            "conformance.html.j2", CONFORMANCE, TITLES[CONFORMANCE], found.conformance.headline, found.conformance
        )
        renderer.files.add("conformance.csv", conformance_csv(material))
        renderer.files.add("conformance.json", conformance_json(material))
    if found.passports is not None:
        renderer.page("passports.html.j2", PASSPORTS, TITLES[PASSPORTS], found.passports.words, found.passports)
        _passports(renderer, material)
    if found.mutants is not None and material.mutation is not None:
        renderer.page("mutants.html.j2", MUTANTS, TITLES[MUTANTS], found.mutants.headline, found.mutants)
        renderer.figures([found.mutants.figure])
        renderer.files.add("mutants.json", mutants_json(material.mutation))


def _passports(renderer: Renderer, material: Material) -> None:
    for entry in material.passports:
        page = build_passport(entry, material)
        renderer.page("passport.html.j2", passport_page(entry.passport), page.title, page.words, page)
        renderer.files.add(f"passports/{passport_stem(entry.passport)}.json", entry.data)
    for _, pair in pairs_worth_comparing(material.passports):
        both = build_passport_pair(pair)
        path = passport_pair_page(pair[0].passport, pair[1].passport)
        renderer.page("passport_pair.html.j2", path, both.title, both.headline, both)


def _comparisons(renderer: Renderer, material: Material) -> None:
    for comparison in material.comparisons:
        page = build_comparison(comparison, material.today)
        path = comparison_page(comparison.id)
        renderer.page("comparison.html.j2", path, page.title, f"{page.answer.headline}. {page.answer.why}", page)
        renderer.figures(page.figures)
        stem = f"comparisons/{file_stem(comparison.id)}"
        renderer.files.add(f"{stem}.csv", comparison_csv(comparison))
        renderer.files.add(f"{stem}.json", comparison_json(comparison))


def _runs(renderer: Renderer, material: Material) -> None:
    for run in material.runs():
        page = build_run(run, material)
        renderer.page("run.html.j2", run_page(run.id), page.title, page.headline, page)
        renderer.figures([page.figure] if page.figure else [])


def _records(renderer: Renderer, material: Material) -> None:
    shown = []
    runs = {run.id: run for run in material.runs()}
    for entry in material.entries:
        page, path = build_record(entry, runs[entry.record.run_id], material), record_page(entry.record)
        status = entry.record.status.value.replace("_", " ")
        renderer.page("record.html.j2", path, page.title, f"{page.title}: {status}", page)
        renderer.figures(page.figures)
        renderer.files.add(f"records/{file_stem(entry.record.record_id)}.json", entry.data)
        for beside in entry.files:
            if beside.data is not None:
                renderer.files.add(beside.target, beside.data)
        shown.append(path)
    assert_complete(len(material.entries), [len(set(shown))], "pages of records")
