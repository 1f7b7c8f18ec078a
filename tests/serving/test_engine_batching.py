"""Continuous batching answers as plain decoding of each prompt alone does, whenever requests join or leave."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from engine_world import BATCH, drain, opened, plain_answers, samples_of, serving_case, warm_engine

from trnbench.serving.build import serving_model, serving_rows
from trnbench.serving.engine import Engine
from trnbench.serving.system import Request
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.serving.samples import Samples

COUNT = 20


@pytest.fixture(scope="module")
def samples() -> Samples:
    return samples_of(serving_case(), COUNT)


@pytest.fixture(scope="module")
def plain(samples: Samples) -> dict[int, list[int]]:
    return plain_answers(serving_case(), samples)


@pytest.fixture(scope="module")
def engine(samples: Samples) -> Engine:
    return warm_engine(serving_case(), samples)


ARRIVALS: dict[str, list[Sequence[int]]] = {
    "all at once": [range(COUNT)],
    "one a step": [[index] for index in range(COUNT)],
    "with pauses": [range(5), [], [], [], range(5, 9), [], range(9, COUNT)],
    "last first": [list(reversed(range(COUNT)))],
}


@pytest.mark.parametrize("arrivals", ARRIVALS.values(), ids=ARRIVALS.keys())
def test_answers_are_those_of_plain_decoding(
    arrivals: list[Sequence[int]], engine: Engine, plain: dict[int, list[int]]
) -> None:
    """Also: rows are free again afterwards, and each first token came once and before its completion."""
    answers, first = drain(engine, arrivals)
    assert answers == plain
    assert sorted(first) == [(index, plain[index][0]) for index in range(COUNT)]
    assert not engine.busy


def test_one_at_a_time_gives_the_same(samples: Samples, plain: dict[int, list[int]]) -> None:
    engine = warm_engine(serving_case(), samples, continuous=False)
    assert engine.rows.count == 1
    assert drain(engine, [range(COUNT)])[0] == plain


def test_the_same_sample_may_be_asked_twice(engine: Engine, plain: dict[int, list[int]]) -> None:
    engine.submit([Request(number, 3) for number in range(7)])
    done = []
    while engine.busy:
        done += engine.step().complete
    assert sorted(done) == [(number, plain[3]) for number in range(7)]


def test_requests_are_admitted_in_order_and_prefills_alternate_with_decoding(engine: Engine) -> None:
    """A first token does not wait for a decode step, nor do running answers wait for the whole queue."""
    engine.submit([Request(index, index) for index in range(COUNT)])
    steps = []
    while engine.busy:
        steps.append(engine.step())
    admitted = [first.id for step in steps for first in step.first]
    assert admitted == list(range(COUNT))
    assert steps[0].first
    assert all(not (step.first and step.complete) for step in steps)
    prefills = [bool(step.first) for step in steps]
    assert not any(one and following for one, following in itertools.pairwise(prefills))


def test_at_most_as_many_run_as_there_are_rows(engine: Engine) -> None:
    engine.submit([Request(index, index) for index in range(COUNT)])
    running, most = 0, 0
    while engine.busy:
        step = engine.step()
        running += len(step.first) - len(step.complete)
        most = max(most, running)
    assert most == BATCH
    assert running == 0


def test_answers_end_at_their_own_limits(samples: Samples, plain: dict[int, list[int]], engine: Engine) -> None:
    answers, _ = drain(engine, [range(COUNT)])
    assert {index: len(tokens) for index, tokens in answers.items()} == dict(enumerate(samples.limits))
    assert min(samples.limits) == 2
    # Tokens that depend on the whole context: else a wrong cache would not show.
    assert len({tuple(tokens[:2]) for tokens in plain.values()}) == COUNT
    assert all(len(set(tokens)) > 1 for tokens in plain.values())


def test_an_answer_ends_with_the_stop_token_which_counts_as_produced(plain: dict[int, list[int]]) -> None:
    """B12: the produced count is what was really produced, not what was asked for."""
    stop = next(tokens[4] for tokens in plain.values() if len(tokens) > 8 and tokens[4] not in tokens[:4])
    samples = samples_of(serving_case(), COUNT, stop)
    answers, _ = drain(warm_engine(serving_case(), samples), [range(COUNT)])
    assert answers == plain_answers(serving_case(), samples)
    early = [tokens for index, tokens in answers.items() if len(tokens) < samples.limits[index]]
    assert early
    assert all(tokens[-1] == stop and stop not in tokens[:-1] for tokens in early)


def test_an_answer_never_begins_with_the_stop_token(plain: dict[int, list[int]]) -> None:
    """LoadGen takes no answer of one token, and two stop tokens would count a token that says nothing."""
    stop = plain[0][0]
    samples = samples_of(serving_case(), COUNT, stop)
    answers, _ = drain(warm_engine(serving_case(), samples), [range(COUNT)])
    assert answers == plain_answers(serving_case(), samples)
    assert all(len(tokens) >= 2 and tokens[0] != stop for tokens in answers.values())


def test_a_cold_engine_refuses_to_serve(samples: Samples) -> None:
    backend = opened()
    rows = serving_rows(serving_case(batch=1), backend, samples, serving_model(serving_case(batch=1), backend.device))
    engine = Engine(rows, samples)
    engine.submit([Request(0, 0)])
    with pytest.raises(CaseError, match="not warmed") as error:
        engine.step()
    assert error.value.status is Status.INVALID
