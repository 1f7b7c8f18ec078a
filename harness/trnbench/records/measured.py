"""What measuring a case yields, whichever part of the harness measured it, and how each part of it is told.

Steps, served requests and trainings to a quality are measured by parts that know nothing of each other. What a record
says of a clock, of compilation and of a value that is not known reads the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from trnbench.records.schema import Check, Compile, Measurement
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from trnbench.device import Counters

Clock = Callable[[], float]
"""Seconds since some moment; only differences count."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds and the judgement on them. `reason` is empty only for a clean `OK`; drift is `OK` with its warning.

    `unknown` maps the record's path of every null in `measurement` to the reason (`[*]` for all items of a list).
    `files` go beside the record, by name; `checks` are verdicts that measuring itself brought with it.
    """

    measurement: Measurement
    status: Status
    reason: str
    unknown: dict[str, str]
    files: dict[str, bytes] = {}
    checks: list[Check] = []


def clock_name(clock: Clock) -> str:
    """Module and name of a clock, as `Measurement.clock` keeps it."""
    name = getattr(clock, "__qualname__", type(clock).__qualname__)
    return f"{getattr(clock, '__module__', None) or type(clock).__module__}.{name}"


def compilation(counted: Counters, *, first_step_seconds: float, cache: str | None, backend: str) -> Compile:
    """What was compiled before the rounds, from what was `counted` meanwhile and the state that `backend` reports.

    Raises `CaseError` (`FAILED`) for a backend that describes its compile cache in a word that is none.
    """
    if cache not in ("cold", "warm", "none", None):
        raise CaseError(Status.FAILED, f"backend {backend} reports compile cache state {cache!r}")
    return Compile(
        count=counted.compiles,
        seconds=counted.compile_seconds,
        first_step_seconds=first_step_seconds,
        cache=cast('Literal["cold", "warm", "none"] | None', cache),
    )


def fell_back_to_eager(mode: str, graphs: int | None, cache: str | None) -> str:
    """Why a case in `mode` did not run compiled, by the graphs compiled before its rounds; empty where nothing says so.

    A warm cache may hold every graph, so that none is compiled; and some backends cannot count.
    """
    if mode == "compiled" and graphs == 0 and cache in ("cold", "none"):
        return "compile fell back: compiled mode was asked for and no graph was compiled"
    return ""


def null_reasons(measurement: Measurement, *, energy: str, **others: str) -> dict[str, str]:
    """The path of every null in the measurement with its reason.

    `energy` says why there is none, `others` why fields by their name are null: `flops`, ...
    """
    uncounted = "the backend cannot count compiles"
    rounds, warmup, compiled = measurement.rounds, measurement.warmup, measurement.compile
    found = {
        "energy_source": (measurement.energy_source is None, energy),
        "rounds[*].energy_joules": (any(item.energy_joules is None for item in rounds), energy),
        "rounds[*].compiles": (any(item.compiles is None for item in rounds), uncounted),
        "warmup[*].compiles": (any(step.compiles is None for step in warmup), uncounted),
        "compile.count": (compiled.count is None, uncounted),
        "compile.seconds": (compiled.seconds is None, "the backend cannot time compiles"),
        "compile.cache": (compiled.cache is None, "the backend cannot tell the state of its compile cache"),
        "memory.peak_bytes": (measurement.memory.peak_bytes is None, f"no peak from {measurement.memory.source}"),
        **{name: (getattr(measurement, name) is None, reason) for name, reason in others.items()},
    }
    return {f"measurement.{name}": reason for name, (is_null, reason) in found.items() if is_null}
