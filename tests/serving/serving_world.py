"""A served case without a device and without LoadGen's child: a scripted system, and LoadGen as plain arithmetic.

The fake LoadGen asks what a real one would, at once and in virtual time, and is content with a rate as scripted. Tests
of what surrounds LoadGen need many of its runs; that the real one agrees is shown by a few end-to-end tests.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "measure"))

from fake_backend import FakeBackend, StepClock

from trnbench.case import Case, case_from
from trnbench.records.schema import LEAST_COUNT, Latencies
from trnbench.serving.log import LoadGenResult, LoggedAnswer
from trnbench.serving.measure import library
from trnbench.serving.profiles import profile
from trnbench.serving.protocol import DETAIL, SUMMARY
from trnbench.serving.runs import Runs
from trnbench.serving.samples import Samples
from trnbench.serving.stages import Stages
from trnbench.serving.system import Completion, FirstToken, Request, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from trnbench.serving.settings import Test

STOP = 7


def served_case(**changes: object) -> Case:
    """A small served case; scoring where the phase says so."""
    fields: dict[str, object] = {
        "suite": "serving",
        "workload": "nano",
        "phase": "serving",
        "scenario": "offline",
        "profile": "quick",
        "precision": "fp32",
        "mode": "eager",
        "tier": "smoke",
        "batch": 4,
        "sequence": 8,
        **changes,
    }
    return case_from({"new_tokens": 6 if fields["phase"] == "serving" else 0, **fields})


class Script:
    """Answers every sample in full, a batch at a time: first tokens in one step, the rest in the next one."""

    def __init__(self, samples: Samples, *, batch: int = 4, scoring: bool = False) -> None:
        self.samples = samples
        self.scoring = scoring
        self.answered = 0
        self._batch = batch
        self._queued: list[Request] = []
        self._running: list[Request] = []

    def submit(self, requests: Sequence[Request]) -> None:
        self._queued.extend(requests)

    def step(self) -> Step:
        self.work([request.index for request in self._queued[: self._batch]])
        done, self._running = self._running, self._queued[: self._batch]
        del self._queued[: self._batch]
        answers = [Completion(request.id, self.tokens_of(request.index)) for request in done]
        self.answered += len(answers)
        if self.scoring:
            return Step([], answers)
        return Step([FirstToken(one.id, self.first_of(one.index)) for one in self._running], answers)

    def work(self, started: Sequence[int]) -> None:
        """What a step costs when it starts on these samples."""

    def first_of(self, index: int) -> int:
        return self.tokens_of(index)[0]

    def tokens_of(self, index: int) -> list[int]:
        """Every token of the answer; ends with the stop token where one answer in three stops early."""
        limit = self.samples.limits[index]
        tokens = [100 + 10 * index + position for position in range(limit)]
        if self.samples.stop_token is not None and index % 3 == 0 and limit > 2:
            return [*tokens[: limit - 2], self.samples.stop_token]
        return tokens

    @property
    def busy(self) -> bool:
        return bool(self._queued or self._running)


@dataclass
class FakeLoadGen:
    """Runs a test against a system in no time. `holds(rate, n)` says whether the n-th rated test is valid."""

    holds: Callable[[float, int], bool] = lambda _rate, _number: True
    capacity: float = 100.0
    delay: float = 0.001
    errors: int = 0
    raises: dict[int, BaseException] = field(default_factory=dict)
    """What the n-th test raises, counted from 1."""
    detail: bytes = b":::MLLOG {}\n"
    tests: list[Test] = field(default_factory=list)

    def __call__(self, test: Test, system: Any, *, folder: Path, timeout: float) -> LoadGenResult:
        self.tests.append(test)
        if len(self.tests) in self.raises:
            raise self.raises[len(self.tests)]
        asked = self._indices(test)
        said: dict[int, Completion] = {}
        firsts: dict[int, int] = {}
        for identifier, index in enumerate(asked):
            system.submit([Request(identifier, index)])
            if test.scenario == "single_stream" or identifier == len(asked) - 1:
                while system.busy:
                    step = system.step()
                    firsts |= {one.id: one.token for one in step.first}
                    said |= {one.id: one for one in step.complete}
        (folder / SUMMARY).write_text(f"summary of {folder}\n")
        (folder / DETAIL).write_bytes(self.detail)
        return self._result(test, asked, said, firsts)

    def _indices(self, test: Test) -> list[int]:
        if test.mode == "accuracy" or test.draw == "unique":
            return list(range(test.samples))
        return [index % test.samples for index in range(test.least_queries * test.samples_per_query)]

    def _result(
        self, test: Test, asked: list[int], said: dict[int, Completion], firsts: dict[int, int]
    ) -> LoadGenResult:
        timed = test.mode == "performance"
        rated = test.rate is not None
        number = sum(one.rate is not None for one in self.tests)
        reasons = ["a latency limit is not met"] if test.rate and not self.holds(test.rate, number) else []
        late = bool(reasons)
        reasons += [f"{self.errors} errors in LoadGen's detail log"] if self.errors else []
        keep = len(asked) if not timed else min(test.logged_samples, len(asked))
        counts = len(asked)
        latencies = Latencies(
            count=counts,
            mean=self.delay,
            percentiles={key: self.delay for key, least in LEAST_COUNT.items() if counts >= least},
        )
        samples = min(test.rate or self.capacity, self.capacity)
        produced = sum(len(one.tokens) for one in said.values())
        rates = {"samples": samples, **({"target": test.rate} if test.rate else {})} if timed else {}
        if timed and test.token_latencies:
            rates["tokens"] = samples * produced / max(len(said), 1)
        return LoadGenResult(
            scenario=test.scenario,
            mode=test.mode,
            verdict="none" if not timed else "INVALID" if late else "VALID",
            reasons=reasons,
            errors=self.errors,
            error_texts=[],
            queries=len(asked),
            samples=len(said),
            seconds=len(asked) / samples,
            issued={index: asked.count(index) for index in set(asked)},
            produced=produced,
            rates=rates,
            latencies=dict.fromkeys(("latency", "ttft") if rated else ("latency",), latencies) if timed else {},
            metric=None if reasons or not timed else self.delay if test.scenario.endswith("_stream") else 1 / samples,
            early_stopping={},
            settings={"loadgen_version": "fake", "effective_min_query_count": test.least_queries},
            logged=[
                LoggedAnswer(
                    index=index,
                    tokens=list(said[identifier].tokens),
                    first=[firsts[identifier]] if identifier in firsts else [],
                    count=len(said[identifier].tokens) if test.token_latencies else None,
                )
                for identifier, index in list(enumerate(asked))[:keep]
            ],
        )

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Stand in for LoadGen wherever a test is run."""
        patch.setattr("trnbench.serving.link.run_loadgen", self)
        patch.setattr("trnbench.serving.null.run_loadgen", self)


def samples_of(case: Case, stop_token: int | None = None) -> Samples:
    """The case's library, the reserve of the caching audit included; with a stop token where one is given."""
    found = library(case, profile(case.profile).library)
    return Samples(prompts=found.prompts, limits=found.limits, stop_token=stop_token, source=found.source)


def script_of(case: Case, kind: type[Script] = Script, stop_token: int | None = None) -> Script:
    """A scripted system for a case."""
    return kind(samples_of(case, stop_token), batch=case.batch, scoring=case.phase == "scoring")


def stages_of(case: Case, system: Script, folder: Path) -> Stages:
    """The stages of a case around a system that needs no device."""
    backend = FakeBackend(StepClock())
    runs = Runs(backend, system, system.samples, folder=folder, timeout=lambda _: 60.0)
    return Stages(case, runs)


def spin(seconds: float) -> None:
    """Take so long, without the scheduler's coarse wake-up from a sleep."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        np.sqrt(2.0)
