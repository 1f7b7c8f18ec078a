"""From numbers to a verdict and one plain sentence that says what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.compare.admission import Refusal
from trnbench.compare.statistics import LEAST_RUNS

if TYPE_CHECKING:
    from trnbench.compare.model import Ratio, Verdict

_GRAVEST_FIRST: tuple[Verdict, ...] = (
    "not conformant",
    "inconsistent timing",
    "not checked",
    "no common metric",
    "not enough runs",
)


class SideFound(msgspec.Struct, frozen=True, kw_only=True):
    """One side as a verdict sees it: how many runs carry a speed, and why the others do not, in time order."""

    label: str
    usable_runs: int
    refusals: list[Refusal]


def judge(*, a: SideFound, b: SideFound, ratio: Ratio | None, numerics: str, mismatch: str) -> tuple[Verdict, str]:
    """Verdict and explanation. `numerics` names unlike numerics and `mismatch` why no metric is shared, else empty."""
    if mismatch:
        return "no common metric", f"The sides have no common metric: {mismatch}."
    empty = [(letter, side) for letter, side in (("a", a), ("b", b)) if not side.usable_runs]
    if empty:
        found = {refused.verdict for _, side in empty for refused in side.refusals}
        told = "; ".join(f"{letter} ({side.label}): {side.refusals[-1].reason}" for letter, side in empty)
        return next(one for one in _GRAVEST_FIRST if one in found), f"No run carries a speed on {told}."
    if ratio is None:
        return "not enough runs", (
            f"Runs that carry a speed: {a.usable_runs} of a, {b.usable_runs} of b. A verdict needs at least "
            f"{LEAST_RUNS} on each side, because the spread between runs decides."
        )
    return _from_ratio(ratio, numerics)


def _from_ratio(ratio: Ratio, numerics: str) -> tuple[Verdict, str]:
    told = (
        f"Side a has {ratio.value:.3g} times the throughput of b, "
        f"{ratio.confidence:.0%} interval {ratio.low:.3g} to {ratio.high:.3g}"
    )
    if numerics:
        verdict: Verdict = "unlike numerics"
        why = f"the sides compute with unlike numerics ({numerics}), so there is no winner"
    elif ratio.low > 1:
        verdict, why = "a faster", "all of it lies above 1"
    elif ratio.high < 1:
        verdict, why = "b faster", "all of it lies below 1"
    else:
        verdict, why = "not distinguishable", "it contains 1, so the runs do not tell the sides apart"
    return verdict, f"{told}; {why}."
