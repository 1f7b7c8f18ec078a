"""Operators of transformers, forward and backward, on adversarial inputs: a case for each family and precision.

The `single` tier tries more shapes. Nightly runs add `--seeds 200`: random inputs of any seed never make a correct
implementation fail.
"""

from __future__ import annotations

import pytest

from trnbench.case import grid

FAMILIES = ["products", "attention", "normalisation", "activations", "reductions", "indexing", "updates"]

SMOKE = grid(
    suite="conformance",
    tier="smoke",
    workload=FAMILIES,
    phase="operators",
    precision=["fp32", "bf16", "fp16"],
    mode="eager",
) + grid(
    suite="conformance",
    tier="smoke",
    workload=FAMILIES,
    phase="operators",
    precision=["fp32", "bf16"],
    mode="compiled",
)

# tf32 is a precision of matrix products; where the device has none the case says so.
TF32 = grid(
    suite="conformance",
    tier="smoke",
    workload=["products", "attention"],
    phase="operators",
    precision="tf32",
    mode="eager",
)

SINGLE = grid(
    suite="conformance",
    tier="single",
    workload=FAMILIES,
    phase="operators",
    precision=["fp32", "bf16", "fp16"],
    mode=["eager", "compiled"],
) + grid(
    suite="conformance",
    tier="single",
    workload=["products", "attention"],
    phase="operators",
    precision="tf32",
    mode=["eager", "compiled"],
)


@pytest.mark.cases(SMOKE + TF32 + SINGLE)
def test_operators(conform):
    conform()
