"""Training from scratch until the evaluation loss reaches its target: the time it takes, over several seeds."""

from __future__ import annotations

import pytest

from trnbench.case import grid


def smoke(mode):
    return grid(
        suite="training",
        tier="smoke",
        workload="nano",
        phase="pretrain",
        precision="fp32",
        mode=mode,
        batch=16,
        sequence=48,
    )


SINGLE = grid(
    suite="training",
    tier="single",
    workload="llama3.2-1b",
    phase="pretrain",
    precision="bf16",
    mode="compiled",
    batch=64,
    micro_batch=8,
    sequence=512,
)


@pytest.mark.cases(smoke("eager") + SINGLE, where_only_compiled=smoke("compiled"))
def test_pretrain(measure):
    measure(rounds=3)
