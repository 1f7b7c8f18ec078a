"""An instrument measures one or a few named properties; `take` reads all of them, and no failure stops the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from trnbench.conformance.passport.subject import Subject, Unknown, why
from trnbench.device import Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one probe found, in short words, and the numbers behind them."""

    verdict: str
    details: dict[str, Scalar] = {}


Readings = Mapping[str, "Reading | Unknown"]


class Instrument(msgspec.Struct, frozen=True, kw_only=True):
    """`measure(subject, precision)` returns a reading for each of `names`, or why there is none.

    Where it raises, or leaves a name out, that is the reason for every name without a reading.
    """

    group: str
    names: tuple[str, ...]
    precisions: tuple[str, ...]
    measure: Callable[[Subject, str], Readings]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One probe of one precision."""

    group: str
    name: str
    precision: str
    reading: Reading | Unknown


def read(instrument: Instrument, subject: Subject, precision: str) -> list[Result]:
    """All readings of one instrument; never raises."""
    try:
        readings = instrument.measure(subject, precision)
        missing = Unknown("the probe gave no reading")
    except Exception as error:
        # Runtimes raise anything for what they lack, and the passport records that as well.
        readings, missing = {}, Unknown(why(error))
    return [
        Result(group=instrument.group, name=name, precision=precision, reading=readings.get(name, missing))
        for name in instrument.names
    ]


def alone(name: str, measure: Callable[[Subject, str], Reading]) -> Callable[[Subject, str], Readings]:
    """A measurement with one reading, in the form that an instrument takes."""

    def wrapped(subject: Subject, precision: str) -> Readings:
        return {name: measure(subject, precision)}

    return wrapped


def single(group: str, name: str, precisions: Iterable[str], measure: Callable[[Subject, str], Reading]) -> Instrument:
    """An instrument with one reading."""
    return Instrument(group=group, names=(name,), precisions=tuple(precisions), measure=alone(name, measure))


def number(value: float) -> Scalar:
    """A float as a record can hold it: infinities and NaN as words."""
    return float(value) if math.isfinite(value) else str(float(value))


def listed(items: Sequence[object]) -> str:
    """`a, b, c`."""
    return ", ".join(str(item) for item in items)
