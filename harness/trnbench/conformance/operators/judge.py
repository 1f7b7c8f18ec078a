"""One operator, one precision, one implementation: every finding, tier by tier.

Order of judgement: dtype and shape, then non-finite values, then exact answers (T0), the hard bound (T1), the
probabilistic bound (T2), and statistics against the floor of permitted implementations (T3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import torch

from trnbench.conformance.implementation import Tensors
from trnbench.conformance.operators import compare
from trnbench.conformance.operators.base import Direction, ExactSample, Finding, Operator, Plan, Sample, Tier
from trnbench.conformance.operators.statistics import floor_findings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Implementation


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A sample that failed, with all that a diagnosis may look at. Outputs are gradients where `direction` says so.

    `expected` and `bounds` are float64 tensors, one an output; `bounds` is None at tier T0, where nothing is allowed.
    """

    operator: Operator
    precision: str
    direction: Direction
    tier: str
    sample: Sample
    outputs: Tensors
    expected: Tensors
    bounds: Tensors | None
    finding: Finding


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of an operator, and of those that did not pass all that a diagnosis needs."""

    findings: list[Finding]
    failures: list[Failure]


Watch = Callable[[Direction, Sample, Tensors, Tensors], None]
"""Sees what a bounded sample gave: direction, sample, outputs, and the float64 oracle's answer."""


def judge_operator(
    operator: Operator,
    precision: str,
    implementation: Implementation,
    arithmetic: Arithmetic,
    plan: Plan,
    *,
    watch: Watch | None = None,
) -> Judged:
    """Check `implementation` of `operator` in `precision` on every sample of `plan`.

    `watch` sees the outputs that T1 and T2 judge, before they do. Raises whatever the implementation raises; the caller
    maps it to a status.
    """
    judge = _Judge(operator, precision, implementation, arithmetic, watch)
    for exact in operator.exact(precision, plan) if operator.exact else ():
        judge.exactly(exact)
    for sample in operator.samples(precision, plan) if operator.samples else ():
        judge.bounded(sample)
    judge.findings += floor_findings(operator, precision, implementation, plan, arithmetic)
    if operator.statistics is not None:
        judge.findings += operator.statistics(implementation, precision, plan, arithmetic)
    return Judged(findings=judge.findings, failures=judge.failures)


class _Judge:
    """Collects findings and failures of one operator."""

    def __init__(
        self,
        operator: Operator,
        precision: str,
        implementation: Implementation,
        arithmetic: Arithmetic,
        watch: Watch | None,
    ) -> None:
        self.findings: list[Finding] = []
        self.failures: list[Failure] = []
        self._operator = operator
        self._precision = precision
        self._implementation = implementation
        self._arithmetic = arithmetic
        self._watch = watch

    def exactly(self, sample: ExactSample) -> None:
        """Tier T0, forward and, where the sample knows its gradients, backward."""
        self._exact("forward", sample, self._implementation.forward(sample.inputs), sample.expected)
        gradient = self._operator.gradient
        if sample.gradients is not None and sample.cotangents is not None and gradient is not None:
            found = self._implementation.backward(sample.inputs, sample.cotangents, gradient.wrt)
            self._exact("backward", sample, found, sample.gradients)

    def _exact(self, direction: Direction, sample: ExactSample, outputs: Tensors, expected: Tensors) -> None:
        wrong = compare.form_mismatch(outputs, expected) or compare.exact_mismatch(outputs, expected)
        finding = Finding(
            operator=self._operator.name,
            direction=direction,
            input=sample.input,
            tier="T0",
            verdict="fail" if wrong else "pass",
            value=None if wrong else 0.0,
            where=f"{wrong or 'every bit is right'}; {sample.shape}",
        )
        self._keep(finding, sample, outputs, expected, None)

    def bounded(self, sample: Sample) -> None:
        """Tiers T1 and T2, forward and, where there are cotangents, backward."""
        operator = self._operator
        if operator.oracle is None or operator.bound is None:
            return
        tiers = (self._arithmetic, self._arithmetic.probabilistic())
        expected = _float64(operator.oracle(*sample.inputs))
        bounds = [_float64(operator.bound(sample.inputs, one)) for one in tiers]
        self._tiers("forward", sample, self._implementation.forward(sample.inputs), expected, bounds)
        gradient, cotangents = operator.gradient, sample.cotangents
        if gradient is None or cotangents is None:
            return
        expected = _float64(gradient.oracle(sample.inputs, cotangents))
        bounds = [_float64(gradient.bound(sample.inputs, cotangents, one)) for one in tiers]
        found = self._implementation.backward(sample.inputs, cotangents, gradient.wrt)
        self._tiers("backward", sample, found, expected, bounds)

    def _tiers(
        self, direction: Direction, sample: Sample, outputs: Tensors, expected: Tensors, bounds: list[Tensors]
    ) -> None:
        """The findings of T1 and T2; one finding alone where dtype, shape or finiteness is already wrong."""
        if self._watch is not None:
            self._watch(direction, sample, outputs, expected)
        form = compare.form_mismatch(outputs, expected, self._precision)
        odd = None if form else compare.nonfinite_mismatch(outputs, expected, bounds[0], self._precision)
        place = sample.shape if sample.seed is None else f"{sample.shape}, seed {sample.seed}"
        if form or odd:
            finding = Finding(
                operator=self._operator.name,
                direction=direction,
                input=sample.input,
                tier="T1",
                verdict="non-finite" if odd and not odd.finite else "fail",
                value=None,
                where=f"{form or odd}; {place}",
            )
            self._keep(finding, sample, outputs, expected, bounds[0])
            return
        tiers: tuple[Tier, Tier] = ("T1", "T2")
        for tier, bound in zip(tiers, bounds, strict=True):
            worst = compare.largest_ratio(outputs, expected, bound)
            finding = Finding(
                operator=self._operator.name,
                direction=direction,
                input=sample.input,
                tier=tier,
                verdict="pass" if worst.passes else "fail",
                value=worst.ratio,
                where=f"{worst.where}; {place}",
            )
            self._keep(finding, sample, outputs, expected, bound)

    def _keep(
        self, finding: Finding, sample: Sample, outputs: Tensors, expected: Tensors, bounds: Tensors | None
    ) -> None:
        self.findings.append(finding)
        if finding.verdict != "pass":
            failure = Failure(
                operator=self._operator,
                precision=self._precision,
                direction=finding.direction,
                tier=finding.tier,
                sample=sample,
                outputs=outputs,
                expected=expected,
                bounds=bounds,
                finding=finding,
            )
            self.failures.append(failure)


def _float64(tensors: torch.Tensor | Iterable[torch.Tensor]) -> Tensors:
    several = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
    return tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in several)
