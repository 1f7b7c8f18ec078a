"""Naming a fault: which hypothesis explains most of the failing samples, and by what evidence.

Evidence in falling order, sample by sample: a constant that only this fault returns, equality of every bit with an
emulation, and residuals (output minus oracle) that point the same way as the emulation's and are as long. The name
that explains most failing samples wins; of equals, the one with the better evidence, then the one listed first, so
that simple hypotheses belong at the head of a list.
"""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from trnbench.conformance.diagnosis.base import Diagnosis, Evidence
from trnbench.conformance.diagnosis.generic import EMULATIONS, OUTCOMES, SIMPLEST
from trnbench.conformance.inputs import rounded
from trnbench.conformance.operators.base import ExactSample
from trnbench.conformance.operators.compare import exact_mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trnbench.conformance.diagnosis.base import Hypothesis
    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.operators.judge import Failure

LEAST_CORRELATION = 0.9
"""Cosine between residuals from which on they count as the same: four fifths of the squared error is then explained."""

MOST_SAMPLES = 12
"""Failing samples that are looked at: a fault shows in many, and each costs one emulation of every hypothesis."""

RANK: dict[Evidence, int] = {"exact constant": 3, "bitwise match": 2, "matched residual": 1, "unexplained": 0}


class _Match(msgspec.Struct, frozen=True):
    """How well one name explains one failing sample."""

    evidence: Evidence
    strength: float


def diagnose(failures: list[Failure], hypotheses: list[Hypothesis]) -> Diagnosis:
    """The fault that `failures`, all of one operator in one precision, look like.

    `hypotheses` are the operator's own, the simplest first; the generic ones join by themselves, last but for flushed
    subnormals. A hypothesis that
    returns None for a sample neither explains it nor is refuted by it. Raises `ValueError` without any failure.
    """
    if not failures:
        raise ValueError("diagnosis: there is no failure to explain")
    samples = _selected(failures)
    names: dict[str, dict[int, _Match]] = {}
    most = 0
    for name, attempt in _attempts(_signed(samples), hypotheses):
        found = names.setdefault(name, {})
        for place, failure in enumerate(samples):
            # Emulations are dear: none is made of a name that can no longer catch up.
            if sum(other < place for other in found) + len(samples) - place < most:
                break
            match = attempt(failure)
            if match is not None and (place not in found or RANK[found[place].evidence] < RANK[match.evidence]):
                found[place] = match
        most = max(most, len(found))
    return _best({name: list(found.values()) for name, found in names.items() if found}, samples, hypotheses)


def _best(names: dict[str, list[_Match]], samples: list[Failure], hypotheses: list[Hypothesis]) -> Diagnosis:
    ordered = [*SIMPLEST, *(hypothesis.name for hypothesis in hypotheses)]
    order = {name: place for place, name in reversed(list(enumerate(ordered)))}
    if not names:
        return Diagnosis(
            name="unexplained",
            evidence="unexplained",
            strength=0.0,
            effective_bits=_effective_bits(samples),
            failing=len(samples),
        )

    def merit(name: str) -> tuple[int, int, float, int]:
        found = names[name]
        # Strengths that print alike are a tie, which the order of the list decides.
        strength = round(statistics.fmean(match.strength for match in found), 3)
        return len(found), max(RANK[match.evidence] for match in found), strength, -order.get(name, len(order))

    best = max(names, key=merit)
    evidence = max((match.evidence for match in names[best]), key=RANK.__getitem__)
    return Diagnosis(
        name=best,
        evidence=evidence,
        strength=statistics.fmean(match.strength for match in names[best] if match.evidence == evidence),
        explained=len(names[best]),
        failing=len(samples),
    )


def _selected(failures: list[Failure]) -> list[Failure]:
    """One failure a sample and direction, and if there are too many, such as differ in their input first."""
    distinct: dict[tuple[int, str], Failure] = {}
    for failure in failures:
        distinct.setdefault((id(failure.sample), failure.direction), failure)
    seen: dict[tuple[str, str], int] = {}
    turns = []
    for failure in distinct.values():
        kind = (failure.sample.input, failure.direction)
        seen[kind] = seen.get(kind, 0) + 1
        turns.append(seen[kind])
    ordered = sorted(zip(turns, distinct.values(), strict=True), key=lambda pair: pair[0])
    return [failure for _, failure in ordered[:MOST_SAMPLES]]


def _attempts(
    constants: list[str], hypotheses: list[Hypothesis]
) -> Iterator[tuple[str, Callable[[Failure], _Match | None]]]:
    """Names, each with one way to recognise it in a sample: constants, then the cheap, then the dear."""
    for name in constants:
        yield name, partial(_by_constant, name)
    for name, holds in OUTCOMES.items():
        yield name, partial(_by_outcome, holds)
    for name, emulation in EMULATIONS.items():
        yield name, partial(_by_emulation, emulation)
    for hypothesis in hypotheses:
        yield hypothesis.name, partial(_by_hypothesis, hypothesis)


def _signed(samples: list[Failure]) -> list[str]:
    """Faults of which some sample knows what they would return."""
    exact = [failure.sample for failure in samples if isinstance(failure.sample, ExactSample)]
    return list(dict.fromkeys(name for sample in exact for name in sample.signatures))


def _by_constant(name: str, failure: Failure) -> _Match | None:
    sample = failure.sample
    constants = sample.signatures.get(name) if isinstance(sample, ExactSample) else None
    return _Match("exact constant", 1.0) if constants is not None and _same(failure.outputs, constants) else None


def _by_hypothesis(hypothesis: Hypothesis, failure: Failure) -> _Match | None:
    return _compared(failure, _emulated(hypothesis, failure))


def _by_outcome(holds: Callable[[Failure], bool], failure: Failure) -> _Match | None:
    return _Match("bitwise match", 1.0) if holds(failure) else None


def _by_emulation(emulation: Callable[[Failure], Tensors | None], failure: Failure) -> _Match | None:
    return _compared(failure, emulation(failure))


def _emulated(hypothesis: Hypothesis, failure: Failure) -> Tensors | None:
    sample = failure.sample
    if failure.direction == "forward":
        return None if hypothesis.emulate is None else hypothesis.emulate(sample.inputs, failure.precision)
    if hypothesis.gradient is None or sample.cotangents is None:
        return None
    return hypothesis.gradient(sample.inputs, sample.cotangents, failure.precision)


def _compared(failure: Failure, emulated: Tensors | None) -> _Match | None:
    """Evidence that `emulated` is what the device computed; None where it is not."""
    if emulated is None or not _same_shapes(emulated, failure.outputs):
        return None
    outputs = failure.outputs
    emulated = tuple(_rounded_as(one, output) for one, output in zip(emulated, outputs, strict=True))
    right = tuple(_rounded_as(one, output) for one, output in zip(failure.expected, outputs, strict=False))
    if not _same_shapes(right, outputs) or _same(emulated, right):
        return None
    if _same(outputs, emulated):
        return _Match("bitwise match", 1.0)
    strength = _agreement(failure, emulated, right)
    return None if strength is None else _Match("matched residual", strength)


def _agreement(failure: Failure, emulated: Tensors, right: Tensors) -> float | None:
    """Correlation of the residuals, not centred, each element in units of its bound; None below `LEAST_CORRELATION`.

    Residuals are taken from the correctly rounded result: from the exact one, they would share the last rounding, and
    an emulation that is right nearly everywhere would agree with every output that is.
    If one residual is the other plus something independent, the ratio of their lengths lies between the correlation
    and its inverse, so a ratio outside [0.9, 1 / 0.9] refutes the hypothesis. Non-finite elements must be alike in as
    large a share; where no finite element is wrong, that share is the strength.
    """
    outputs = _flat(failure.outputs)
    expected, others = _flat(right), _flat(emulated)
    bounds = torch.ones_like(expected) if failure.bounds is None else _flat(failure.bounds)
    odd = ~(torch.isfinite(outputs) & torch.isfinite(others))
    alike = (outputs == others) | (outputs.isnan() & others.isnan())
    share = float(alike[odd].double().mean()) if bool(odd.any()) else 1.0
    if share < LEAST_CORRELATION:
        return None
    usable = ~odd & torch.isfinite(expected) & torch.isfinite(bounds) & (bounds > 0.0)
    residual = (outputs - expected)[usable] / bounds[usable]
    emulation = (others - expected)[usable] / bounds[usable]
    lengths = float(residual.norm()), float(emulation.norm())
    if 0.0 in lengths or not all(map(math.isfinite, lengths)):
        return share if bool(odd.any()) and lengths == (0.0, 0.0) else None
    correlation = float(residual @ emulation) / (lengths[0] * lengths[1])
    scale = lengths[0] / lengths[1]
    if correlation < LEAST_CORRELATION or not LEAST_CORRELATION <= scale <= 1.0 / LEAST_CORRELATION:
        return None
    return min(share, correlation)


def _effective_bits(failures: list[Failure]) -> float | None:
    """Median over the samples of -log2(||output - oracle|| / ||oracle||), at least 0; None if nothing is finite.

    A result correctly rounded to p bits has about p + 1 of them. Elements that are not finite are left out.
    """
    bits = []
    for failure in failures:
        if not _same_shapes(failure.outputs, failure.expected):
            continue
        outputs, expected = _flat(failure.outputs), _flat(failure.expected)
        finite = torch.isfinite(outputs) & torch.isfinite(expected)
        error, size = float((outputs - expected)[finite].norm()), float(expected[finite].norm())
        if error > 0.0 and size > 0.0 and math.isfinite(error) and math.isfinite(size):
            bits.append(max(0.0, math.log2(size) - math.log2(error)))
    return statistics.median(bits) if bits else None


def _flat(tensors: Tensors) -> Tensor:
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors])


def _rounded_as(values: Tensor, output: Tensor) -> Tensor:
    """`values` in the dtype of `output`, rounded once."""
    if values.dtype == output.dtype or not (values.is_floating_point() and output.is_floating_point()):
        return values.to(output.dtype)
    return rounded(values.detach().double().numpy(), output.dtype).reshape(values.shape)


def _same_shapes(some: Tensors, others: Tensors) -> bool:
    return [tensor.shape for tensor in some] == [tensor.shape for tensor in others]


def _same(some: Tensors, others: Tensors) -> bool:
    """Equal in number, shape, dtype and every bit, NaN payloads aside."""
    return (
        _same_shapes(some, others)
        and [tensor.dtype for tensor in some] == [tensor.dtype for tensor in others]
        and exact_mismatch(some, others) is None
    )
