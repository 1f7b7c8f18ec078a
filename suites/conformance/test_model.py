"""The whole decoder: logits, loss, every gradient and one optimizer step, against a measured noise floor.

Random weights of `nano` at smoke tier; at single tier also the trained weights of SmolLM2-135M (extra `real-model`).
"""

from __future__ import annotations

import pytest

from trnbench.case import grid


def declare(tier, workload, mode, precision, sequence):
    return grid(
        suite="conformance",
        tier=tier,
        workload=workload,
        phase="model",
        precision=precision,
        mode=mode,
        batch=1,
        sequence=sequence,
    )


# Above 256, where positions held in bfloat16 first collide.
LONG = 288

# Of the fixed text, which has 102 tokens.
TEXT = 96

SMOKE = declare("smoke", "nano", "eager", ["fp32", "bf16", "fp16"], LONG)
SMOKE += declare("smoke", "nano", "compiled", "bf16", LONG)
SINGLE = declare("single", "nano", ["eager", "compiled"], ["fp32", "bf16", "fp16"], LONG)
SINGLE += declare("single", "smollm2-135m", ["eager", "compiled"], ["fp32", "bf16", "fp16"], TEXT)
ONLY_COMPILED = declare("smoke", "nano", "compiled", ["fp32", "fp16"], LONG)


@pytest.mark.cases(SMOKE + SINGLE, where_only_compiled=ONLY_COMPILED)
def test_model(conform):
    conform()
