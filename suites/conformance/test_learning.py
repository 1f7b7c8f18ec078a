"""Learning: does training in a lower precision reach the same loss, no slower and no faster, over paired seeds?"""

from __future__ import annotations

import pytest

from trnbench.case import grid

SMOKE = grid(
    suite="conformance",
    tier="smoke",
    workload="nano",
    phase="learning",
    precision=["fp32", "bf16", "fp16"],
    mode="eager",
    batch=4,
    sequence=32,
) + grid(
    suite="conformance",
    tier="smoke",
    workload="nano",
    phase="learning",
    precision="bf16",
    mode="compiled",
    batch=4,
    sequence=32,
)

SINGLE = grid(
    suite="conformance",
    tier="single",
    workload="nano",
    phase="learning",
    precision=["fp32", "bf16", "fp16"],
    mode=["eager", "compiled"],
    batch=4,
    sequence=32,
)


@pytest.mark.cases(SMOKE + SINGLE)
def test_learning(conform):
    conform()
