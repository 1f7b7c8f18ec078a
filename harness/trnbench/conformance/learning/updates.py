"""Do updates arrive in the weights: elements that never moved, and parameters that hardly went anywhere."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from scipy import stats

from trnbench.conformance.learning.statistics import FALSE_ALARM_PROBABILITY, shortfall_margin
from trnbench.conformance.verdicts import ratio_check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.conformance.learning.arms import Run
    from trnbench.records.schema import Check

UPDATES = "learning/updates arrive"
LOST = "updates lost: round to nearest swallows them"
FROZEN = "updates lost: no weight ever moves"
NO_GRADIENT = "no gradient arrives"
SMALL = "updates are too small"
CONFIDENCE = 0.95
"""Of the upper limit on the rate at which fp32 weights happen to end where they began."""


def updates_check(
    runs: Sequence[Run], reference: Sequence[Run], sizes: dict[str, int], *, compared_with: str, scope: str
) -> Check:
    """The worse of two ratios over all parameters.

    Unmoved elements: in fp32 with decay every weight moves, and one ends exactly where it began only by chance. The
    rate of that is measured in the fp32 runs (upper Clopper-Pearson limit), and a parameter of the device may hold as
    many unmoved elements as the binomial distribution of that rate gives with the false-alarm probability.

    Distance moved: the mean logarithm of the norm of each parameter's change may fall short of the fp32 runs' by what
    their own spread over the seeds allows. A parameter that gets no gradient is moved by weight decay alone.
    """
    metric = "unmoved weights, or missing distance of a parameter's change, over their limit"
    unmoved_value, unmoved_name, share = _worst_unmoved(runs, reference, sizes)
    distance_value, distance_name, distance_share = _worst_distance(runs, reference)
    total = sum(count for run in runs for count in run.unmoved.values()) / (len(runs) * sum(sizes.values()))
    steps = len(runs[0].losses)
    where = (
        f"{total:.2%} of the weights never moved in {steps} steps, most in {unmoved_name} ({share:.2%}); "
        f"{distance_name} went {distance_share:.1%} of the way that it goes in fp32; {scope}"
    )
    if total == 1.0:
        looks_like = FROZEN
    elif unmoved_value >= distance_value or unmoved_value > 1.0:
        looks_like = LOST
    else:
        looks_like = f"{NO_GRADIENT if _only_decays(runs, reference, distance_name) else SMALL} at {distance_name}"
    return ratio_check(
        UPDATES,
        "learning",
        metric,
        max(unmoved_value, distance_value),
        looks_like=looks_like,
        reference=compared_with,
        where=where,
    )


def _worst_unmoved(runs: Sequence[Run], reference: Sequence[Run], sizes: dict[str, int]) -> tuple[float, str, float]:
    """Largest count over its limit, its parameter, and its share of that parameter."""
    rate = _unmoved_rate(reference, sizes)
    worst = (-1.0, "", 0.0)
    for name, size in sizes.items():
        elements = size * len(runs)
        count = sum(run.unmoved[name] for run in runs)
        # One more than the quantile is the first count that is too many, and never zero.
        limit = float(stats.binom.ppf(1.0 - FALSE_ALARM_PROBABILITY / len(sizes), elements, rate)) + 1.0
        worst = max(worst, (count / limit, name, count / elements))
    return worst


def _unmoved_rate(reference: Sequence[Run], sizes: dict[str, int]) -> float:
    """Upper confidence limit on the share of fp32 weights that end where they began."""
    elements = len(reference) * sum(sizes.values())
    count = sum(sum(run.unmoved.values()) for run in reference)
    if count >= elements:
        raise ValueError("no weight of the fp32 arms moved")
    return float(stats.beta.ppf(CONFIDENCE, count + 1, elements - count))


def _worst_distance(runs: Sequence[Run], reference: Sequence[Run]) -> tuple[float, str, float]:
    """Largest shortfall of the log distance over its limit, its parameter, and the share of the way it went."""
    names = list(reference[0].distance)
    smallest = math.ulp(0.0)
    worst = (-1.0, "", 0.0)
    for name in names:
        wanted = [math.log(run.distance[name]) for run in reference]
        went = statistics.fmean(math.log(max(run.distance[name], smallest)) for run in runs)
        short = statistics.fmean(wanted) - went
        allowed = shortfall_margin(wanted, len(runs), comparisons=len(names))
        worst = max(worst, (max(0.0, short) / allowed, name, math.exp(-short)))
    return worst


def _only_decays(runs: Sequence[Run], reference: Sequence[Run], name: str) -> bool:
    """Is the distance nearer, by its logarithm, to what weight decay makes of it than to that of the fp32 runs?"""
    smallest = math.ulp(0.0)
    went, wanted, decay = (
        statistics.fmean(math.log(max(value, smallest)) for value in values)
        for values in (
            [run.distance[name] for run in runs],
            [run.distance[name] for run in reference],
            [run.decay[name] for run in reference],
        )
    )
    return abs(went - decay) < abs(went - wanted)
