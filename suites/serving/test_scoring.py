"""Scoring: the likeliest next token of each prompt, asked by LoadGen; one round is one LoadGen test."""

from __future__ import annotations

import pytest

from trnbench.case import grid
from trnbench.serving.clock import loadgen_clock


def smoke(mode, scenario):
    return grid(
        suite="serving",
        tier="smoke",
        workload="nano",
        phase="scoring",
        scenario=scenario,
        profile="quick",
        precision="fp32",
        mode=mode,
        batch=8,
        sequence=16,
    )


def small(scenario):
    return grid(
        suite="serving",
        tier="single",
        workload="smollm2-135m",
        phase="scoring",
        scenario=scenario,
        profile="quick",
        precision="bf16",
        mode=["eager", "compiled"],
        batch=8,
        sequence=256,
    )


@pytest.mark.cases(smoke("eager", "offline") + small("offline"), where_only_compiled=smoke("compiled", "offline"))
@pytest.mark.benchmark(timer=loadgen_clock)
def test_scoring(measure):
    measure(rounds=3)


# A p99 takes 662 queries of eight prompts, some ten seconds a round.
@pytest.mark.cases(
    smoke("eager", "multi_stream") + small("multi_stream"), where_only_compiled=smoke("compiled", "multi_stream")
)
@pytest.mark.benchmark(timer=loadgen_clock)
def test_scoring_eight_at_once(measure):
    measure(rounds=1)
