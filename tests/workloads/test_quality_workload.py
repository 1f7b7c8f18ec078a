"""Training to quality: the schedule, the target, and a run that warm-up and interruption leave as it was."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trnbench.case import case_from
from trnbench.status import UsageError
from trnbench.workloads import quality, training
from trnbench.workloads.data import token_batch
from trnbench.workloads.initial import build_model
from trnbench.workloads.presets import parameter_count, preset
from trnbench.workloads.program import fingerprint
from trnbench.workloads.quality import Learner
from trnbench.workloads.recipe import CLIP_NORM, Recipe
from trnbench.workloads.recipes import RECIPES, recipe_for, recipe_of
from trnbench.workloads.text import SourceData

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trnbench.case import Case
    from trnbench.workloads.presets import Preset

CPU = torch.device("cpu")
PHASES = ("pretrain", "finetune_lora")


def as_is(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    del mode
    return function


def no_wait(outputs: Sequence[torch.Tensor]) -> None:
    del outputs


@pytest.fixture(autouse=True)
def tiny_nano(monkeypatch: pytest.MonkeyPatch, tiny: Preset) -> None:
    """A learner looks its preset up by name; here that name means the small one."""
    monkeypatch.setattr(quality, "preset", lambda name: tiny if name == "nano" else preset(name))


def small(phase: str, **changes: Any) -> Recipe:
    """The smoke recipe on shapes small enough to run in milliseconds, two micro-batches to a batch."""
    sizes: dict[str, Any] = {"batch": 4, "micro_batch": 2, "sequence": 8, "evaluation_sequences": 6, "symbols": 16}
    rank = {"lora_rank": 2, "lora_alpha": 4.0} if phase == "finetune_lora" else {}
    return msgspec.structs.replace(recipe_of("nano", phase), **(sizes | rank | changes))


def case_of(recipe: Recipe, precision: str = "fp32") -> Case:
    fields = {name: getattr(recipe, name) for name in ("phase", "batch", "micro_batch", "sequence")}
    return case_from(
        {"suite": "test", "workload": recipe.preset, "precision": precision, "mode": "eager", "tier": "smoke"} | fields
    )


def learner(recipe: Recipe, seed: int = 3, precision: str = "fp32") -> Learner:
    return Learner(case_of(recipe, precision), recipe, CPU, as_is, no_wait, seed=seed)


def run(subject: Learner, data: SourceData, steps: int) -> list[float]:
    return [float(subject.train(data.batch(subject.seed, subject.steps))) for _ in range(steps)]


@pytest.mark.parametrize("phase", PHASES)
def test_warm_up_leaves_no_trace(tiny: Preset, phase: str) -> None:
    recipe = small(phase)
    data = SourceData(recipe, tiny)
    warmed, plain = learner(recipe), learner(recipe)
    warmed.warm_up()
    assert warmed.steps == 0
    assert fingerprint(warmed.parameters) == fingerprint(plain.parameters)
    assert run(warmed, data, 4) == run(plain, data, 4)
    assert fingerprint(warmed.parameters) == fingerprint(plain.parameters)
    with pytest.raises(UsageError, match="warm-up comes before the first step"):
        warmed.warm_up()


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(
    tiny: Preset, phase: str, precision: str, tmp_path: Any
) -> None:
    recipe = small(phase)
    data = SourceData(recipe, tiny)
    whole, first, second = (learner(recipe, precision=precision) for _ in range(3))
    expected = run(whole, data, 20)
    losses = run(first, data, 10)
    torch.save(first.state(), tmp_path / "state.pt")
    run(first, data, 1)
    second.warm_up()
    second.load_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert second.steps == 10
    assert losses + run(second, data, 10) == expected
    assert fingerprint(second.parameters) == fingerprint(whole.parameters)
    assert second.evaluate(data.evaluation()) == whole.evaluate(data.evaluation())


def test_a_run_can_be_interrupted_before_its_first_step(tiny: Preset) -> None:
    recipe = small("pretrain")
    data = SourceData(recipe, tiny)
    fresh, again = learner(recipe), learner(recipe)
    again.load_state(fresh.state())
    assert run(again, data, 2) == run(fresh, data, 2)


def test_a_checkpoint_of_another_run_is_refused() -> None:
    recipe = small("pretrain")
    with pytest.raises(UsageError, match="the checkpoint is of seed 4, the run of seed 3"):
        learner(recipe).load_state(learner(recipe, 4).state())
    with pytest.raises(UsageError, match="parameters are not those of this run of tiny"):
        learner(recipe).load_state(learner(small("finetune_lora")).state())


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_step_is_the_training_steps_own(tiny: Preset, precision: str) -> None:
    """Bit for bit the step whose speed is measured, float16's loss scale included, at the rates of the recipe."""
    recipe = small("pretrain", warm_up_steps=2)
    subject = learner(recipe, precision=precision)
    model = build_model(tiny, precision, CPU, 3, positions=8)
    optimizer = training.make_optimizer(model.parameters())

    def loss_function(tokens: torch.Tensor, targets: torch.Tensor, real_tokens: torch.Tensor) -> torch.Tensor:
        return training.forward_loss(model, tokens, targets, real_tokens)

    for step in range(4):
        batch = token_batch(tiny.vocab_size, 4, 8, step)
        on_device = training.to_device(batch, 2, CPU, torch.float32)
        optimizer.param_groups[0]["lr"] = recipe.rate(step)
        expected = training.train_step(model, optimizer, loss_function, on_device)
        assert torch.equal(subject.train(batch), expected)
    assert fingerprint(subject.parameters) == fingerprint(model.parameters())
    assert training.CLIP_NORM == CLIP_NORM


def test_the_seed_decides_weights_and_order_and_not_the_evaluation(tiny: Preset) -> None:
    recipe = small("pretrain")
    data = SourceData(recipe, tiny)
    one, two = learner(recipe, 1), learner(recipe, 2)
    assert fingerprint(one.parameters) != fingerprint(two.parameters)
    assert not np.array_equal(data.batch(1, 0).tokens, data.batch(2, 0).tokens)
    tuned = [learner(small("finetune_lora"), seed) for seed in (1, 2)]
    assert tuned[0].evaluate(data.evaluation()) == tuned[1].evaluate(data.evaluation())


def test_evaluation_is_the_mean_over_all_real_tokens(tiny: Preset) -> None:
    """Rows of unequal length count by their tokens; nothing of the run changes."""
    subject = learner(small("pretrain"))
    batch = token_batch(tiny.vocab_size, 6, 8, 5)
    before = fingerprint(subject.parameters)
    got = subject.evaluate(batch)
    with torch.no_grad():
        log_probabilities = subject.model(torch.from_numpy(batch.tokens)).double().log_softmax(-1)
    losses = [
        -float(log_probabilities[row, place, batch.targets[row, place]])
        for row in range(6)
        for place in range(int(batch.lengths[row]))
    ]
    assert got == pytest.approx(sum(losses) / len(losses), rel=1e-6)
    assert fingerprint(subject.parameters) == before
    assert all(parameter.grad is None for parameter in subject.parameters)


@given(st.integers(0, 50), st.integers(1, 500), st.floats(1e-5, 1e-2), st.floats(0.01, 1.0))
def test_the_rate_rises_linearly_and_falls_to_its_end(warm: int, decay: int, peak: float, share: float) -> None:
    recipe = small(
        "pretrain",
        warm_up_steps=warm,
        decay_steps=warm + decay,
        learning_rate=peak,
        end_learning_rate=peak * share,
    )
    rates = [recipe.rate(step) for step in range(warm + decay + 5)]
    for step in range(warm):
        assert rates[step] == pytest.approx(peak * (step + 1) / warm)
    assert rates[warm] == pytest.approx(peak)
    assert rates[warm + decay] == rates[-1] == pytest.approx(peak * share)
    assert all(after <= before * (1 + 1e-12) for before, after in zip(rates[warm:], rates[warm + 1 :], strict=False))
    assert recipe.rate(warm + decay // 2) >= (peak + peak * share) / 2 * (1 - 1e-9)


def test_the_target_is_a_distance_above_the_floor(tiny: Preset) -> None:
    recipe = small("pretrain", gap_share=0.25)
    data = SourceData(recipe, tiny)
    assert data.floor is not None
    assert data.bigram_floor is not None
    assert recipe.target(data) == pytest.approx(0.75 * data.floor + 0.25 * data.bigram_floor)
    assert not recipe.starts_with_evaluation
    improving = small("pretrain", gap_share=None, improvement=0.5)
    assert improving.starts_with_evaluation
    assert improving.target(data, 3.0) == 2.5
    with pytest.raises(UsageError, match="needs the loss before training"):
        improving.target(data)
    assert small("pretrain", gap_share=None, target_loss=1.25).target(data) == 1.25
    data.floor, data.floor_reason = None, "nobody knows it"
    with pytest.raises(UsageError, match="but nobody knows it; give a target loss"):
        recipe.target(data)


def test_recipes_count_in_samples_whatever_the_batch() -> None:
    recipe = small("pretrain", batch=6, evaluation_every=16, max_samples=100)
    assert (recipe.steps_between_evaluations, recipe.max_steps) == (3, 17)
    assert recipe.learning()["gradient_accumulation_steps"] == 3
    assert recipe.learning()["opt_learning_rate_decay_steps"] == recipe.decay_steps - recipe.warm_up_steps
    assert "lora_rank" not in recipe.learning()
    assert small("finetune_lora").learning()["lora_rank"] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation_sequences": 5}, "evaluation_sequences is 5, no multiple of micro_batch 2"),
        ({"batch": 0}, "batch is 0; it must be at least 1"),
        ({"target_loss": 1.0}, "exactly one of gap_share, improvement and target_loss"),
        ({"end_learning_rate": 0.0}, "must fall, above 0"),
        ({"warm_up_steps": 1000, "decay_steps": 1000}, "warm-up of 1000 steps must end before step 1000"),
    ],
)
def test_recipes_that_cannot_be_followed_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        small("pretrain", **changes)


@pytest.mark.parametrize(("name", "phase"), RECIPES)
def test_every_recipe_fits_its_model(name: str, phase: str) -> None:
    recipe = recipe_of(name, phase)
    assert recipe.sequence < preset(name).max_positions
    assert recipe.symbols <= preset(name).vocab_size
    assert recipe_for(case_of(recipe)) == recipe
    assert recipe.seeds >= 3
    assert recipe.steps_between_evaluations <= recipe.max_steps <= recipe.decay_steps
    assert bool(recipe.lora_rank) == (phase == "finetune_lora")


def test_a_case_decides_the_shape_and_unknown_ones_are_refused() -> None:
    fitted = recipe_for(case_of(small("pretrain")))
    assert (fitted.batch, fitted.micro_batch, fitted.sequence) == (4, 2, 8)
    with pytest.raises(UsageError, match=r"no recipe for llama3\.1-70b in phase pretrain; there are nano pretrain"):
        recipe_of("llama3.1-70b", "pretrain")


def test_trained_weights_are_only_there_for_one_model() -> None:
    with pytest.raises(UsageError, match=r"no trained weights of tiny here; only of smollm2-135m"):
        learner(small("finetune_lora", base="trained"))


def test_all_or_only_adapters_are_trained(tiny: Preset) -> None:
    assert sum(p.numel() for p in learner(small("pretrain")).parameters) == parameter_count(tiny)
    tuned = learner(small("finetune_lora"))
    assert sum(p.numel() for p in tuned.parameters) < parameter_count(tiny) / 3
    assert math.isclose(sum(p.numel() for p in tuned.model.parameters() if not p.requires_grad), parameter_count(tiny))
