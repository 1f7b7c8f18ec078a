"""Number formats: casts, decoding and block scales, every code of every 8-bit and 4-bit format."""

from __future__ import annotations

import pytest

from trnbench.case import grid

CASES = grid(
    suite="conformance",
    tier="smoke",
    workload=["casts", "blocks"],
    phase="formats",
    # What is cast from; the formats are those of the checks.
    precision="fp32",
    mode=["eager", "compiled"],
)


@pytest.mark.cases(CASES)
def test_formats(conform):
    conform()
