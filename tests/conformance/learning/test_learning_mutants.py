"""Every broken trainer is caught and named, and no correct one raises an alarm, on a very small decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from trnbench.conformance.learning.check import judge_runs
from trnbench.conformance.learning.mutants import CORRECT_VARIANTS, LEARNING_MUTANTS, LearningMutant
from trnbench.conformance.learning.permitted import floor_run, permitted_implementations
from trnbench.conformance.learning.recipe import Recipe, choose_recipe
from trnbench.conformance.learning.reference import Reference, find_reference
from trnbench.workloads.presets import Preset, preset

if TYPE_CHECKING:
    from trnbench.records.schema import Check

TINY = Preset(
    name="nano",
    vocab_size=384,
    layers=2,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    ffn_hidden=128,
    rope_theta=10_000.0,
    rope_scaling=None,
    norm_eps=1e-5,
    tied_head=True,
    max_positions=64,
    source="made for tests",
)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return msgspec.structs.replace(choose_recipe(TINY), seeds=(0, 1, 2, 3), steps=32)


@pytest.fixture(scope="module")
def reference(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        found = find_reference(recipe, "bf16")
        assert find_reference(recipe, "bf16") == found, "the second one comes from the cache, unchanged"
    return found


def checks_of(mutant: LearningMutant, recipe: Recipe, reference: Reference) -> list[Check]:
    return judge_runs(recipe, mutant.make(recipe, "bf16").train_all(), reference)


@pytest.mark.parametrize("mutant", LEARNING_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught_and_named(mutant: LearningMutant, recipe: Recipe, reference: Reference) -> None:
    checks = checks_of(mutant, recipe, reference)
    found = [check.looks_like for check in checks if check.verdict in {"fail", "non-finite"}]
    assert found
    for name in mutant.names:
        assert any(looks_like.startswith(name) for looks_like in found), (name, found)


@pytest.mark.parametrize("variant", CORRECT_VARIANTS, ids=lambda variant: variant.name)
def test_a_correct_variant_raises_no_alarm(variant: LearningMutant, recipe: Recipe, reference: Reference) -> None:
    for check in checks_of(variant, recipe, reference):
        assert check.verdict == "pass", check
        assert check.value is not None
        assert 0.0 <= check.value <= 1.0
        assert check.looks_like == ""


def test_the_device_is_compared_with_the_same_start_and_data(recipe: Recipe, reference: Reference) -> None:
    """A permuted run begins at the very loss that the fp32 run begins at, up to bf16's rounding."""
    permuted = floor_run(recipe, "fp32", 5)
    assert permuted.losses[0] == pytest.approx(reference.fp32[5 % len(recipe.seeds)].losses[0], rel=1e-6)
    assert permuted.losses != reference.fp32[5 % len(recipe.seeds)].losses


def test_the_fp32_arms_learn(recipe: Recipe, reference: Reference) -> None:
    for run in reference.fp32:
        assert run.losses[-1] < run.losses[0] - 0.3
    assert len(reference.floor) == 2 * len(recipe.seeds)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_every_precision_has_a_floor_of_several_implementations(precision: str) -> None:
    assert len({implementation.name for implementation in permitted_implementations(precision)}) >= 2


@pytest.mark.parametrize("name", ["nano", "smollm2-135m", "llama3.2-1b", "llama3.1-70b"])
def test_every_preset_has_a_slice_that_says_what_it_is(name: str) -> None:
    chosen = choose_recipe(preset(name))
    assert chosen.preset.head_dim == preset(name).head_dim
    assert chosen.preset.heads % chosen.preset.kv_heads == 0
    assert f"of {preset(name).layers} layers" in chosen.words
