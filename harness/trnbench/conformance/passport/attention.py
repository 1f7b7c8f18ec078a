"""Scaled-dot-product attention: rows without keys, NaN behind a mask, and which reshapings keep every bit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from trnbench.conformance.arithmetic import STORAGE
from trnbench.conformance.inputs import generator, rounded
from trnbench.conformance.passport.instrument import Instrument, Reading, Readings
from trnbench.conformance.passport.subject import Unknown, why

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trnbench.conformance.passport.subject import Subject

MASKED_ROW = 3
MASKED_KEY = 5
PREFIX = 100


def masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """With a mask."""
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Each position sees those before it."""
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def unmasked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Every query sees every key."""
    return functional.scaled_dot_product_attention(query, key, value)


def _random(name: str, precision: str, *shape: int) -> tuple[Tensor, Tensor, Tensor]:
    rng = generator(name, 0)
    first, second, third = (rounded(rng.standard_normal(shape), STORAGE[precision]) for _ in range(3))
    return first, second, third


def _masked_row(subject: Subject, precision: str, fill: float | bool) -> Reading:
    query, key, value = _random("masked rows", precision, 1, 2, 8, 16)
    mask = torch.zeros(8, 8, dtype=STORAGE[precision])
    if fill is False:
        mask = torch.ones(8, 8, dtype=torch.bool)
    mask[MASKED_ROW] = fill
    row = subject.run(masked, query, key, value, mask)[0][:, :, MASKED_ROW].double()
    mean = value.double().mean(dim=2)
    if bool(row.isnan().any()):
        return Reading(verdict="NaN")
    if bool((row == 0).all()):
        return Reading(verdict="zeros")
    near = float((row - mean).abs().max()) < 8.0 * float(torch.finfo(STORAGE[precision]).eps) * float(
        mean.abs().max() + 1
    )
    return Reading(verdict="mean of all values" if near else "other finite values")


def row_without_keys(subject: Subject, precision: str) -> Reading:
    """Boolean mask."""
    return _masked_row(subject, precision, False)


def row_of_infinities(subject: Subject, precision: str) -> Reading:
    """Mask of minus infinities."""
    return _masked_row(subject, precision, -math.inf)


def row_of_minima(subject: Subject, precision: str) -> Reading:
    """Mask of the format's most negative number."""
    return _masked_row(subject, precision, float(torch.finfo(STORAGE[precision]).min))


def nan_behind_mask(subject: Subject, precision: str) -> Reading:
    """A masked key and value that are NaN."""
    query, key, value = _random("masked rows", precision, 1, 2, 8, 16)
    key[:, :, MASKED_KEY], value[:, :, MASKED_KEY] = math.nan, math.nan
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[:, MASKED_KEY] = False
    found = subject.run(masked, query, key, value, mask)[0]
    return Reading(verdict="leaks through the mask" if bool(found.isnan().any()) else "stays behind the mask")


def same_bits(subject: Subject, precision: str) -> Reading:
    """Whether one sequence alone, a prefix, and the last query by itself give the bits of the whole."""
    query, key, value = _random("attention invariance", precision, 2, 2, 128, 32)
    whole = subject.run(causal, query, key, value)[0]
    alone = subject.run(causal, *[part[:1].contiguous() for part in (query, key, value)])[0]
    prefix = subject.run(causal, *[part[:, :, :PREFIX].contiguous() for part in (query, key, value)])[0]
    last = subject.run(
        unmasked,
        query[:, :, PREFIX - 1 : PREFIX].contiguous(),
        key[:, :, :PREFIX].contiguous(),
        value[:, :, :PREFIX].contiguous(),
    )[0]
    equal = {
        "one sequence alone": torch.equal(whole[:1], alone),
        "prefix": torch.equal(whole[:, :, :PREFIX], prefix),
        "one query against the cache": torch.equal(prefix[:, :, PREFIX - 1 : PREFIX], last),
    }
    different = [name for name, same in equal.items() if not same]
    verdict = f"differs for: {', '.join(different)}" if different else "invariant"
    return Reading(verdict=verdict, details={f"{name} equal": same for name, same in equal.items()})


PROBES: dict[str, Callable[[Subject, str], Reading]] = {
    "row masked out, boolean": row_without_keys,
    "row masked out, -inf": row_of_infinities,
    "row masked out, least number": row_of_minima,
    "NaN in a masked key": nan_behind_mask,
    "invariance": same_bits,
}


def attention(subject: Subject, precision: str) -> Readings:
    """Every probe, each with its own failure."""
    readings: dict[str, Reading | Unknown] = {}
    for name, probe in PROBES.items():
        try:
            readings[name] = probe(subject, precision)
        except Exception as error:
            # What one form of attention lacks must not hide the others.
            readings[name] = Unknown(why(error))
    return readings


INSTRUMENTS: list[Instrument] = [
    Instrument(group="attention", names=tuple(PROBES), precisions=("fp32", "bf16"), measure=attention)
]
