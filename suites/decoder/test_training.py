"""Decoder pretraining: one optimizer step on a fixed global batch."""

from __future__ import annotations

import pytest

from trnbench.case import grid

SMOKE = grid(
    suite="decoder",
    tier="smoke",
    workload="nano",
    phase="train_step",
    precision=["fp32", "bf16"],
    mode=["eager", "compiled"],
    batch=8,
    micro_batch=4,
    sequence=128,
)

SINGLE = grid(
    suite="decoder",
    tier="single",
    workload="llama3.2-1b",
    phase="train_step",
    precision=["bf16", "tf32", "fp16"],
    mode=["eager", "compiled"],
    batch=8,
    micro_batch=2,
    sequence=2048,
)

NODE = grid(
    suite="decoder",
    tier="node",
    workload="llama3.1-70b",
    phase="train_step",
    precision="bf16",
    mode="compiled",
    batch=64,
    micro_batch=1,
    sequence=4096,
    parallel=[{"tp": 16}, {"tp": 64}],
)


@pytest.mark.cases(SMOKE + SINGLE + NODE)
def test_train_step(measure):
    measure(rounds=12)
