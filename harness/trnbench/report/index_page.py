"""The front page: what was measured, the answer, and the comparisons by axis; its other tables are `index_tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.case import PHASES
from trnbench.report.answers import AXES, Answer, Pair, answer, pairs, unanswered
from trnbench.report.cost_words import no_dollars
from trnbench.report.coverage import devices_measured
from trnbench.report.figures import ratio_figure
from trnbench.report.format import count, ratio, ratio_interval, utc
from trnbench.report.index_tables import devices_table, gaps_table, refused_table, runs_table, totals
from trnbench.report.material import Material, assert_complete, is_checked, is_measured
from trnbench.report.metric_names import PHASE_WORDS, capitalised, metric_words
from trnbench.report.names import comparison_page
from trnbench.report.ordering import case_key
from trnbench.report.plots import PANEL_ROWS
from trnbench.report.verdicts import (
    DECIDED,
    agreement,
    agreement_tag,
    cheaper,
    cheaper_tag,
    verdict_tag,
)
from trnbench.report.views import Cell, Column, Figure, PageLink, Table, TableRow

if TYPE_CHECKING:
    from trnbench.compare.model import Comparison, Metric


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The comparisons of one pair of sides that share a metric: figures and a table."""

    heading: str
    definition: str
    figures: list[Figure]
    table: Table


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One axis."""

    id: str
    heading: str
    groups: list[Group]


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the front page shows."""

    lead: str
    newest: str
    coverage: str
    answers: list[Answer]
    further: list[Answer]
    unanswered: list[str]
    nothing: str
    sections: list[Section]
    workloads: list[PageLink]
    numerics: list[PageLink]
    gaps: Table
    runs: Table
    devices: Table
    refused: Table
    totals: str


def build_index(material: Material, workloads: list[PageLink], numerics: list[PageLink]) -> Index:
    """The front page of the material, with links to the pages that exist."""
    found = pairs(material.comparisons)
    answered = [pair for pair in found if pair.answered]
    first_axis = next((pair.axis for pair in answered if pair.decided), answered[0].axis if answered else None)
    measured = sum(is_measured(entry.record) for entry in material.entries)
    return Index(
        lead=_lead(material, measured),
        newest=utc(material.entries[-1].record.finished_at) if material.entries else "",
        coverage=devices_measured(material),
        answers=[answer(pair) for pair in answered if pair.axis == first_axis],
        further=[answer(pair) for pair in answered if pair.axis != first_axis],
        unanswered=[unanswered(pair) for pair in found if not pair.answered],
        nothing="" if found else _nothing(material, measured),
        sections=_sections(found),
        workloads=workloads,
        numerics=numerics,
        gaps=gaps_table(material),
        runs=runs_table(material, "runs-table"),
        devices=devices_table(material),
        refused=refused_table(material),
        totals=totals(material),
    )


def _lead(material: Material, measured: int) -> str:
    runs = material.runs()
    if not runs:
        return "No record can be shown." if material.records_in else "No record is here yet."
    checked = sum(is_checked(entry.record) for entry in material.entries)
    told = [f"{measured:,} measured"] + ([f"{checked:,} checked"] if checked else [])
    return (
        f"From {count(len(material.entries), 'record')} of {count(len(runs), 'run')}: {', '.join(told)}, "
        f"{len(material.entries) - measured - checked:,} not."
    )


def _nothing(material: Material, measured: int) -> str:
    """Why there is no comparison, in one sentence that says what would make one."""
    chips = sorted({entry.record.device.chip for entry in material.entries if is_measured(entry.record)})
    if material.simulated_left_out and not material.entries:
        return (
            f"{count(material.simulated_left_out, 'record')} read, made by a simulated device and therefore left out; "
            "build the site with --allow-simulated to see them, marked as such."
        )
    if not material.entries:
        found = (
            "no file that could be read as a record; the reasons are listed below" if material.refused else "no record"
        )
        return (
            f"The results folder holds {found}. Measure something first, such as trnbench run --backend cpu --tier "
            "smoke, then build the site again."
        )
    if all(entry.record.case.checks_only for entry in material.entries):
        return "These records check what a device computes; none of them measures a speed that could be compared."
    if not measured:
        return "Nothing was measured, so nothing can be compared; the reasons are listed below."
    return (
        f"The measured records come from {', '.join(chips)}. A comparison needs the same case measured on a second "
        "device, or in a second precision, mode or software stack."
    )


def _sections(found: list[Pair]) -> list[Section]:
    sections = []
    for axis, heading in AXES.items():
        groups = [
            _group(pair, shared, f"{axis}-{number}")
            for number, (pair, shared) in enumerate(
                (pair, shared) for pair in found if pair.axis == axis for shared in _by_metric(pair.comparisons)
            )
        ]
        if groups:
            sections.append(Section(id=f"axis-{axis}", heading=heading, groups=groups))
    shown = [len(group.table.rows) for section in sections for group in section.groups]
    assert_complete(sum(len(pair.comparisons) for pair in found), shown, "the tables of comparisons")
    return sections


def _by_metric(comparisons: list[Comparison]) -> list[list[Comparison]]:
    """By phase in the order of `PHASES`, then by metric: two, or two definitions of one, never share a plot (E8)."""
    grouped: dict[tuple[int, str, int], list[Comparison]] = {}
    for one in sorted(comparisons, key=lambda one: case_key(one.a.case)):
        metric = (one.metric.name, one.metric.definition_version) if one.metric else ("", 0)
        grouped.setdefault((PHASES.index(one.a.case.phase), *metric), []).append(one)
    return [grouped[key] for key in sorted(grouped, key=lambda key: key[0])]


def _group(pair: Pair, comparisons: list[Comparison], name: str) -> Group:
    metric = comparisons[0].metric
    table_id = f"table-{name}"
    chunks = [comparisons[start : start + PANEL_ROWS] for start in range(0, len(comparisons), PANEL_ROWS)]
    sides = pair.sides + pair.place + (f": {metric_words(metric)}" if metric else "")
    return Group(
        heading=f"{pair.a} (a) against {pair.b} (b){pair.place} \u00b7 {PHASE_WORDS[comparisons[0].a.case.phase]}",
        definition=_definition(metric) if metric else "No common metric.",
        figures=[
            ratio_figure(chunk, name=f"index-{name}-{place}", sides=sides, table_id=table_id)
            for place, chunk in enumerate(chunks)
            if any(one.throughput_ratio for one in chunk)
        ],
        table=Table(
            id=table_id,
            caption=f"Comparisons of {sides}",
            columns=[
                Column("Case", "name"),
                Column("Verdict", "nowrap"),
                Column("Throughput ratio", "n", "with interval"),
                Column("Break-even price ratio", "n"),
                Column("Same numerics?", "nowrap"),
                Column("Cheaper", "", "by purchase term"),
                Column("Runs", "n", "each side"),
            ],
            rows=[_comparison_row(one) for one in comparisons],
            headed=True,
        ),
    )


def _definition(metric: Metric) -> str:
    return f"{capitalised(metric_words(metric))}: {metric.definition} (definition {metric.definition_version})."


def _comparison_row(one: Comparison) -> TableRow:
    page = comparison_page(one.id)
    found = one.throughput_ratio
    even = one.break_even_price_ratio if one.verdict in DECIDED else None
    return TableRow(
        [
            Cell(one.a.case.id, href=page),
            Cell(tag=verdict_tag(one, short=True)),
            Cell(ratio(found.value), page + "#runs", ratio_interval(found.low, found.high)) if found else Cell("n/a"),
            Cell(ratio(even), page + "#cost") if even is not None else Cell("n/a"),
            Cell(href=page + "#numerics", tag=agreement_tag(agreement(one))),
            _cheaper_cell(one),
            Cell(f"{len(one.a.runs):,} and {len(one.b.runs):,}", page + "#runs"),
        ]
    )


def _cheaper_cell(one: Comparison) -> Cell:
    """Who is cheaper under the first purchase term, or in a few words why nobody knows."""
    if not one.costs:
        return Cell("n/a", note="no price")
    first = one.costs[0]
    if cheaper(one, first) is not None:
        return Cell(note=first.name, tag=cheaper_tag(one, first, short=True))
    return Cell(note=f"{first.name}: {no_dollars(one, first).why}", tag=cheaper_tag(one, first, short=True))
