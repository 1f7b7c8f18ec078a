"""Learning: does training in a lower precision reach the same loss, no slower and no faster, over paired seeds?"""

from __future__ import annotations

import pytest

from trnbench.case import grid


def declare(tier, mode, precision):
    return grid(
        suite="conformance",
        tier=tier,
        workload="nano",
        phase="learning",
        precision=precision,
        mode=mode,
        batch=8,
        sequence=8,
    )


# fp16 is slow on most CPUs, which compute it through float32: single tier.
SMOKE = declare("smoke", "eager", ["fp32", "bf16"])
SINGLE = declare("single", ["eager", "compiled"], ["fp32", "bf16", "fp16"])
ONLY_COMPILED = declare("smoke", "compiled", ["fp32", "bf16"])


@pytest.mark.cases(SMOKE + SINGLE, where_only_compiled=ONLY_COMPILED)
def test_learning(conform):
    conform()
