"""Decoder inference, first phase: a batch of whole prompts to the logits of each one's next token."""

from __future__ import annotations

import pytest

from trnbench.case import grid

SMOKE = grid(
    suite="decoder",
    tier="smoke",
    workload="nano",
    phase="prefill",
    precision=["fp32", "tf32", "bf16", "fp16"],
    mode=["eager", "compiled"],
    batch=2,
    # Above 256, where positions held in bfloat16 first collide.
    sequence=384,
)

SINGLE = grid(
    suite="decoder",
    tier="single",
    workload=["llama3.2-1b", "llama3.1-8b"],
    phase="prefill",
    precision="bf16",
    mode=["eager", "compiled"],
    batch=1,
    sequence=2048,
)

NODE = grid(
    suite="decoder",
    tier="node",
    workload="llama3.1-70b",
    phase="prefill",
    precision="bf16",
    mode="compiled",
    batch=1,
    sequence=2048,
    parallel=[{"tp": 8}, {"tp": 16}],
)


@pytest.mark.cases(SMOKE + SINGLE + NODE)
def test_prefill(measure):
    measure(rounds=15)
