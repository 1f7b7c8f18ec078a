"""The same product twice, and row by row: what a comparison with the oracle cannot see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trnbench.conformance.operators.base import Finding, Plan
from trnbench.conformance.operators.compare import exact_mismatch, first_index
from trnbench.conformance.operators.products_bounds import linear_bound
from trnbench.conformance.operators.products_samples import linear_samples, view_samples
from trnbench.conformance.operators.products_views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Implementation, Tensors
    from trnbench.conformance.operators.base import Sample

ROWS = 3
"""Rows that are computed one by one and compared with the same rows of the whole batch."""


def repeated(
    operator: str, implementation: Implementation, precision: str, plan: Plan, arithmetic: Arithmetic
) -> Iterator[Finding]:
    """Two identical calls must agree in every bit; rows computed alone, within the bounds of both results.

    The latter needs another shape, so plans of one shape leave it out, and it is asked of "matmul" and "linear" only.
    """
    one = Plan(seeds=plan.seeds[:1], shapes="one", inputs=("gaussian",))
    samples = linear_samples(precision, one) if operator == "linear" else view_samples(VIEWS[operator], precision, one)
    sample = next(samples)
    first = implementation.forward(sample.inputs)
    yield _twice(operator, sample, first, implementation.forward(sample.inputs))
    if plan.shapes != "one" and operator in ("matmul", "linear"):
        yield _row_by_row(operator, sample, first[0], implementation, arithmetic)


def _twice(operator: str, sample: Sample, first: Tensors, second: Tensors) -> Finding:
    wrong = exact_mismatch(second, first)
    return Finding(
        operator=operator,
        direction="forward",
        input=f"{sample.input} (run twice)",
        tier="T3",
        verdict="fail" if wrong else "pass",
        value=None if wrong else 0.0,
        where=f"{wrong or 'both runs have the same bits'}; {sample.shape}",
        looks_like="not deterministic" if wrong else "",
    )


def _row_by_row(
    operator: str, sample: Sample, whole: Tensor, implementation: Implementation, arithmetic: Arithmetic
) -> Finding:
    """Largest difference over the sum of the two bounds: another batch size may change the order, not the answer."""
    left, *others = sample.inputs
    width = left.shape[-1]
    rows = left.reshape(-1, width)[:ROWS]
    alone = torch.cat([implementation.forward((row[None], *others))[0] for row in rows]).double()
    together = whole.reshape(-1, whole.shape[-1])[:ROWS].double()
    tier = arithmetic.probabilistic()
    bound = (
        linear_bound((rows, *others), tier) if operator == "linear" else VIEWS[operator].bound((rows, *others), tier)
    )
    ratio = torch.nan_to_num((alone - together).abs() / (2.0 * bound[0]), nan=torch.inf)
    largest = float(ratio.max())
    place = first_index(ratio == ratio.max())
    return Finding(
        operator=operator,
        direction="forward",
        input=f"{sample.input} (row by row)",
        tier="T3",
        verdict="pass" if largest <= 1.0 else "fail",
        value=None if largest == torch.inf else largest,
        where=f"{float(alone[place]):.6g} alone, {float(together[place]):.6g} in the batch, at {list(place)}; "
        f"{sample.shape}",
        looks_like="" if largest <= 1.0 else "depends on the batch size",
    )
