"""What every record must satisfy, when it is built, written and read: checked in one place so nobody checks again.

The rules belong to the format: a stricter rule is a new `SCHEMA_VERSION`, or stored records stop loading.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Protocol

import msgspec

from trnbench.records.ids import instant
from trnbench.records.schema import FAILED, MAX_ROUNDS, SCHEMA_VERSION, Measurement, Record
from trnbench.status import Status, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.records.schema import Environment

_INDEX = re.compile(r"\[\d+\]")
_UNKNOWN_KEY = re.compile(r"environment\.cpu\.\w+")


class RecordError(UsageError):
    """A record that breaks the format: the sentence names the file where there is one, the place in it and the key."""


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value in `value` that holds no others, with its path: `measurement.rounds[2].seconds`."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from leaves(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


class Explained(Protocol):
    """Anything stored that explains its nulls: a record, or a passport."""

    @property
    def environment(self) -> Environment: ...
    @property
    def unknown(self) -> dict[str, str]: ...


def null_paths(record: object) -> list[str]:
    """Paths of every null in the record, list items by index."""
    return [path for path, value in leaves(record) if value is None]


def any_item(path: str) -> str:
    """The path with every list index replaced by `[*]`, which stands for the nulls among all items."""
    return _INDEX.sub("[*]", path)


def check_finite(value: object) -> None:
    """Raise `RecordError` naming the first NaN or infinity: JSON has no word for them."""
    for path, leaf in leaves(value):
        if isinstance(leaf, float) and not math.isfinite(leaf):
            raise RecordError(f"{path} is {leaf}; a record holds finite numbers only, and null with a reason otherwise")


def check_unknown(record: Explained) -> None:
    """Raise `RecordError` unless every null has a reason in `record.unknown` and every reason belongs to a null.

    A reason's path names one null (`conformance[3].value`) or, with `[*]` for every index, all nulls among the
    items (`measurement.rounds[*].energy_joules`). A CPU fact that the host does not tell is absent from
    `environment.cpu`, and a reason may name the absent key.
    """
    nulls = null_paths(record)
    accepted = {*nulls, *map(any_item, nulls)}
    for path in nulls:
        if path not in record.unknown and any_item(path) not in record.unknown:
            raise RecordError(f"{path} is null and `unknown` gives no reason for it; add one under {any_item(path)!r}")
    for path, reason in record.unknown.items():
        absent_fact = _UNKNOWN_KEY.fullmatch(path) and path.rpartition(".")[2] not in record.environment.cpu
        if path not in accepted and not absent_fact:
            raise RecordError(f"`unknown` explains {path!r}, which is not a null of this record; remove the entry")
        if not reason.strip():
            raise RecordError(f"`unknown` gives an empty reason for {path!r}; say why it is not known")


def invalid_samples(measurement: Measurement | None) -> str | None:
    """Why these rounds carry no speed ("no valid samples: ..."), or None where every round is finite and positive."""
    if measurement is None or not measurement.rounds:
        return "no valid samples: no round was kept"
    for index, timed in enumerate(measurement.rounds):
        if not (math.isfinite(timed.seconds) and timed.seconds > 0):
            return f"no valid samples: round {index} took {timed.seconds} s, which is no duration"
    return None


def check_record(record: Record) -> None:
    """Raise `RecordError` with one sentence for the first rule that the record breaks."""
    if record.schema_version != SCHEMA_VERSION:
        raise RecordError(f"schema_version is {record.schema_version}; records are written as {SCHEMA_VERSION}")
    for name in ("started_at", "finished_at"):
        try:
            instant(getattr(record, name))
        except ValueError as error:
            raise RecordError(f"{name} must be ISO 8601 with a UTC offset: {error}") from None
    if record.status is not Status.OK and not record.reason.strip():
        raise RecordError(f"status is {record.status.value} and reason is empty; say what happened")
    if record.simulated and record.device.chip != "cpu":
        raise RecordError(
            f"simulated is true and device.chip is {record.device.chip!r}; what a stand-in ran is recorded as 'cpu'"
        )
    if record.measurement is not None and len(record.measurement.rounds) > MAX_ROUNDS:
        raise RecordError(f"measurement.rounds has {len(record.measurement.rounds)} items; at most {MAX_ROUNDS} fit")
    if record.status is Status.OK:
        _check_ok(record)
    check_finite(record)
    check_unknown(record)


def _check_ok(record: Record) -> None:
    if record.case.checks_only:
        _check_conforming(record)
        return
    problem = invalid_samples(record.measurement)
    if record.measurement is None or problem:
        raise RecordError(f"status is ok with {problem}; the status must be invalid")
    for index, timed in enumerate(record.measurement.rounds):
        for name in ("compiles", "fallbacks"):
            count = getattr(timed, name)
            if count:
                raise RecordError(
                    f"status is ok with {count} {name} in measurement.rounds[{index}]; it must be invalid or fallback"
                )


def _check_conforming(record: Record) -> None:
    """A case that measures nothing is ok by its checks alone."""
    if record.measurement is not None:
        raise RecordError(f"phase {record.case.phase} measures nothing, so measurement must be null")
    if not record.conformance:
        raise RecordError(f"status is ok in phase {record.case.phase} without a single check; it must be invalid")
    for index, check in enumerate(record.conformance):
        if check.verdict in FAILED:
            raise RecordError(
                f"status is ok with verdict {check.verdict!r} in conformance[{index}]; it must be nonconformant"
            )
