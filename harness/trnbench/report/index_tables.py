"""The tables of the front page beside the comparisons: what was not measured, the runs, devices and refused files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.compare.labels import device_label
from trnbench.report.format import count, utc
from trnbench.report.material import Entry, Material, Run, assert_complete, is_checked, is_measured
from trnbench.report.names import record_page, run_page
from trnbench.report.ordering import case_key
from trnbench.report.verdicts import status_tag
from trnbench.report.views import Cell, Column, Table, TableRow
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Hashable


def gaps_table(material: Material) -> Table:
    """Every record without a result that counts; equal ones of one device and reason share a row that counts them.

    A case that is only checked has its result in its verdicts, bad ones too: those are on the page of conformance.
    """
    missing = [entry for entry in material.entries if not (is_measured(entry.record) or is_checked(entry.record))]
    grouped: dict[Hashable, list[Entry]] = {}
    for entry in missing:
        record = entry.record
        same = (record.case, record.status, record.reason, record.device.chip, record.device.backend)
        grouped.setdefault(msgspec.json.encode(same), []).append(entry)
    order = list(Status)
    groups = sorted(
        grouped.values(), key=lambda group: (order.index(group[-1].record.status), case_key(group[-1].record.case))
    )
    assert_complete(len(missing), [len(group) for group in groups], "the table of gaps")
    return Table(
        id="gaps-table",
        caption="Records without a result that counts",
        headed=True,
        columns=[
            Column("Case", "name"),
            Column("Status", "nowrap"),
            Column("Reason", "reason"),
            Column("Device"),
            Column("Records", "n"),
            Column("Newest run", "nowrap"),
        ],
        rows=[_gap_row(group) for group in groups],
    )


def _gap_row(group: list[Entry]) -> TableRow:
    newest = group[-1].record
    return TableRow(
        [
            Cell(newest.case.id, record_page(newest)),
            Cell(tag=status_tag(newest.status)),
            Cell(newest.reason or "no reason recorded"),
            Cell(newest.device.chip, note=f"backend {newest.device.backend}"),
            Cell(f"{len(group):,}"),
            Cell(utc(newest.started_at), run_page(newest.run_id)),
        ]
    )


def runs_table(material: Material, table_id: str) -> Table:
    """Every run, newest first, also one in which nothing was measured (G12)."""
    return Table(
        id=table_id,
        caption="Runs, newest first",
        columns=[
            Column("Run", "name"),
            Column("Measured", "n", "or checked"),
            Column("Device"),
            Column("Instance"),
            Column("Not measured", "reason"),
        ],
        rows=[_run_row(run) for run in material.runs()],
    )


def _run_row(run: Run) -> TableRow:
    devices = sorted({device_label(entry.record) for entry in run.entries})
    instances = sorted({entry.record.device.instance_type or "unknown" for entry in run.entries})
    return TableRow(
        [
            Cell(utc(run.entries[0].record.started_at), run_page(run.id), note=run.id),
            Cell(outcome(run), run_page(run.id)),
            Cell(", ".join(devices)),
            Cell(", ".join(instances)),
            Cell(_statuses(run.entries) or "none"),
        ]
    )


def outcome(run: Run) -> str:
    """`3 of 5`, for cases that are only checked `12 of 12 checked`, and both where a run has both."""
    told = [f"{run.measured:,} of {run.measurable:,}"] if run.measurable else []
    return ", ".join([*told, *([f"{run.checked:,} of {run.checkable:,} checked"] if run.checkable else [])])


def _statuses(entries: list[Entry]) -> str:
    missing = [entry.record.status for entry in entries if not is_checked(entry.record)]
    counted = {status: missing.count(status) for status in Status}
    return ", ".join(
        f"{number:,} {status.value.replace('_', ' ')}"
        for status, number in counted.items()
        if number and status is not Status.OK
    )


def devices_table(material: Material) -> Table:
    """How many records each device has, and how many were measured."""
    return Table(
        id="devices-table",
        caption="Records by device",
        columns=[
            Column("Chip", "name"),
            Column("Backend"),
            Column("Instance type"),
            Column("Records", "n"),
            Column("Measured", "n"),
            Column("Checked", "n"),
            Column("Not measured", "reason"),
        ],
        rows=[
            TableRow(
                [
                    Cell(chip),
                    Cell(backend),
                    Cell(instance),
                    Cell(f"{len(entries):,}"),
                    Cell(f"{sum(is_measured(entry.record) for entry in entries):,}"),
                    Cell(f"{sum(is_checked(entry.record) for entry in entries):,}"),
                    Cell(_statuses(entries) or "none"),
                ]
            )
            for (chip, backend, instance), entries in material.by_device()
        ],
    )


def refused_table(material: Material) -> Table:
    """Files below the results folder that are not what their place says, each with the reason."""
    return Table(
        id="refused-table",
        caption="Files that could not be read",
        headed=True,
        columns=[Column("File", "name"), Column("Reason", "reason")],
        rows=[TableRow([Cell(one.path), Cell(one.reason)]) for one in material.refused],
    )


def totals(material: Material) -> str:
    """What was read, shown, left out and refused, in one sentence."""
    text = f"{count(material.records_in, 'record')} read, {len(material.entries):,} shown"
    if material.simulated_left_out:
        text += f", {material.simulated_left_out:,} left out because a simulated device made them"
    return text + f"; {count(len(material.refused), 'file')} refused."
