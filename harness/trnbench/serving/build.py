"""From a case to a system under test: weights, buckets, warm-up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trnbench.serving.buckets import one_at_a_time, plan
from trnbench.serving.engine import Engine
from trnbench.serving.rows import Rows
from trnbench.serving.scoring import Scorer
from trnbench.status import CaseError, Status, UsageError
from trnbench.workloads.initial import build_model
from trnbench.workloads.presets import preset
from trnbench.workloads.weights import SMOLLM2_PRESET, load_smollm2

if TYPE_CHECKING:
    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.serving.samples import Samples
    from trnbench.workloads.decoder import Decoder

SEED = 0
"""Of the weights, as in the other inference phases."""

_INITIAL_DEVIATION = 2.0**-5 / math.sqrt(3)
"""Standard deviation of `initial.initial_values`."""


def build_system(case: Case, backend: Backend, samples: Samples, *, continuous: bool = True) -> Engine | Scorer:
    """The warmed system of a serving or scoring case; the caller keeps `backend.numerics` in force throughout.

    `continuous` False builds the engine that decodes one request at a time. Raises `CaseError(SKIPPED)` where the
    preset's trained weights are not installed, `UsageError` where it allows fewer positions than the case needs.
    """
    model = serving_model(case, backend.device)
    buckets = plan(case)
    if case.new_tokens == 0:
        scorer = Scorer(model, backend, buckets, case.mode, samples)
        scorer.warm()
        return scorer
    engine = Engine(serving_rows(case, backend, samples, model, continuous=continuous), samples, continuous=continuous)
    engine.warm()
    return engine


def serving_rows(case: Case, backend: Backend, samples: Samples, model: Decoder, *, continuous: bool = True) -> Rows:
    """The cache rows of a serving case around a given model, not yet warmed."""
    buckets = plan(case)
    buckets = buckets if continuous else one_at_a_time(buckets)
    return Rows(model, backend, buckets, case, stop_token=samples.stop_token)


def serving_model(case: Case, device: torch.device) -> Decoder:
    """The case's decoder on `device`: trained weights for the preset that has them, else from seed 0.

    Raises as `build_system`.
    """
    shape = preset(case.workload)
    model = build_model(shape, case.precision, device, SEED, inference=True, positions=case.sequence + case.new_tokens)
    if shape.name != SMOLLM2_PRESET:
        widen(model)
        return model
    try:
        load_smollm2(model)
    except UsageError as error:
        raise CaseError(Status.SKIPPED, str(error)) from None
    return model


def widen(model: Decoder) -> None:
    """Scale every matrix but the embedding and head to a variance near 1 / inputs, by an exact power of two.

    With weights as initialised the embedding of the last token outweighs all layers, a tied head repeats that token,
    and an answer would be the same whatever the cache held: no audit of the tokens could see a wrong cache.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("layers.") and parameter.ndim == 2:
                ratio = parameter.shape[1] ** -0.5 / _INITIAL_DEVIATION
                parameter.mul_(2.0 ** round(math.log2(ratio)))
