"""Low-rank adapters on trained weights until the evaluation loss has fallen as far as it should: the time it takes."""

from __future__ import annotations

import pytest

from trnbench.case import grid

SINGLE = grid(
    suite="training",
    tier="single",
    workload="smollm2-135m",
    phase="finetune_lora",
    precision=["fp32", "bf16"],
    mode="compiled",
    batch=8,
    sequence=64,
)


@pytest.mark.cases(SINGLE)
def test_finetune_lora(measure):
    measure(rounds=3)
