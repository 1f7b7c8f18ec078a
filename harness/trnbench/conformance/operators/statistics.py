"""Tier T3: the error of a whole output against the noise floor of permitted implementations of the same operator.

An error may stay within every bound and still be larger, or lean further to one side, than rounding explains: a
truncated output, a sum in another format. Two measures of the error of one random input are compared with those of
the permitted implementations on other random inputs of the same kind: its root mean square relative to the oracle's,
and its lean, the sum of sign(y) * error over that of |y|, which is zero on average for round to nearest. (A mean of
error / y would be ruled by the few y near zero, and its spread from seed to seed by nothing that a floor can hold.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch

from trnbench.conformance.floor import FloorLimit, norm_error_limit, signed_error_limit
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.operators.base import Finding, Operator, Plan, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Implementation, Tensors

FLOOR_INPUT = "gaussian"
"""The generator whose samples carry the statistic: the errors of the others are not alike from seed to seed."""

FLOOR_SEEDS = (1001, 1002, 1003, 1004)
"""Runs of the first permitted implementation, apart from the seeds of any plan. Each further one has its own, a hundred
on: in 16 bits all round the same inputs alike, and runs that repeat each other would count as independent."""


def floor_findings(
    operator: Operator,
    precision: str,
    implementation: Implementation,
    plan: Plan,
    arithmetic: Arithmetic | None = None,
) -> Iterator[Finding]:
    """Size and lean of the forward error on each gaussian sample of `plan`; nothing where no floor is declared.

    With `arithmetic`, what it permits beyond the usual joins the floor.
    """
    if not operator.permitted or operator.samples is None or operator.oracle is None:
        return
    samples = _gaussian(operator, precision, msgspec.structs.replace(plan, shapes="one"))
    if not samples:
        return
    further = operator.permitted_under(arithmetic) if operator.permitted_under and arithmetic else {}
    permitted = {**operator.permitted, **further}
    runs = {
        name: [
            _measures(operator, sample, HostImplementation(function))
            for sample in _floor_samples(operator, precision, plan, place)
        ]
        for place, (name, function) in enumerate(permitted.items())
    }
    size_limit = norm_error_limit({name: [run[0] for run in group] for name, group in runs.items()}, comparisons=2)
    lean_limit = signed_error_limit({name: [run[1] for run in group] for name, group in runs.items()}, comparisons=2)
    for sample in samples:
        size, lean = _measures(operator, sample, implementation)
        yield _finding(operator, sample, "size", size, size_limit)
        yield _finding(operator, sample, "lean", abs(lean), lean_limit)


def _floor_samples(operator: Operator, precision: str, plan: Plan, place: int) -> list[Sample]:
    """What the permitted implementation number `place` is run on."""
    seeds = tuple(seed + 100 * place for seed in FLOOR_SEEDS)
    return _gaussian(operator, precision, msgspec.structs.replace(plan, shapes="one", seeds=seeds))


def _gaussian(operator: Operator, precision: str, plan: Plan) -> list[Sample]:
    assert operator.samples is not None
    wanted = msgspec.structs.replace(plan, inputs=(FLOOR_INPUT,))
    return [sample for sample in operator.samples(precision, wanted) if sample.input == FLOOR_INPUT]


def _measures(operator: Operator, sample: Sample, implementation: Implementation) -> tuple[float, float]:
    """Relative size and lean of the error of the first output; (inf, inf) where it is not finite."""
    assert operator.oracle is not None
    exact = _first(operator.oracle(*sample.inputs)).double()
    output = _first(implementation.forward(sample.inputs)).double()
    if output.shape != exact.shape or not bool(torch.isfinite(output).all()):
        return float("inf"), float("inf")
    error = output - exact
    lean = (torch.sign(exact) * error).sum() / exact.abs().sum()
    return float(error.norm() / exact.norm()), float(lean)


def _finding(operator: Operator, sample: Sample, measure: str, value: float, limit: FloorLimit) -> Finding:
    ratio = value / limit.limit
    finite = ratio != float("inf")
    return Finding(
        operator=operator.name,
        direction="forward",
        input=f"{sample.input} ({measure} of the error)",
        tier="T3",
        verdict=("pass" if ratio <= 1.0 else "fail") if finite else "non-finite",
        value=ratio if finite else None,
        where=f"{value:.3g} against {limit.limit:.3g} from {limit.runs} runs of {limit.groups} permitted "
        f"implementations; {sample.shape}",
    )


def _first(outputs: torch.Tensor | Tensors) -> torch.Tensor:
    return outputs if isinstance(outputs, torch.Tensor) else outputs[0]
