"""Generation: logits of a fixed text, perplexity, greedy tokens with their margins, invariance, checkpoints.

`nano` has random weights; at single tier SmolLM2-135M has trained ones (extra `real-model`).
"""

from __future__ import annotations

import pytest

from trnbench.case import grid

SMOKE = grid(
    suite="conformance",
    tier="smoke",
    workload="nano",
    phase="generation",
    precision=["fp32", "bf16"],
    mode="eager",
    batch=4,
    sequence=48,
) + grid(
    suite="conformance",
    tier="smoke",
    workload="nano",
    phase="generation",
    precision="fp32",
    mode="compiled",
    batch=4,
    sequence=48,
)

SINGLE = grid(
    suite="conformance",
    tier="single",
    workload=["nano", "smollm2-135m"],
    phase="generation",
    precision=["fp32", "bf16", "fp16"],
    mode=["eager", "compiled"],
    batch=4,
    sequence=48,
)


@pytest.mark.cases(SMOKE + SINGLE)
def test_generation(conform):
    conform()
