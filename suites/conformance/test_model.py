"""The whole decoder: logits, loss, every gradient and one optimizer step, against a measured noise floor.

Random weights of `nano` at smoke tier; the trained weights of SmolLM2-135M (extra `real-model`) at single tier.
"""

from __future__ import annotations

import pytest

from trnbench.case import grid

SMOKE = grid(
    suite="conformance",
    tier="smoke",
    workload="nano",
    phase="model",
    precision=["fp32", "bf16", "fp16"],
    mode="eager",
    batch=2,
    # Above 256, where positions held in bfloat16 first collide.
    sequence=320,
) + grid(
    suite="conformance",
    tier="smoke",
    workload="nano",
    phase="model",
    precision="bf16",
    mode="compiled",
    batch=2,
    sequence=320,
)

SINGLE = grid(
    suite="conformance",
    tier="single",
    workload="smollm2-135m",
    phase="model",
    precision=["fp32", "bf16", "fp16"],
    mode=["eager", "compiled"],
    batch=1,
    # Of the fixed text, which has 102 tokens.
    sequence=96,
)


@pytest.mark.cases(SMOKE + SINGLE)
def test_model(conform):
    conform()
