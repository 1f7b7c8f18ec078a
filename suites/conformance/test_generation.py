"""Generation: logits of a fixed text, perplexity, greedy tokens with their margins, invariance, checkpoints.

`nano` has random weights; at single tier SmolLM2-135M has trained ones (extra `real-model`).
"""

from __future__ import annotations

import pytest

from trnbench.case import grid


def declare(tier, workload, mode, precision):
    return grid(
        suite="conformance",
        tier=tier,
        workload=workload,
        phase="generation",
        precision=precision,
        mode=mode,
        # The prompts, and their 16 tokens with the 32 that follow.
        batch=4,
        sequence=48,
    )


SMOKE = declare("smoke", "nano", "eager", ["fp32", "bf16"]) + declare("smoke", "nano", "compiled", "fp32")
SINGLE = declare("single", ["nano", "smollm2-135m"], ["eager", "compiled"], ["fp32", "bf16", "fp16"])
ONLY_COMPILED = declare("smoke", "nano", "compiled", "bf16")


@pytest.mark.cases(SMOKE + SINGLE, where_only_compiled=ONLY_COMPILED)
def test_generation(conform):
    conform()
