"""Hypotheses of softmax, log-softmax, log-sum-exp, cross-entropy and norms, by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.diagnosis import normalisation_norms, normalisation_softmax
from trnbench.conformance.diagnosis.base import Hypothesis
from trnbench.conformance.diagnosis.normalisation_narrow import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.implementation import Tensors


def _in_its_precision(hypothesis: Hypothesis) -> Hypothesis:
    """A fault named after one 16-bit format is looked for in that precision and in float32, not in the other format."""
    foreign = {
        precision for precision in FORMATS if any(name in hypothesis.name for name in FORMATS if name != precision)
    }

    def emulating(
        emulate: Callable[[Tensors, str], Tensors | None],
    ) -> Callable[[Tensors, str], Tensors | None]:
        return lambda inputs, precision: None if precision in foreign else emulate(inputs, precision)

    def differentiating(
        gradient: Callable[[Tensors, Tensors, str], Tensors | None],
    ) -> Callable[[Tensors, Tensors, str], Tensors | None]:
        return lambda inputs, cotangents, precision: (
            None if precision in foreign else gradient(inputs, cotangents, precision)
        )

    return Hypothesis(
        name=hypothesis.name,
        emulate=None if hypothesis.emulate is None else emulating(hypothesis.emulate),
        gradient=None if hypothesis.gradient is None else differentiating(hypothesis.gradient),
    )


HYPOTHESES: dict[str, list[Hypothesis]] = {
    operator: [_in_its_precision(hypothesis) for hypothesis in hypotheses]
    for operator, hypotheses in {**normalisation_softmax.HYPOTHESES, **normalisation_norms.HYPOTHESES}.items()
}
