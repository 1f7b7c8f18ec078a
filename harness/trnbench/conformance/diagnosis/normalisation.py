"""Hypotheses of softmax, log-softmax, log-sum-exp, cross-entropy and norms, by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.diagnosis import normalisation_norms, normalisation_softmax

if TYPE_CHECKING:
    from trnbench.conformance.diagnosis.base import Hypothesis

HYPOTHESES: dict[str, list[Hypothesis]] = {**normalisation_softmax.HYPOTHESES, **normalisation_norms.HYPOTHESES}
