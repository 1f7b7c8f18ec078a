"""From runs to verdicts. Every value is a ratio to its limit: at most 1 passes."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from trnbench.conformance.learning.curves import (
    evaluation_error,
    final_loss,
    first_bad_step,
    loss_drop,
    samples_to_target,
    target_loss,
)
from trnbench.conformance.learning.statistics import (
    FALSE_ALARM_PROBABILITY,
    Equivalence,
    floor_margin,
    shortfall_margin,
    two_one_sided_tests,
)
from trnbench.conformance.verdicts import ratio_check
from trnbench.records.schema import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

Curves = list[list[float]]
"""One loss curve a run."""

FINITE, FALLS, FINAL, SAMPLES = (
    "learning/loss is finite",
    "learning/loss falls",
    "learning/final loss equivalence",
    "learning/samples to target",
)
TOO_SLOW, TOO_FAST, NOT_SHOWN, FLAT = "learns too slowly", "learns too fast", "not shown equivalent", "flat loss"
COMPARISONS = 2
"""Quantities that are judged by the floor: final loss and samples to target."""


def not_checked(check: str, reason: str) -> Check:
    """What cannot be judged, and why."""
    return Check(
        check=check,
        level="learning",
        metric="none: not judged",
        value=None,
        limit=None,
        verdict="not checked",
        reference="none",
        where=reason,
    )


def finite_check(curves: Curves, *, scope: str) -> Check:
    """Every loss of every run must be finite; the first that is not is named, and no mean skips it."""
    metric = "losses that are not finite, over the first that is too many"
    bad = [(step, run) for run, losses in enumerate(curves) if (step := first_bad_step(losses)) is not None]
    if not bad:
        steps = sum(len(losses) for losses in curves)
        where = f"all {steps} losses of {len(curves)} runs are finite; {scope}"
        return ratio_check(FINITE, "learning", metric, 0.0, reference="IEEE 754: isfinite", where=where)
    step, run = min(bad)
    losses = curves[run]
    kind = "NaN" if math.isnan(losses[step - 1]) else "infinity"
    again = next((later for later in range(step, len(losses)) if math.isfinite(losses[later])), None)
    course = f"{kind} at step {step} that " + ("stays" if again is None else f"goes away at step {again + 1}")
    count = sum(not math.isfinite(loss) for losses in curves for loss in losses)
    return Check(
        check=FINITE,
        level="learning",
        metric=metric,
        value=None,
        limit=1.0,
        verdict="non-finite",
        reference="none: a loss that is not finite is judged before any bound",
        where=f"first bad step {step} (run {run}); {count} losses in {len(bad)} of {len(curves)} runs; {scope}",
        looks_like=course,
    )


def falls_check(curves: Curves, reference: Curves, window: int, *, compared_with: str, scope: str) -> Check:
    """The mean drop of the loss must be one that another set of fp32 runs could have had."""
    drops = [loss_drop(losses, window) for losses in curves]
    reference_drops = [loss_drop(losses, window) for losses in reference]
    wanted, drop = statistics.fmean(reference_drops), statistics.fmean(drops)
    allowed = shortfall_margin(reference_drops, len(drops))
    if allowed >= wanted:
        raise ValueError("the fp32 arms scatter as much as they learn; no drop can be asked for")
    return ratio_check(
        FALLS,
        "learning",
        "missing drop of the loss over the fp32 arms' own spread",
        max(0.0, wanted - drop) / allowed,
        looks_like=TOO_SLOW if _surely_falls(drops) else FLAT,
        reference=compared_with,
        where=(
            f"fell by {drop:.3g}, fp32 by {wanted:.3g}: {drop / wanted:.0%} of it, and at least "
            f"{1 - allowed / wanted:.0%} is asked for, by the spread of {len(reference_drops)} fp32 runs; {scope}"
        ),
    )


def _surely_falls(drops: Sequence[float]) -> bool:
    """One-sided t test of a mean drop of zero, at a level that the noise of batches does not reach by chance."""
    if len(drops) < 2:
        return drops[0] > 0.0
    return statistics.fmean(drops) > 0.0 and two_one_sided_tests(drops, 1.0).p_difference / 2 < FALSE_ALARM_PROBABILITY


def final_check(
    curves: Curves, reference: Curves, floor: Curves, window: int, *, vocabulary: int, compared_with: str, scope: str
) -> Check:
    """Paired final losses by two one-sided tests; delta is the floor's, and what the loss may be misreported by."""
    differences, floor_differences = (
        _paired([final_loss(losses, window) for losses in arm], [final_loss(losses, window) for losses in reference])
        for arm in (curves, floor)
    )
    misreport = max(evaluation_error(vocabulary, final_loss(losses, window)) for losses in reference)
    delta = floor_margin(floor_differences, comparisons=COMPARISONS) + misreport
    equivalence = two_one_sided_tests(differences, delta)
    return ratio_check(
        FINAL,
        "learning",
        "paired difference of the final loss, with its confidence limit, over delta",
        equivalence.value,
        looks_like=_name(equivalence),
        reference=compared_with,
        where=f"mean of the last {window} losses: {equivalence.words}; {scope}",
    )


def samples_check(
    curves: Curves,
    reference: Curves,
    floor: Curves,
    window: int,
    batch: int,
    *,
    vocabulary: int,
    compared_with: str,
    scope: str,
) -> Check:
    """Paired logarithms of samples-to-target by two one-sided tests. An arm that misses the target fails.

    What the loss may be misreported by counts as a shift of the target.
    """
    target = target_loss(reference, window)
    needed = [samples_to_target(losses, target, window, batch) for losses in curves]
    wanted = [samples_to_target(losses, target, window, batch) for losses in reference]
    floored = [samples_to_target(losses, target, window, batch) for losses in floor]
    missed = sum(math.isinf(samples) for samples in needed)
    # A run that never got there needs more than it was given: a lower bound, enough to say which way it is off.
    given = [min(samples, float(batch * len(losses))) for samples, losses in zip(needed, curves, strict=True)]
    shifted = [
        samples_to_target(losses, target + evaluation_error(vocabulary, target), window, batch) for losses in reference
    ]
    misreport = max(abs(ratio) for ratio in _log_ratios(shifted, wanted))
    delta = floor_margin(_log_ratios(floored, wanted), comparisons=COMPARISONS) + misreport
    equivalence = two_one_sided_tests(_log_ratios(given, wanted), delta)
    where = (
        f"target loss {target:.4g}: {statistics.fmean(given):.4g} samples, fp32 {statistics.fmean(wanted):.4g}; "
        f"logarithm of the ratio: {equivalence.words}; {scope}"
    )
    if missed:
        where = f"{missed} of {len(needed)} runs never reach the target; " + where
    return ratio_check(
        SAMPLES,
        "learning",
        "paired log ratio of samples to target, with its confidence limit, over delta",
        equivalence.value,
        looks_like=TOO_SLOW if missed else _name(equivalence),
        reference=compared_with,
        where=where,
        passes=equivalence.equivalent and not missed,
    )


def _name(equivalence: Equivalence) -> str:
    return {"": "", "slower": TOO_SLOW, "faster": TOO_FAST, "not shown": NOT_SHOWN}[equivalence.direction]


def _paired(arm: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Differences to the fp32 run of the same seed; an arm may go round the seeds several times."""
    return [value - reference[index % len(reference)] for index, value in enumerate(arm)]


def _log_ratios(arm: Sequence[float], reference: Sequence[float]) -> list[float]:
    return _paired([math.log(value) for value in arm], [math.log(value) for value in reference])
