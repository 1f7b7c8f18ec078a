"""Which answers that differ from the accuracy test's are the same computation, rounded in another batch shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trnbench.serving.build import serving_model
from trnbench.serving.divergence import ROUNDING, SIDES, compare_answers
from trnbench.serving.engine import Engine
from trnbench.serving.rows import padded_prompts
from trnbench.serving.scoring import Scorer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.serving.log import LoggedAnswer
    from trnbench.serving.samples import Samples
    from trnbench.serving.system import System

Said = tuple[int, tuple[int, ...]]
"""A sample's index and what was answered to it."""


def explained_answers(
    case: Case,
    backend: Backend,
    system: System,
    samples: Samples,
    *,
    reference: Mapping[int, Sequence[int]],
    logged: Sequence[LoggedAnswer],
) -> set[Said]:
    """Of the `logged` answers that differ from `reference`, those that the variance between batch shapes explains.

    Only for an idle `Engine` or `Scorer`, whose rows it overwrites; no answer of another system is explained. Compiles
    and runs shapes of its own, so nothing may be timed after it without a new warm-up.
    """
    different: dict[int, list[tuple[int, ...]]] = {}
    for one in logged:
        said = tuple(one.tokens)
        known = different.setdefault(one.index, [])
        if said != tuple(reference.get(one.index, ())) and one.index in reference and said not in known:
            known.append(said)
    if not any(different.values()):
        return set()
    if isinstance(system, Engine):
        return _explained_by_rows(system, samples, reference, different)
    if isinstance(system, Scorer):
        logits_of = _logits_in_every_shape(case, backend, system, samples)
        return {
            (index, said)
            for index, answers in different.items()
            for said in answers
            if _near(logits_of(index), said[0], reference[index][0], ROUNDING[case.precision])
        }
    return set()


def _explained_by_rows(
    engine: Engine,
    samples: Samples,
    reference: Mapping[int, Sequence[int]],
    different: Mapping[int, Sequence[tuple[int, ...]]],
) -> set[Said]:
    found: set[Said] = set()
    # A sample that was answered in several ways is compared once for each.
    for turn in range(max(map(len, different.values()))):
        right = {index: said[turn] for index, said in different.items() if len(said) > turn}
        agreement = compare_answers(engine.rows, samples, {index: reference[index] for index in right}, right)
        found |= {(one.sample, right[one.sample]) for one in agreement.accepted}
    return found


def _logits_in_every_shape(
    case: Case, backend: Backend, scorer: Scorer, samples: Samples
) -> Callable[[int], list[Tensor]]:
    """A function from a sample's index to its logits, float64 [vocab_size], in each bucket that holds its prompt."""
    model = serving_model(case, backend.device)

    @torch.no_grad()
    def run(tokens: Tensor, lengths: Tensor) -> Tensor:
        return model.prefill(tokens, lengths, model.new_cache(*tokens.shape))

    prefill: Callable[[Tensor, Tensor], Tensor] = backend.compile(run, case.mode)

    def logits_of(index: int) -> list[Tensor]:
        prompt = samples.prompts[index]
        found = []
        for count, length in scorer.buckets.prefill_shapes():
            if length >= len(prompt):
                padded, lengths = padded_prompts([prompt] * count, count, length)
                out = prefill(torch.from_numpy(padded).to(backend.device), torch.tensor(lengths).to(backend.device))
                found.append(out[0].cpu().to(torch.float64))
        return found

    return logits_of


def _near(logits: Sequence[Tensor], said: int, expected: int, rounding: float) -> bool:
    """Whether both tokens are as near the top, alone in the batch, as the logits differ between shapes.

    A difference of more than `rounding`, as a share of the largest logit, is a fault of a shape and excuses nothing.
    """
    alone = logits[0]
    variance = max(float((row - alone).abs().max()) for row in logits)
    margin = float(alone.max() - torch.minimum(alone[said], alone[expected]))
    return margin <= SIDES * variance and variance <= rounding * float(alone.abs().max())
