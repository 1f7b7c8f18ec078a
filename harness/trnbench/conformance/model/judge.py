"""From errors and their noise floor to verdicts.

Every verdict's value is the largest error over its own limit: a number without unit, at most 1 for a pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.floor import FloorLimit, norm_error_limit, signed_error_limit
from trnbench.conformance.model.baseline import MEASURES, Baseline, floor_groups
from trnbench.conformance.verdicts import ratio_check
from trnbench.records.schema import Check

if TYPE_CHECKING:
    from trnbench.conformance.model.optimizer import StepError
    from trnbench.conformance.model.runs import Weights

METRIC = "largest error to the float64 oracle over its noise-floor limit"
STEP_METRIC = "largest error of an updated weight over its rounding bound"
STEP_REFERENCE = "AdamW in float64 from the device's own weights and gradients"


def floor_check(check: str, measured: Weights, baseline: Baseline, *, scope: str, reference: str) -> Check:
    """Judge every tensor of `check`, by each of its measures, against the floor's errors of the same kind."""
    errors = baseline.errors[check]
    comparisons = floor_groups(errors)
    worst_ratio, worst_words = 0.0, "every error is zero"
    for name, measures in errors.items():
        for measure, groups in measures.items():
            make_limit = signed_error_limit if measure == "signed" else norm_error_limit
            limit = make_limit(groups, comparisons=comparisons)
            error = abs(MEASURES[measure](measured[name], baseline.oracle[check][name]))
            if error / limit.limit > worst_ratio:
                worst_ratio, worst_words = error / limit.limit, f"worst at {name} ({measure}): {_words(error, limit)}"
    return ratio_check(check, "model", METRIC, worst_ratio, reference=reference, where=f"{worst_words}; {scope}")


def step_check(error: StepError, *, scope: str) -> Check:
    """Judge one optimizer step by its largest error over bound."""
    where = f"worst at {error.parameter or 'no weight'}; {scope}"
    return ratio_check("optimizer step", "model", STEP_METRIC, error.value, reference=STEP_REFERENCE, where=where)


def nonfinite_check(check: str, what: str, layer: str | None, *, scope: str) -> Check:
    """A result that is not finite: no error value, and the first bad position and layer named."""
    first = f"first bad layer {layer}" if layer else "the eager forward pass is finite"
    return Check(
        check=check,
        level="model",
        metric=METRIC,
        value=None,
        limit=1.0,
        verdict="non-finite",
        reference="none: a result that is not finite is judged before any bound",
        where=f"{what}; {first}; {scope}",
    )


def _words(error: float, limit: FloorLimit) -> str:
    return (
        f"relative error {error:.3g}, limit {limit.limit:.3g} from {limit.runs} runs of {limit.groups} permitted "
        f"implementations (largest {limit.largest:.3g})"
    )
