"""A record's page: what was measured and checked, on what, why anything is missing, and how to measure it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.case import SERVING_PHASES
from trnbench.compare.metrics import METRICS, ImpossibleValueError, headline_metric, metric_values, mfu
from trnbench.report.check_counts import count_words, tally
from trnbench.report.check_tables import checks_table
from trnbench.report.format import byte_size, count, flops, percent, seconds, usd, utc
from trnbench.report.material import UNKNOWN, Entry, Material, Run
from trnbench.report.metric_names import in_full, metric_words, readable
from trnbench.report.names import comparison_page, file_stem, rerun_command, run_page
from trnbench.report.record_checks import CheckGroup, check_groups
from trnbench.report.record_tables import (
    artifacts_table,
    environment_table,
    rounds_table,
    unknown_table,
    warmup_table,
)
from trnbench.report.serving_section import ServingSection, serving_section
from trnbench.report.training_section import TrainingSection, training_section
from trnbench.report.verdicts import status_tag, verdict_tag
from trnbench.report.views import Cell, Column, Fact, Figure, Table, TableRow, Tag

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.records.schema import Record


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one record's page shows."""

    title: str
    status: Tag
    reason: str
    facts: list[Fact]
    values: Table
    rounds: Table
    warmup: Table
    checks: Table
    check_groups: list[CheckGroup]
    check_words: str
    checks_only: bool
    case: list[Fact]
    device: list[Fact]
    environment: Table
    unknown: Table
    artifacts: Table
    serving: ServingSection | None
    training: TrainingSection | None
    comparisons: Table
    alone: list[str]
    command: str
    file: Cell
    stored_as: str

    @property
    def figures(self) -> list[Figure]:
        """All its figures."""
        sections = (self.serving, self.training)
        return [section.figure for section in sections if section is not None and section.figure is not None]


def build_record(entry: Entry, run: Run, material: Material) -> RecordPage:
    """The page of one record of `run`."""
    record = entry.record
    return RecordPage(
        title=record.case.id,
        status=status_tag(record.status),
        reason=record.reason,
        facts=_facts(entry, run),
        values=_values(record),
        rounds=rounds_table(record),
        warmup=warmup_table(record),
        checks=checks_table(record),
        check_groups=check_groups(record) if record.case.checks_only else [],
        check_words=count_words(tally(record.conformance)),
        checks_only=record.case.checks_only,
        case=case_facts(record.case),
        device=_device(record),
        environment=environment_table(record),
        unknown=unknown_table(record),
        artifacts=artifacts_table(entry),
        serving=serving_section(record),
        training=training_section(record),
        comparisons=_comparisons(record, material),
        alone=material.alone.get(record.record_id, []),
        command=rerun_command(record),
        file=Cell("The record as stored (JSON)", f"records/{file_stem(record.record_id)}.json"),
        stored_as=entry.path,
    )


def case_facts(case: Case) -> list[Fact]:
    """The case: what two measurements must share before they may be compared."""
    values: list[tuple[str, str]] = [
        ("Suite", case.suite),
        ("Workload", case.workload),
        ("Phase", case.phase),
        *([("Scenario", case.scenario.replace("_", " ")), ("Profile", case.profile)] if case.scenario else []),
        ("Precision", case.precision),
        ("Mode", case.mode),
        *_sizes(case),
        ("Tier", case.tier),
        ("Tuning", case.tuning),
        ("Parallel plan", ", ".join(f"{axis} {degree}" for axis, degree in sorted(case.parallel.items())) or "none"),
        ("Version", case.version or "none"),
    ]
    return [Fact(name, Cell(text)) for name, text in values]


def _sizes(case: Case) -> list[tuple[str, str]]:
    """Shapes; checks of formats and operators have their own each, and no cache matters to what is not timed."""
    if case.phase in SERVING_PHASES:
        at_once = "decoded at once" if case.phase == "serving" else "of one prefill, at most"
        longest = [("Longest answer", count(case.new_tokens, "token"))] if case.new_tokens else []
        return [
            ("Batch", f"{count(case.batch, 'sequence')} {at_once}"),
            ("Longest prompt", count(case.sequence, "token")),
            *longest,
        ]
    sizes = [
        ("Batch", f"{count(case.batch, 'sequence')}, micro-batch {case.micro_batch:,}"),
        ("Sequence", count(case.sequence, "token")),
    ]
    timed = [("New tokens", f"{case.new_tokens:,}"), ("Data caches", case.cache)]
    return (sizes if case.batch else []) + ([] if case.checks_only else timed)


def _facts(entry: Entry, run: Run) -> list[Fact]:
    record = entry.record
    attempt, attempts = run.attempt(record)
    return [
        Fact("Run", Cell(record.run_id, run_page(record.run_id))),
        Fact("Started", Cell(utc(record.started_at))),
        Fact("Finished", Cell(utc(record.finished_at))),
        Fact("Attempt", Cell(f"{attempt:,} of {attempts:,} in this run; the newest counts")),
        Fact("Simulated", Cell("yes" if record.simulated else "no")),
        *([] if record.case.checks_only else [_price(record)]),
        Fact("Stored as", Cell(entry.path)),
    ]


def _price(record: Record) -> Fact:
    price = record.price
    return Fact(
        "Price in force",
        Cell(
            f"{usd(price.usd_per_hour)} an hour, {price.instance_type}, {price.region}, {price.term}",
            note=f"{price.as_of}, {price.source}",
        )
        if price
        else Cell("none", note=record.unknown.get("price", "")),
    )


def _values(record: Record) -> Table:
    headline = "" if record.case.checks_only else headline_metric(record.case).name
    rows = [
        TableRow(
            [
                Cell(metric_words(METRICS[name]), note=_metric_note(name, name == headline)),
                *(Cell(text) for text in readable(value, METRICS[name].unit)),
                Cell(METRICS[name].definition),
            ]
        )
        for name, value in metric_values(record).items()
    ]
    if record.measurement:
        rows.append(_utilisation(record))
    return Table(
        id="values-table",
        caption="Values computed from this record",
        columns=[Column("Metric", "name"), Column("Value", "n"), Column("Unit"), Column("Definition", "reason")],
        rows=rows,
    )


def _metric_note(name: str, decides: bool) -> str:
    return "; ".join(filter(None, (in_full(METRICS[name]), "decides comparisons" if decides else "")))


def _utilisation(record: Record) -> TableRow:
    """Model FLOP/s utilisation with everything it rests on, or why there is none (an impossible one included)."""
    name = Cell("model FLOP/s utilisation")
    try:
        found = mfu(record)
    except ImpossibleValueError as error:
        return TableRow([name, Cell("error"), Cell(), Cell(str(error))])
    if isinstance(found, str):
        return TableRow([name, Cell("n/a"), Cell(), Cell(found)])
    basis = (
        f"convention {found.convention}; dense {found.precision} peak ({found.format}) of "
        f"{flops(found.peak_per_second)}/s on {found.chips:g} chips; {found.peak_source}, {found.peak_as_of}"
    )
    return TableRow([name, Cell(percent(found.value)), Cell(), Cell(basis)])


def _device(record: Record) -> list[Fact]:
    device, measured = record.device, record.measurement
    values: list[tuple[str, str | None, str]] = [
        ("Backend", device.backend, ""),
        ("Platform", device.platform, ""),
        ("Chip", device.chip, ""),
        ("Chips", f"{device.chips:,}", ""),
        ("Cores", f"{device.cores:,}", ""),
        ("Memory of a chip", byte_size(device.memory_bytes) if device.memory_bytes else None, "device.memory_bytes"),
        ("Instance type", device.instance_type, "device.instance_type"),
        ("Region", device.region, "device.region"),
        *((f"Read back: {name}", str(value), "") for name, value in sorted(device.read_back.items())),
    ]
    if measured:
        peak = measured.memory.peak_bytes
        values += [
            ("Clock", measured.clock, ""),
            ("Waited by", measured.sync, ""),
            ("First step", seconds(measured.compile.first_step_seconds), ""),
            ("Compiles", _plain(measured.compile.count), "measurement.compile.count"),
            ("Compile time", _timed(measured.compile.seconds), "measurement.compile.seconds"),
            ("Compile cache", measured.compile.cache, "measurement.compile.cache"),
            ("Peak memory", byte_size(peak) if peak is not None else None, "measurement.memory.peak_bytes"),
            ("Memory counter", measured.memory.source, ""),
            ("Energy source", measured.energy_source, "measurement.energy_source"),
        ]
        if measured.flops:
            values.append(
                ("Operations of a round", flops(measured.flops.value), ""),
            )
            values.append(("FLOP convention", measured.flops.convention, ""))
    return [
        Fact(name, Cell(text) if text is not None else Cell(UNKNOWN, note=record.unknown.get(path, "")))
        for name, text, path in values
    ]


def _plain(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _timed(value: float | None) -> str | None:
    return None if value is None else seconds(value)


def _comparisons(record: Record, material: Material) -> Table:
    return Table(
        id="comparisons-table",
        caption="Comparisons in which this record counts",
        columns=[Column("Comparison", "name"), Column("Verdict", "nowrap")],
        rows=[
            TableRow([Cell(one.title, comparison_page(one.id)), Cell(tag=verdict_tag(one))])
            for one in material.comparisons_of(record.record_id)
        ],
    )
