"""Which records may carry a speed, and under which numerics: decided before anything is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.compare.metrics import batch_mismatch, inconsistency, why_no_metric
from trnbench.compare.model import Verdict
from trnbench.records.schema import FAILED
from trnbench.status import Status

if TYPE_CHECKING:
    from trnbench.device import Scalar
    from trnbench.records.schema import Record

CLASS_SWITCHES = ("stochastic_rounding", "auto_cast", "autocast")
"""Parts of the names of settings that change the number format or the rounding, whatever precision was asked for."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a record carries no speed: the sentence, and the verdict of a comparison that has nothing else."""

    verdict: Verdict
    reason: str


def refusal(record: Record) -> Refusal | None:
    """Why this record may not carry a speed into a comparison, or None where it may.

    Asks in turn: did it end well, do its times make sense, did every conformance check pass, did it process the batch
    its case asks for, and does it give what the case is measured in: a count, a valid LoadGen run, a score.
    """
    if record.status is not Status.OK:
        verdict: Verdict = "not enough runs"
        if record.status is Status.NONCONFORMANT:
            verdict = "not conformant"
        elif record.status is Status.INVALID and "inconsistent timing" in record.reason:
            verdict = "inconsistent timing"
        return Refusal(verdict=verdict, reason=f"{record.status.value}: {record.reason}")
    problem = inconsistency(record)
    if problem:
        return Refusal(verdict="inconsistent timing", reason=f"inconsistent timing: {problem}")
    unproven = _unproven(record)
    if unproven is not None:
        return unproven
    mismatch = batch_mismatch(record)
    if mismatch:
        return Refusal(verdict="no common metric", reason=mismatch)
    missing = why_no_metric(record)
    return Refusal(verdict="no common metric", reason=missing) if missing else None


def numerics_class(record: Record) -> dict[str, Scalar]:
    """The coarse conformance class: precision, and settings that change format or rounding behind it, by name."""
    switches = {
        name: value
        for name, value in record.environment.flags.items()
        if any(part in name.lower().replace("-", "_") for part in CLASS_SWITCHES)
    }
    return {"precision": record.case.precision, **switches}


def unlike_numerics(a: Record, b: Record) -> str:
    """The difference between the numerics of two records in words; empty where they are alike.

    A switch that only one side knows is off on the other: backends name their own switches.
    """
    first, second = numerics_class(a), numerics_class(b)
    differences = []
    for name in [*first, *(name for name in second if name not in first)]:
        left, right = first.get(name, "off"), second.get(name, "off")
        if _spelled(left) != _spelled(right):
            differences.append(f"{name} {left} vs {right}")
    return ", ".join(differences)


def _spelled(value: Scalar) -> str:
    """One spelling for the ways in which runtimes say that a switch is off or on."""
    text = str(value).strip().lower()
    return {"0": "off", "false": "off", "none": "off", "": "off", "1": "on", "true": "on"}.get(text, text)


def _unproven(record: Record) -> Refusal | None:
    failed = [check for check in record.conformance if check.verdict in FAILED]
    if failed:
        listed = ", ".join(f"{check.check} ({check.verdict})" for check in failed)
        return Refusal(verdict="not conformant", reason=f"not conformant: {listed}")
    unchecked = [check.check for check in record.conformance if check.verdict == "not checked"]
    if not record.conformance:
        return Refusal(verdict="not checked", reason="not checked: no conformance check was recorded")
    if unchecked:
        return Refusal(verdict="not checked", reason=f"not checked: {', '.join(unchecked)}")
    return None
