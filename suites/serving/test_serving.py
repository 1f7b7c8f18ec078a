"""Serving: text generation with continuous batching, asked by LoadGen; one round is one LoadGen test."""

from __future__ import annotations

import pytest

from trnbench.case import grid
from trnbench.serving.clock import loadgen_clock

AT_ONCE = ["single_stream", "offline"]
RATED = ["server", "interactive"]


def smoke(mode, precision, scenario):
    return grid(
        suite="serving",
        tier="smoke",
        workload="nano",
        phase="serving",
        scenario=scenario,
        profile="quick",
        precision=precision,
        mode=mode,
        batch=16,
        sequence=32,
        new_tokens=16,
    )


def small(scenario):
    return grid(
        suite="serving",
        tier="single",
        workload="smollm2-135m",
        phase="serving",
        scenario=scenario,
        profile="quick",
        precision="bf16",
        mode=["eager", "compiled"],
        batch=16,
        sequence=256,
        new_tokens=64,
    )


def large(scenario):
    # Prompts and answers as long as llama3.1-8b may have them in the MLPerf(R) Inference benchmark. The full profile
    # takes hours and is measured with `--profile full` only.
    return grid(
        suite="serving",
        tier="single",
        workload="llama3.1-8b",
        phase="serving",
        scenario=scenario,
        profile=["quick", "full"],
        precision="bf16",
        mode="compiled",
        batch=64,
        sequence=2048,
        new_tokens=128,
    )


@pytest.mark.cases(
    smoke("eager", "fp32", AT_ONCE) + smoke("eager", "bf16", "offline") + small(AT_ONCE) + large(AT_ONCE),
    where_only_compiled=smoke("compiled", "fp32", AT_ONCE) + smoke("compiled", "bf16", "offline"),
)
@pytest.mark.benchmark(timer=loadgen_clock)
def test_serving(measure):
    measure(rounds=3)


# The search for the rate comes before the rounds and takes most of the time.
@pytest.mark.cases(
    smoke("eager", "fp32", RATED) + small(RATED) + large(RATED), where_only_compiled=smoke("compiled", "fp32", RATED)
)
@pytest.mark.benchmark(timer=loadgen_clock)
def test_serving_at_a_rate(measure):
    measure(rounds=2)
