"""Samples to the target, of one run, from its evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.records.schema import Evaluation


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Samples (sequences) trained on until the target, at least 1.

    `bound` is empty where the target was crossed between two evaluations, "upper" where the first one was past it
    already, and "lower" where none is.
    """

    samples: float
    bound: Literal["", "upper", "lower"]


def samples_to_target(evaluations: Sequence[Evaluation], target: float) -> Point:
    """Where the straight line between evaluations first comes down to `target`.

    Losses must be finite and samples must grow. Raises `ValueError` where there is no evaluation.
    """
    if not evaluations:
        raise ValueError("a run without evaluations has no samples to target")
    before = None
    for evaluation in evaluations:
        if evaluation.loss <= target:
            if before is None:
                return Point(samples=max(1.0, float(evaluation.samples)), bound="upper")
            share = (before.loss - target) / (before.loss - evaluation.loss)
            samples = before.samples + share * (evaluation.samples - before.samples)
            return Point(samples=max(1.0, samples), bound="")
        before = evaluation
    return Point(samples=max(1.0, float(evaluations[-1].samples)), bound="lower")
