"""Operators of transformers, forward and backward, on adversarial inputs: a case for each family and precision.

The `single` tier tries more shapes. Nightly runs add `--seeds 200`: random inputs of any seed never make a correct
implementation fail.
"""

from __future__ import annotations

import pytest

from trnbench.case import grid

FAMILIES = ["products", "attention", "normalisation", "activations", "reductions", "indexing", "updates"]

# tf32 is a precision of matrix products; where the device has none the case says so.
TF32_FAMILIES = ["products", "attention"]


def declare(tier, mode, precision, families=FAMILIES):
    return grid(suite="conformance", tier=tier, workload=families, phase="operators", precision=precision, mode=mode)


SMOKE = (
    declare("smoke", "eager", ["fp32", "bf16", "fp16"])
    + declare("smoke", "eager", "tf32", TF32_FAMILIES)
    # Each shape is a compilation: of a second mode, the precision in which compilers take most liberties.
    + declare("smoke", "compiled", "bf16")
)
SINGLE = declare("single", ["eager", "compiled"], ["fp32", "bf16", "fp16"]) + declare(
    "single", ["eager", "compiled"], "tf32", TF32_FAMILIES
)
ONLY_COMPILED = declare("smoke", "compiled", "fp32") + declare("smoke", "compiled", "tf32", TF32_FAMILIES)


@pytest.mark.cases(SMOKE + SINGLE, where_only_compiled=ONLY_COMPILED)
def test_operators(conform):
    conform()
