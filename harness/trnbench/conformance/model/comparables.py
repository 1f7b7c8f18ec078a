"""How AWS's own tools would judge the same logits: reported beside our verdicts, and never a gate.

* The error ratio of AWS's framework-equivalence method: error norm of the device over that of the same precision on an
  established backend, here the fused implementation on the CPU; AWS passes below 1.2. Ours has the device's own rounded
  weights in both, so that the rounding of weights hides nothing.
* The logit matching of NxD Inference (`check_accuracy_logits`): for the k most probable tokens of each position the
  largest difference over the largest expected logit, against tolerances of 1 % for k = 5, 2 % for 50, 3 % for 1000, 5 %
  for all, after the position's constant offset has been removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.records.schema import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from trnbench.records.schema import Level

ERROR_RATIO_LIMIT = 1.2
LOGIT_MATCHING: dict[int | None, float] = {5: 0.01, 50: 0.02, 1000: 0.03, None: 0.05}
"""Relative tolerance by k; None stands for the whole vocabulary."""


def error_ratio(error: float, established: Sequence[float]) -> float:
    """The device's relative error over the mean of the established implementation's."""
    return error / (sum(established) / len(established))


def logit_matching(logits: Tensor, oracle: Tensor, k: int | None) -> float:
    """Largest relative difference among the `k` most probable tokens of any position; both [T, vocab_size].

    `k` None or beyond the vocabulary means all tokens.
    """
    size = oracle.shape[-1]
    top = oracle.topk(min(k or size, size), dim=-1).indices
    actual, expected = logits.gather(-1, top), oracle.gather(-1, top)
    offset = (actual - expected).mean(-1, keepdim=True)
    largest = oracle.abs().amax(-1, keepdim=True)
    return float(((actual - expected - offset).abs() / largest).max())


def reported_checks(
    logits: Tensor, oracle: Tensor, error: float, established: Sequence[float], *, level: Level, where: str
) -> list[Check]:
    """AWS's error ratio and NxD Inference's logit matching of `logits` [T, vocab_size]."""
    matching = "largest difference over the largest logit"
    measures = [
        (
            "AWS error ratio",
            "error norm over that of the fused implementation on the CPU",
            error_ratio(error, established),
            ERROR_RATIO_LIMIT,
        )
    ]
    for k, tolerance in LOGIT_MATCHING.items():
        name = f"NxD Inference logit matching, {'all tokens' if k is None else f'top {k}'}"
        measures.append((name, matching, logit_matching(logits, oracle, k), tolerance))
    return [
        Check(
            check=f"{level}/{name}",
            level=level,
            metric=metric,
            value=value,
            limit=limit,
            verdict="reported",
            reference="float64 on the CPU from the device's own rounded weights",
            where=where,
        )
        for name, metric, value, limit in measures
    ]
