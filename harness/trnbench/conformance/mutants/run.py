"""The mutation test of the checks: every mutant through the same judge as a device, and through simpler schemes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.diagnosis.registry import hypotheses_of
from trnbench.conformance.implementation import HostImplementation, as_tuple
from trnbench.conformance.mutants import schemes
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.check import summarise
from trnbench.conformance.operators.judge import judge_operator
from trnbench.conformance.operators.registry import operator
from trnbench.records.mutation import MutantResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.implementation import Implementation, Tensors
    from trnbench.conformance.mutants.base import Mutant
    from trnbench.conformance.operators.base import Operator, Sample

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
    judged = judge_operator(target, mutant.precision, mutant.make(), arithmetic, plan)
    failed = [one for one in judged.findings if one.verdict != "pass"]
    names = [check.looks_like for check in summarise(target, judged.findings, judged.failures) if check.looks_like]
    if judged.failures:
        names.insert(0, diagnose(judged.failures, hypotheses_of(target.name)).words)
    right = next((name for name in names if is_one_of(name, mutant.looks_like)), None)
    return MutantResult(
        name=mutant.name,
        subject=target.name,
        precision=mutant.precision,
        expected=list(mutant.looks_like),
        tiers=sorted({one.tier for one in failed}),
        found=right or (names[0] if names else ""),
        named=right is not None,
        schemes=_schemes(target, mutant, plan) if compare_schemes else {},
    )


def is_one_of(found: str, names: tuple[str, ...]) -> bool:
    """Whether `bf16 operands (matched residual, 0.998)` is one of the names, which carry no evidence."""
    return any(found == name or found.startswith(f"{name} (") for name in names)


def _schemes(target: Operator, mutant: Mutant, plan: Plan) -> dict[str, bool]:
    found: dict[str, bool] = {}
    baseline = HostImplementation(target.function)
    implementation = mutant.make()
    for sample in target.samples(mutant.precision, plan) if target.samples else ():
        for results, oracles, baselines in _outputs(target, sample, implementation, baseline):
            for name, objects in schemes.objections(results, oracles, baselines).items():
                found[name] = found.get(name, False) or objects
    return found


def _outputs(
    target: Operator, sample: Sample, implementation: Implementation, baseline: Implementation
) -> Iterator[tuple[Tensors, Tensors, Tensors]]:
    """Result, oracle and baseline of the forward pass, and of the backward pass where the sample has cotangents."""
    if target.oracle is not None:
        oracles = as_tuple(target.oracle(*sample.inputs))
        yield implementation.forward(sample.inputs), oracles, baseline.forward(sample.inputs)
    if target.gradient is not None and sample.cotangents is not None:
        wrt = target.gradient.wrt
        with torch.enable_grad():
            yield (
                implementation.backward(sample.inputs, sample.cotangents, wrt),
                target.gradient.oracle(sample.inputs, sample.cotangents),
                baseline.backward(sample.inputs, sample.cotangents, wrt),
            )
