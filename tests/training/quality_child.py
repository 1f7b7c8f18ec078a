"""Measures the tiny case in a process of its own, which stops within a run and waits to be killed.

    pytest quality_child.py        with CHILD_STATE, the state folder, and CHILD_SEEDS, "11,22,33" or nothing

Says "waiting" on its standard error at step 7 of the second run, after a checkpoint of every step.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quality_world import install, tiny_case

from trnbench.backends.select import open_backend
from trnbench.training import keeper
from trnbench.training.measure import measure_quality
from trnbench.workloads.quality import Learner

if TYPE_CHECKING:
    import pytest
    from pytest_benchmark.fixture import BenchmarkFixture

STOP_IN_RUN, STOP_BEFORE_STEP = 2, 7
LONG = 300.0


def test_until_killed(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(keeper, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(keeper, "CHECKPOINT_SHARE", 1.0)
    original, seen = Learner.train, []

    def train(learner: Learner, batch: Any) -> Any:
        if learner.seed not in seen:
            seen.append(learner.seed)
        if len(seen) == STOP_IN_RUN and learner.steps == STOP_BEFORE_STEP - 1:
            os.write(2, b"waiting\n")
            time.sleep(LONG)
        return original(learner, batch)

    monkeypatch.setattr(Learner, "train", train)
    backend = open_backend("cpu")
    with backend.numerics("fp32"):
        measure_quality(
            backend,
            benchmark,
            case=tiny_case(),
            runs=3,
            clock=time.perf_counter,
            state=Path(os.environ["CHILD_STATE"]),
            seeds=[int(seed) for seed in os.environ["CHILD_SEEDS"].split(",") if seed],
        )
