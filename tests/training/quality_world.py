"""A model that trains in milliseconds, a learner that is scripted, and cases over both."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "measure"))

import pytest
import torch
from fake_backend import FakeBackend, StepClock

from trnbench.case import Case, case_from
from trnbench.workloads import presets, quality, recipes
from trnbench.workloads.presets import Preset
from trnbench.workloads.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TINY = Preset(
    name="tiny",
    vocab_size=16,
    layers=1,
    hidden=16,
    heads=2,
    kv_heads=1,
    head_dim=8,
    ffn_hidden=24,
    rope_theta=10_000.0,
    rope_scaling=None,
    norm_eps=1e-5,
    tied_head=False,
    max_positions=64,
    source="this test",
)

EVERY_STEPS, MAX_STEPS, BATCH, SEQUENCE = 4, 12, 4, 8
SEEDS = [11, 22, 33]


def tiny_recipe(**changes: Any) -> Recipe:
    """Evaluates every 4 steps of 4 sequences, for at most 12 steps; the target is out of reach unless changed."""
    fields: dict[str, Any] = {
        "preset": "tiny",
        "phase": "pretrain",
        "data": "source",
        "batch": BATCH,
        "micro_batch": 2,
        "sequence": SEQUENCE,
        "symbols": 8,
        "tables": 2,
        "evaluation_sequences": 4,
        "evaluation_every": EVERY_STEPS * BATCH,
        "max_samples": MAX_STEPS * BATCH,
        "learning_rate": 1e-2,
        "end_learning_rate": 1e-3,
        "warm_up_steps": 2,
        "decay_steps": 20,
        "seeds": 3,
        "target_loss": 0.01,
    }
    return Recipe(**{**fields, **changes})


def tiny_case(**changes: Any) -> Case:
    """A case of the tiny model, at the shape of its recipe."""
    fields: dict[str, Any] = {
        "suite": "test",
        "workload": "tiny",
        "phase": "pretrain",
        "precision": "fp32",
        "mode": "eager",
        "tier": "smoke",
        "batch": BATCH,
        "micro_batch": 2,
        "sequence": SEQUENCE,
        "version": "1",
    }
    return case_from({**fields, **changes})


def install(patch: pytest.MonkeyPatch, recipe: Recipe | None = None) -> None:
    """Make the tiny model known, with this recipe."""
    recipe = recipe or tiny_recipe()
    patch.setattr(presets, "PRESETS", {**presets.PRESETS, "tiny": TINY})
    patch.setitem(recipes.RECIPES, ("tiny", recipe.phase), recipe)


@dataclass
class Script:
    """What a scripted run does: `losses` step by step, `evaluated` evaluation by evaluation; the last ones repeat.

    Times are seconds of the backend's clock.
    """

    losses: Sequence[float] = (2.0,)
    evaluated: Sequence[float] = (1.5, 0.5)
    build_seconds: float = 7.0
    step_seconds: float = 1.0
    evaluation_seconds: float = 3.0
    moves: bool = True
    compiles_at: int = 0
    fallback_at: int = 0
    skips_count_at: int = 0


class ScriptedLearner:
    """Plays a script on the scripted backend opened last; `scripts` gives one by seed, `events` what was called."""

    scripts: Callable[[int], Script] = staticmethod(lambda seed: Script())
    events: list[str]

    def __init__(
        self, case: Case, recipe: Recipe, device: Any, compiler: Any, materialize: Callable[..., None], *, seed: int
    ) -> None:
        self.script = type(self).scripts(seed)
        self.steps = self.played = self.evaluations = 0
        self.parameters = [torch.zeros(2)]
        self._materialize = materialize
        self.backend.clock.now += self.script.build_seconds
        self.events.append("build")

    @property
    def backend(self) -> FakeBackend:
        return FakeBackend.latest

    def warm_up(self) -> None:
        self.events.append("warm up")
        self._materialize([torch.zeros(())])

    def train(self, batch: Any) -> torch.Tensor:
        assert not self.backend.queue, "the step before was not waited for"
        self.played += 1
        script, number = self.script, self.played
        self.events.append("train")
        self.backend.queue.append(script.step_seconds)
        self.parameters[0] += script.moves
        if self.backend.compiles is not None:
            self.backend.compiles += script.compiles_at == number
        if script.fallback_at == number:
            self.backend.fallbacks["aten::odd"] = self.backend.fallbacks.get("aten::odd", 0) + 2
        self.steps += script.skips_count_at != number
        return torch.tensor(script.losses[min(number, len(script.losses)) - 1])

    def evaluate(self, batch: Any) -> float:
        self.events.append("evaluate")
        self.backend.clock.now += self.script.evaluation_seconds
        self.evaluations += 1
        return self.script.evaluated[min(self.evaluations, len(self.script.evaluated)) - 1]

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps, "parameters": [value.clone() for value in self.parameters]}

    def load_state(self, state: dict[str, Any]) -> None:
        self.steps, self.parameters = state["steps"], state["parameters"]


@dataclass
class World:
    """A scripted world: the backend, the recipe that runs use, and the fixture that times them."""

    patch: pytest.MonkeyPatch
    benchmark: Any
    backend: FakeBackend
    state: Path
    events: list[str] = field(default_factory=list)

    def script(self, scripts: Callable[[int], Script], recipe: Recipe | None = None) -> None:
        """Play a script by seed."""
        install(self.patch, recipe or tiny_recipe(target_loss=1.0))
        learner = type("Learner", (ScriptedLearner,), {"scripts": staticmethod(scripts), "events": self.events})
        self.patch.setattr(quality, "Learner", learner)


def open_world(request: pytest.FixtureRequest, patch: pytest.MonkeyPatch, state: Path) -> World:
    """The scripted backend with the real `benchmark` fixture on the same clock."""
    clock = StepClock()
    request.node.add_marker(pytest.mark.benchmark(timer=clock))
    backend = FakeBackend(clock)
    backend.open()
    return World(patch, request.getfixturevalue("benchmark"), backend, state)
