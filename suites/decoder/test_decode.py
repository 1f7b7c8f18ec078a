"""Decoder inference, second phase: one new token for every sequence, from a filled key-value cache."""

from __future__ import annotations

import pytest

from trnbench.case import grid

SMOKE = grid(
    suite="decoder",
    tier="smoke",
    workload="nano",
    phase="decode",
    precision=["fp32", "bf16"],
    mode=["eager", "compiled"],
    batch=8,
    sequence=128,
    new_tokens=32,
)

SINGLE = grid(
    suite="decoder",
    tier="single",
    workload=["llama3.2-1b", "llama3.1-8b"],
    phase="decode",
    precision="bf16",
    mode=["eager", "compiled"],
    batch=8,
    sequence=1024,
    new_tokens=128,
)

NODE = grid(
    suite="decoder",
    tier="node",
    workload="llama3.1-70b",
    phase="decode",
    precision="bf16",
    mode="compiled",
    batch=8,
    sequence=1024,
    new_tokens=128,
    parallel=[{"tp": 8}, {"tp": 16}],
)


@pytest.mark.cases(SMOKE + SINGLE + NODE)
def test_decode(measure):
    measure(rounds=15)
