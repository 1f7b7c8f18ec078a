"""Scoring answers each prompt with the likeliest next token, in whatever batch it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from engine_world import QuicklyCompiling, opened, samples_of, serving_case

from trnbench.serving.buckets import plan
from trnbench.serving.build import build_system, serving_model
from trnbench.serving.scoring import Scorer
from trnbench.serving.system import Request
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from trnbench.serving.samples import Samples

COUNT = 11
CASE = serving_case(phase="scoring", new_tokens=0, batch=4)


@pytest.fixture(scope="module")
def samples() -> Samples:
    return samples_of(CASE, COUNT)


@pytest.fixture(scope="module")
def plain(samples: Samples) -> list[int]:
    """Each prompt alone, by a forward pass without cache or padding."""
    model = serving_model(CASE, torch.device("cpu"))
    with torch.no_grad():
        return [int(model(torch.from_numpy(prompt)[None])[0, -1].argmax()) for prompt in samples.prompts]


def scored(system: Scorer, groups: list[list[int]]) -> dict[int, list[int]]:
    answers: dict[int, list[int]] = {}
    for group in groups:
        system.submit([Request(index, index) for index in group])
        while system.busy:
            step = system.step()
            assert not step.first
            assert len(step.complete) <= CASE.batch
            answers |= {one.id: one.tokens for one in step.complete}
    return answers


@pytest.mark.parametrize(
    "groups",
    [[list(range(COUNT))], [[index] for index in range(COUNT)], [[4, 0], [10, 9, 8], [1, 2, 3, 5, 6, 7]]],
    ids=["all at once", "one by one", "groups"],
)
def test_each_prompt_gets_its_own_token(groups: list[list[int]], samples: Samples, plain: list[int]) -> None:
    system = build_system(CASE, opened(), samples)
    assert isinstance(system, Scorer)
    assert scored(system, groups) == {index: [token] for index, token in enumerate(plain)}
    assert len(set(plain)) > 8


def test_nothing_compiles_after_warm_up(samples: Samples, plain: list[int]) -> None:
    case = serving_case(phase="scoring", new_tokens=0, batch=4, mode="compiled")
    backend = opened(QuicklyCompiling())
    system = build_system(case, backend, samples)
    assert isinstance(system, Scorer)
    before = backend.counters()
    assert before.compiles == len(system.buckets.prefill_shapes())
    assert scored(system, [list(range(COUNT)), [3]]) == {index: [token] for index, token in enumerate(plain)}
    assert backend.counters() == before


def test_a_cold_scorer_refuses_to_serve(samples: Samples) -> None:
    backend = opened()
    system = Scorer(serving_model(CASE, backend.device), backend, plan(CASE), "eager", samples)
    system.submit([Request(0, 0)])
    with pytest.raises(CaseError, match="not warmed") as error:
        system.step()
    assert error.value.status is Status.INVALID


def test_a_prompt_longer_than_every_bucket_is_refused() -> None:
    long = samples_of(serving_case(phase="scoring", new_tokens=0, sequence=24), 3)
    system = build_system(CASE, opened(), long)
    with pytest.raises(CaseError, match="prompt length: 24 is more than the largest warmed bucket, 16"):
        scored(system, [[0, 1, 2]])
