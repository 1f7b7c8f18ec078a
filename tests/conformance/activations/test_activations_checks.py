"""Checks of activations and dropout: what passes on the CPU, what does not, and that every mutant is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.mutants.activations import MUTANTS
from trnbench.conformance.mutants.run import try_mutant
from trnbench.conformance.operators.activations import OPERATORS
from trnbench.conformance.operators.activations_gelu import gelu_oracle, gelu_slope, tanh_gelu_oracle, tanh_gelu_slope
from trnbench.conformance.operators.activations_inputs import bands, every_code
from trnbench.conformance.operators.activations_silu import silu_oracle, silu_slope
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.judge import judge_operator

if TYPE_CHECKING:
    from collections.abc import Callable

    from trnbench.conformance.mutants.base import Mutant

QUICK = [mutant for mutant in MUTANTS if mutant.operator == "dropout"]
"""The whole list is judged by the mutation test of all operators; these take a fraction of a second each."""

KNOWN = {
    ("GELU", "forward", "infinity"),
    ("GELU", "forward", "large magnitudes"),
    ("GELU", "forward", "subnormal"),
    ("GELU tanh", "backward", "large magnitudes"),
}
"""Where PyTorch's CPU kernels deviate: erf-GELU through oneDNN overflows before it halves, makes NaN of infinity and
flushes subnormal bf16 numbers; the derivative of the tanh form squares x, and multiplies the infinity by zero."""


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_cpu_deviates_only_where_it_is_known_to(precision: str) -> None:
    plan = Plan(seeds=(1, 2, 3, 4, 5), shapes="one")
    failed = set()
    for operator in OPERATORS:
        judged = judge_operator(
            operator, precision, HostImplementation(operator.function), Arithmetic(precision=precision), plan
        )
        assert judged.findings
        failed |= {(one.operator, one.direction, one.input) for one in judged.findings if one.verdict != "pass"}
    assert failed <= KNOWN
    if precision != "fp16":
        assert ("GELU tanh", "backward", "large magnitudes") in failed


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: f"{mutant.name}, {mutant.precision}")
def test_quick_mutants_are_told(mutant: Mutant) -> None:
    result = try_mutant(mutant)
    if mutant.correct:
        assert result.tiers == []
    else:
        assert result.tiers
        assert result.named, result.found


def test_every_finite_number_of_a_16_bit_format_is_tried() -> None:
    for precision, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        tried = torch.cat([band.reshape(-1) for band in bands(precision, 0).values()])
        expected = every_code(dtype).view(torch.int16)
        assert torch.equal(torch.unique(tried.view(torch.int16)), torch.unique(expected))


def test_every_binade_of_float32_is_tried_on_both_sides() -> None:
    tried = torch.cat([band.reshape(-1) for band in bands("fp32", 0).values()])
    signs_and_exponents = torch.unique(tried.view(torch.int32) >> 23)
    assert signs_and_exponents.numel() == 2 * 255


FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor], torch.Tensor], str]] = {
    "GELU": (gelu_oracle, gelu_slope, "erf"),
    "GELU tanh": (tanh_gelu_oracle, tanh_gelu_slope, "tanh"),
    "SiLU": (silu_oracle, silu_slope, "logistic"),
}


def _exact(kind: str, x: mpmath.mpf) -> mpmath.mpf:
    if kind == "erf":
        return x * mpmath.ncdf(x)
    if kind == "tanh":
        inner = mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf(0.044715) * x**3)
        return x / (1 + mpmath.exp(-2 * inner))
    return x / (1 + mpmath.exp(-x))


@pytest.mark.parametrize("name", FUNCTIONS)
@given(x=st.floats(min_value=-30.0, max_value=30.0, width=32))
@settings(max_examples=60, deadline=None)
def test_oracles_agree_with_50_digits(name: str, x: float) -> None:
    """Relative to the value, also in the left tail, and the derivative to 1e-12 absolutely, by mpmath's own."""
    oracle, slope, kind = FUNCTIONS[name]
    argument = torch.tensor(x, dtype=torch.float64)
    with mpmath.workdps(50):
        exact = float(_exact(kind, mpmath.mpf(x)))
        derivative = float(mpmath.diff(lambda z: _exact(kind, z), mpmath.mpf(x)))
    assert float(oracle(argument)) == pytest.approx(exact, rel=1e-12, abs=1e-300)
    assert float(slope(argument)) == pytest.approx(derivative, rel=1e-9, abs=1e-12)
