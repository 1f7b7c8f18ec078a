"""An answer may differ only where the gap between its tokens is as small as what the batch shape changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from engine_world import drain, plain_answer, samples_of, serving_case, warm_engine

from trnbench.serving import divergence
from trnbench.serving import rows as rows_module
from trnbench.serving.build import serving_model
from trnbench.serving.divergence import (
    Variance,
    batch_variance,
    compare_answers,
    first_divergence,
    forced_logits,
)

if TYPE_CHECKING:
    from trnbench.serving.engine import Engine
    from trnbench.serving.rows import Group
    from trnbench.serving.samples import Samples

COUNT = 8


@pytest.fixture(scope="module")
def samples() -> Samples:
    return samples_of(serving_case(batch=4), COUNT)


@pytest.fixture(scope="module")
def engine(samples: Samples) -> Engine:
    return warm_engine(serving_case(batch=4), samples)


@pytest.fixture(scope="module")
def answers(engine: Engine) -> dict[int, list[int]]:
    return drain(engine, [range(COUNT)])[0]


def test_forced_logits_are_those_of_the_whole_sequence(
    engine: Engine, samples: Samples, answers: dict[int, list[int]]
) -> None:
    """Prefill, then decoding of given tokens, against one forward pass over prompt and tokens together."""
    model = serving_model(serving_case(batch=4), torch.device("cpu"))
    index = max(answers, key=lambda one: len(answers[one]))
    prompt, said = samples.prompts[index], answers[index]
    got = forced_logits(engine.rows, [prompt], [said[:-1]])
    with torch.no_grad():
        whole = model(torch.tensor([[*prompt.tolist(), *said[:-1]]]))[0, len(prompt) - 1 :]
    torch.testing.assert_close(torch.cat(got), whole.double(), rtol=1e-4, atol=1e-5)
    assert [int(step[0].argmax()) for step in got] == said


def test_batch_variance_is_rounding(engine: Engine, samples: Samples) -> None:
    variance = batch_variance(engine.rows, samples)
    assert 0 <= variance.measured <= variance.rounding < 1e-4


def test_batch_variance_sees_what_a_bucket_changes(
    engine: Engine, samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket whose logits are off by 0.5 in one place; batch 1 is left as it is."""
    decode = engine.rows._decode

    def noisy(positions: torch.Tensor, last: torch.Tensor, cache: object) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, logits = decode(positions, last, cache)
        if positions.shape[0] == 4:
            logits[2, 17] += 0.5
        return tokens, logits

    monkeypatch.setattr(engine.rows, "_decode", noisy)
    variance = batch_variance(engine.rows, samples)
    assert variance.measured == pytest.approx(0.5, abs=1e-3)
    assert variance.rounding < 1e-4


def test_equal_answers_agree(engine: Engine, samples: Samples, answers: dict[int, list[int]]) -> None:
    agreement = compare_answers(engine.rows, samples, answers, {**answers})
    assert (agreement.identical, agreement.accepted, agreement.faults) == (COUNT, [], [])


def test_a_wrong_token_is_a_fault(engine: Engine, samples: Samples, answers: dict[int, list[int]]) -> None:
    wrong = {**answers, 5: [*answers[5][:1], (answers[5][1] + 1) % 4096, *answers[5][2:]]}
    agreement = compare_answers(engine.rows, samples, answers, wrong)
    assert agreement.identical == COUNT - 1
    assert not agreement.accepted
    assert [(one.sample, one.position) for one in agreement.faults] == [(5, 1)]
    assert agreement.faults[0].margin > 2 * agreement.batch_variance


def test_the_second_likeliest_token_is_accepted_only_within_twice_the_variance(
    engine: Engine, samples: Samples, answers: dict[int, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = forced_logits(engine.rows, [samples.prompts[2]], [answers[2][:1]])[1][0]
    (first, second), (likeliest, other) = logits.topk(2)
    assert int(likeliest) == answers[2][1]
    swapped = {**answers, 2: [answers[2][0], int(other)]}
    found = first_divergence(engine.rows, samples, 2, answers[2], swapped[2])
    assert found.position == 1
    assert found.margin == pytest.approx(float(first - second))
    beyond = Variance(found.margin, rounding=0.9 * found.margin)
    for variance, accepted in (
        (Variance(0.51 * found.margin, found.margin), 1),
        (Variance(0.49 * found.margin, found.margin), 0),
        (beyond, 0),
    ):
        monkeypatch.setattr(divergence, "batch_variance", lambda *_, variance=variance: variance)
        agreement = compare_answers(engine.rows, samples, answers, swapped)
        assert (len(agreement.accepted), len(agreement.faults)) == (accepted, 1 - accepted)


def test_a_cut_answer_is_a_fault(engine: Engine, samples: Samples, answers: dict[int, list[int]]) -> None:
    index = max(answers, key=lambda one: len(answers[one]))
    agreement = compare_answers(engine.rows, samples, answers, {**answers, index: answers[index][:-1]})
    assert [one.margin for one in agreement.faults] == [math.inf]


def test_sides_must_answer_the_same_samples(engine: Engine, samples: Samples, answers: dict[int, list[int]]) -> None:
    with pytest.raises(ValueError, match=r"samples \[3\]"):
        compare_answers(engine.rows, samples, answers, {key: said for key, said in answers.items() if key != 3})


def test_a_fault_inside_a_bucket_is_not_excused_by_the_variance_it_adds(
    monkeypatch: pytest.MonkeyPatch, samples: Samples
) -> None:
    """Judged by the broken engine's own rows: groups of one prompt are right, larger ones see it moved by one."""
    model = serving_model(serving_case(batch=4), torch.device("cpu"))
    plain = {index: plain_answer(model, samples, index) for index in range(COUNT)}
    prefill = rows_module.prefill_rows

    def broken(model: object, group: Group, *state: object) -> object:
        moved = group._replace(tokens=group.tokens.roll(1, 1)) if group.tokens.shape[0] > 1 else group
        return prefill(model, moved, *state)

    monkeypatch.setattr(rows_module, "prefill_rows", broken)
    engine = warm_engine(serving_case(batch=4), samples)
    agreement = compare_answers(engine.rows, samples, drain(engine, [range(COUNT)])[0], plain)
    assert agreement.faults
    assert not agreement.accepted
    assert max(one.margin for one in agreement.faults) < 2 * agreement.batch_variance
