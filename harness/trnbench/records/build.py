"""Assembles a complete record: every null explained, every rule of the format kept, no private text inside."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import msgspec

from trnbench.records.ids import new_id, utc_now
from trnbench.records.privacy import scrub, scrub_map
from trnbench.records.rules import (
    RecordError,
    any_item,
    check_record,
    check_unknown,
    invalid_samples,
    null_paths,
)
from trnbench.records.schema import SCHEMA_VERSION, Artifact, Check, Environment, Measurement, Record
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trnbench.case import Case
    from trnbench.catalog.prices import PricePoint
    from trnbench.device import Device

__all__ = ["DEFAULT_REASONS", "assemble", "check_unknown", "explain"]

DEFAULT_REASONS: dict[str, str] = {
    "device.memory_bytes": "the backend does not report the memory of its device",
    "device.instance_type": "not given (--instance-type), and the backend does not tell it",
    "device.region": "not given (--region), and the backend does not tell it",
    "environment.git.commit": "the state of the code was not read",
    "environment.git.dirty": "the state of the code was not read",
    "environment.git.diff_hash": "nothing differs from the commit, or the state of the code was not read",
    "measurement": "nothing was measured",
    "measurement.warmup[*].compiles": "the backend cannot count compilations",
    "measurement.rounds[*].compiles": "the backend cannot count compilations",
    "measurement.rounds[*].fallbacks": "the backend cannot count operators that left the device",
    "measurement.rounds[*].energy_joules": "no energy counter was read",
    "measurement.compile.count": "the backend cannot count compilations",
    "measurement.compile.seconds": "the backend cannot time compilations",
    "measurement.compile.cache": "the backend cannot tell the state of its compile cache",
    "measurement.memory.peak_bytes": "the backend has no counter of peak memory",
    "measurement.flops": "the workload does not count its operations",
    "measurement.energy_source": "no energy counter was read",
    "measurement.training[*].floor": "the loss of the best possible predictor is not known for this data",
    "conformance[*].value": "the check produced no finite value",
    "conformance[*].limit": "the check has no numeric limit",
    "price": "no price point was looked up for this run",
}
"""Why a field is null where its source says nothing better: one sentence for every field that may be null."""


def assemble(
    *,
    case: Case,
    device: Device,
    environment: Environment,
    run_id: str,
    started_at: str,
    status: Status,
    reason: str = "",
    measurement: Measurement | None = None,
    conformance: Iterable[Check] = (),
    simulated: bool = False,
    price: PricePoint | None = None,
    reasons: Mapping[str, str] | None = None,
    finished_at: str | None = None,
    artifacts: Iterable[Artifact] = (),
) -> Record:
    """One finished record; `finished_at` defaults to now (UTC).

    `reasons` maps paths of nulls to why they are not known and goes before `DEFAULT_REASONS`; reasons for values that
    are known after all are left out. Status ok without a round of finite positive duration becomes invalid with "no
    valid samples" and no measurement; a check value that is not finite becomes null with verdict "non-finite".
    Texts lose home folders, absolute paths and the host name. Raises `RecordError` where the parts contradict each
    other, such as status ok with a compilation in a round.
    """
    given = dict(reasons or {})
    if measurement is not None:
        measurement, problem = _usable(measurement, given)
        if problem and status is Status.OK:
            status, reason = Status.INVALID, problem
    elif status is Status.OK and not case.checks_only:
        status, reason = Status.INVALID, "no valid samples: nothing was measured"
    if measurement is None:
        if case.checks_only:
            given["measurement"] = f"phase {case.phase} is checked, not measured"
        given.setdefault("measurement", reason if reason.startswith("no valid samples") else f"status {status.value}")
    record = Record(
        schema_version=SCHEMA_VERSION,
        record_id=new_id(),
        run_id=run_id,
        started_at=started_at,
        finished_at=utc_now() if finished_at is None else finished_at,
        case=case,
        device=msgspec.structs.replace(device, read_back=scrub_map(device.read_back)),
        environment=environment,
        status=status,
        reason=scrub(reason),
        measurement=measurement,
        conformance=[_finite_check(check) for check in conformance],
        simulated=simulated,
        price=price,
        artifacts=list(artifacts),
    )
    record = explain(record, given)
    check_record(record)
    return record


def explain(record: Record, reasons: Mapping[str, str] | None = None) -> Record:
    """The record with `unknown` complete: for each null its own reason, else the given one, else the default.

    Raises `RecordError` for a null that none of the three explains.
    """
    given = {**record.unknown, **(reasons or {})}
    unknown = {path: given[path] for path in given if re.fullmatch(r"environment\.cpu\.\w+", path)}
    unknown = {path: why for path, why in unknown.items() if path.rpartition(".")[2] not in record.environment.cpu}
    for path in null_paths(record):
        if path in given:
            unknown[path] = given[path]
            continue
        general = any_item(path)
        why = given.get(general) or DEFAULT_REASONS.get(general)
        if why is None:
            raise RecordError(f"{path} is null and nothing says why; give a reason for {general!r}")
        unknown[general] = why
    return msgspec.structs.replace(record, unknown={path: scrub(unknown[path]) for path in sorted(unknown)})


def _usable(measurement: Measurement, given: dict[str, str]) -> tuple[Measurement | None, str | None]:
    """The measurement with energy readings that are no numbers set to null, or None; and why it carries no speed."""
    problem = invalid_samples(measurement)
    if problem and not measurement.rounds and (measurement.serving or measurement.training):
        # No speed, but every test or run that shows why there is none.
        return measurement, problem
    if problem:
        return None, problem
    for timed in measurement.rounds:
        if timed.energy_joules is not None and not math.isfinite(timed.energy_joules):
            given.setdefault("measurement.rounds[*].energy_joules", f"the energy counter gave {timed.energy_joules}")
    rounds = [
        msgspec.structs.replace(timed, energy_joules=_finite(timed.energy_joules)) for timed in measurement.rounds
    ]
    return msgspec.structs.replace(measurement, rounds=rounds), None


def _finite_check(check: Check) -> Check:
    value, limit = _finite(check.value), _finite(check.limit)
    verdict = "non-finite" if value is None and check.value is not None else check.verdict
    return msgspec.structs.replace(check, value=value, limit=limit, verdict=verdict, where=scrub(check.where))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
