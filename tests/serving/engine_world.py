"""What the engine's tests share: a small case, a warmed engine, and plain decoding of one prompt at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import torch

from trnbench.backends.cpu import CpuBackend
from trnbench.case import Case, case_from
from trnbench.serving.build import serving_model, serving_rows
from trnbench.serving.engine import Engine
from trnbench.serving.samples import Samples, draw_samples
from trnbench.serving.system import Request
from trnbench.workloads.inference import decode_step
from trnbench.workloads.presets import preset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trnbench.serving.system import FirstToken
    from trnbench.workloads.decoder import Decoder

SEQUENCE, NEW_TOKENS, BATCH = 16, 12, 6


class QuicklyCompiling(CpuBackend):
    """Compiled mode without a C++ compiler: graphs, counts and in-place writes are as with inductor."""

    compiler = "aot_eager"


def serving_case(**changed: object) -> Case:
    fields: dict[str, object] = {
        "suite": "test",
        "workload": "nano",
        "phase": "serving",
        "precision": "fp32",
        "mode": "eager",
        "tier": "smoke",
        "scenario": "offline",
        "profile": "quick",
        "batch": BATCH,
        "sequence": SEQUENCE,
        "new_tokens": NEW_TOKENS,
    }
    return case_from(fields | changed)


def opened(backend: CpuBackend | None = None) -> CpuBackend:
    backend = backend or CpuBackend()
    backend.open()
    return backend


def samples_of(case: Case, count: int, stop_token: int | None = None) -> Samples:
    samples = draw_samples(preset(case.workload), case.sequence, case.new_tokens, count, 1)
    return msgspec.structs.replace(samples, stop_token=stop_token)


def warm_engine(case: Case, samples: Samples, backend: CpuBackend | None = None, *, continuous: bool = True) -> Engine:
    backend = backend or opened()
    model = serving_model(case, backend.device)
    engine = Engine(serving_rows(case, backend, samples, model, continuous=continuous), samples, continuous=continuous)
    engine.warm()
    return engine


def drain(engine: Engine, arrivals: Iterable[Sequence[int]]) -> tuple[dict[int, list[int]], list[FirstToken]]:
    """Submit each group of sample indices, with one step between them, and step until all are answered."""
    answers: dict[int, list[int]] = {}
    first: list[FirstToken] = []
    waiting = list(arrivals)
    while waiting or engine.busy:
        if waiting:
            engine.submit([Request(index, index) for index in waiting.pop(0)])
        step = engine.step()
        first += step.first
        answers |= {completion.id: completion.tokens for completion in step.complete}
    return answers, first


@torch.no_grad()
def plain_answer(model: Decoder, samples: Samples, index: int) -> list[int]:
    """Greedy decoding of one prompt alone by the workload's own steps, without buckets, rows or padding."""
    prompt = torch.from_numpy(samples.prompts[index])[None]
    positions = torch.tensor([prompt.shape[1]])
    cache = model.new_cache(1, prompt.shape[1] + samples.limits[index])
    logits = model.prefill(prompt, positions, cache)
    if samples.stop_token is not None:
        logits[:, samples.stop_token] = -torch.inf
    token = logits.argmax(-1)
    said = [int(token)]
    while len(said) < samples.limits[index] and (len(said) < 2 or said[-1] != samples.stop_token):
        token, positions, _ = decode_step(model, token, positions, cache)
        said.append(int(token))
    return said


def plain_answers(case: Case, samples: Samples) -> dict[int, list[int]]:
    model = serving_model(case, torch.device("cpu"))
    return {index: plain_answer(model, samples, index) for index in range(samples.total_count)}
