"""The mutation test of the checks: every mutant through the same judge as a device, and through simpler schemes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.diagnosis.registry import hypotheses_of
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.mutants import schemes
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.check import summarise
from trnbench.conformance.operators.judge import judge_operator
from trnbench.conformance.operators.registry import operator
from trnbench.records.mutation import MutantResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.implementation import Tensors
    from trnbench.conformance.mutants.base import Mutant
    from trnbench.conformance.operators.base import Direction, Operator, Sample
    from trnbench.conformance.operators.judge import Judged

PLANS = (Plan(shapes="one"), Plan(shapes="several"))
"""One shape of every input is enough for most; the smoke tier's plan for wrong ones that it misses or cannot name."""


def try_mutant(mutant: Mutant, *, compare_schemes: bool = True) -> MutantResult:
    """Judge one mutant as a device would be, and maybe ask the simpler schemes about the same outputs.

    A failure on which the checks of the operator disagree about the fault counts as named where the diagnosis of all of
    them together, or of any input alone, is one of the names that are right.
    """
    for plan in PLANS:
        result = _try(mutant, plan, compare_schemes)
        if mutant.correct or result.named:
            break
    return result


def _try(mutant: Mutant, plan: Plan, compare_schemes: bool) -> MutantResult:
    target = operator(mutant.operator)
    arithmetic = mutant.arithmetic(mutant.precision) if mutant.arithmetic else Arithmetic(precision=mutant.precision)
    objections = _Objections(target)
    watch = objections.watch if compare_schemes else None
    judged = judge_operator(target, mutant.precision, mutant.make(), arithmetic, plan, watch=watch)
    first, right = "", None
    # In turn, since each name may cost the emulation of every hypothesis, and the first one is mostly right.
    for name in _names(target, judged):
        first = first or name
        if is_one_of(name, mutant.looks_like):
            right = name
            break
    return MutantResult(
        name=mutant.name,
        subject=target.name,
        precision=mutant.precision,
        expected=list(mutant.looks_like),
        tiers=sorted({one.tier for one in judged.findings if one.verdict != "pass"}),
        found=right or first,
        named=right is not None,
        schemes=objections.by_scheme,
    )


def _names(target: Operator, judged: Judged) -> Iterator[str]:
    """What the failures look like: all of them together, then those of each input."""
    if judged.failures:
        yield diagnose(judged.failures, hypotheses_of(target.name)).words
    for check in summarise(target, judged.findings, judged.failures):
        if check.looks_like:
            yield check.looks_like


def is_one_of(found: str, names: tuple[str, ...]) -> bool:
    """Whether `bf16 operands (matched residual, 0.998)` is one of the names, which carry no evidence."""
    return any(found == name or found.startswith(f"{name} (") for name in names)


class _Objections:
    """By scheme, whether it objects to any output that the judge sees, PyTorch's CPU implementation as the baseline."""

    def __init__(self, target: Operator) -> None:
        self.by_scheme: dict[str, bool] = {}
        self._target = target
        self._baseline = HostImplementation(target.function)

    def watch(self, direction: Direction, sample: Sample, outputs: Tensors, expected: Tensors) -> None:
        """Ask every scheme about one sample's outputs, or gradients."""
        for name, objects in schemes.objections(outputs, expected, self._usual(direction, sample)).items():
            self.by_scheme[name] = self.by_scheme.get(name, False) or objects

    def _usual(self, direction: Direction, sample: Sample) -> Tensors:
        gradient, cotangents = self._target.gradient, sample.cotangents
        if direction == "forward" or gradient is None or cotangents is None:
            return self._baseline.forward(sample.inputs)
        return self._baseline.backward(sample.inputs, cotangents, gradient.wrt)
