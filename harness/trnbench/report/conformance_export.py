"""Conformance as data: CSV with one line a check, JSON with the counts of each case and all that did not pass."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import msgspec

from trnbench import wording
from trnbench.report.check_counts import VERDICTS, tally
from trnbench.report.checked_records import checked_stacks
from trnbench.report.conformance_tables import checks_of
from trnbench.report.export import inert

if TYPE_CHECKING:
    from trnbench.records.mutation import MutationReport
    from trnbench.records.schema import Check, Record
    from trnbench.report.material import Material

_COLUMNS = (
    "backend",
    "chip",
    "fingerprint",
    "current",
    "suite",
    "case",
    "phase",
    "workload",
    "precision",
    "mode",
    "case_tier",
    "run_id",
    "record_id",
    "started_at",
    "check",
    "level",
    "tier",
    "metric",
    "value",
    "limit",
    "verdict",
    "looks_like",
    "deviation",
    "where",
    "reference",
    "simulated",
)


def conformance_csv(material: Material) -> bytes:
    """One line a check of the newest record of each case; the first line is a comment with the disclaimer.

    `current` is "no" for the checks of an older software stack.
    """
    text = io.StringIO()
    text.write(f"# {wording.DISCLAIMER}\n")
    if material.shows_simulated:
        text.write(f"# {wording.SIMULATED_NOTICE}\n")
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for stack, record, check in checks_of(checked_stacks(material)):
        writer.writerow(_line(record, check, current=not stack.older))
    return text.getvalue().encode("utf-8")


def _line(record: Record, check: Check, *, current: bool) -> dict[str, object]:
    case = record.case
    values: dict[str, object] = {
        "backend": record.device.backend,
        "chip": record.device.chip,
        "fingerprint": record.environment.fingerprint,
        "current": "yes" if current else "no",
        "suite": case.suite,
        "case": case.id,
        "phase": case.phase,
        "workload": case.workload,
        "precision": case.precision,
        "mode": case.mode,
        "case_tier": case.tier,
        "run_id": record.run_id,
        "record_id": record.record_id,
        "started_at": record.started_at,
        **msgspec.structs.asdict(check),
        "simulated": "yes" if record.simulated else "no",
    }
    return {
        name: inert(value) if isinstance(value, str) else "" if value is None else value
        for name, value in values.items()
    }


def conformance_json(material: Material) -> bytes:
    """By machine and stack, each case with its counts and its checks other than passes; and the listed deviations."""
    content: dict[str, object] = {
        "disclaimer": wording.DISCLAIMER,
        "verdicts": VERDICTS,
        "stacks": [
            {
                "device": stack.device,
                "versions": stack.versions,
                "current": not stack.older,
                "cases": [_case(entry.record) for entry in stack.entries],
            }
            for stack in checked_stacks(material)
        ],
        "deviations": material.deviations,
    }
    if material.shows_simulated:
        content["simulated"] = wording.SIMULATED_NOTICE
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def _case(record: Record) -> dict[str, object]:
    return {
        "record": record.record_id,
        "suite": record.case.suite,
        "case": record.case,
        "status": record.status,
        "reason": record.reason,
        "counts": tally(record.conformance),
        "other_than_pass": [check for check in record.conformance if check.verdict != "pass"],
    }


def mutants_json(report: MutationReport) -> bytes:
    """The mutation report as stored, under the disclaimer."""
    content = {"disclaimer": wording.DISCLAIMER, **msgspec.to_builtins(report)}
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
