"""Optimizer steps, clipping and stochastic rounding on the CPU, and field case C7: small steps on bfloat16 weights."""

from __future__ import annotations

import pytest
import torch

from trnbench.conformance.arithmetic import Arithmetic
from trnbench.conformance.implementation import HostImplementation
from trnbench.conformance.operators import updates_rounding, updates_small_steps
from trnbench.conformance.operators.base import Plan
from trnbench.conformance.operators.judge import judge_operator
from trnbench.conformance.operators.updates import OPERATORS
from trnbench.conformance.operators.updates_adamw_bound import adamw_exactly
from trnbench.workloads.training import BETAS, EPSILON, LEARNING_RATE, WEIGHT_DECAY

CASES = [(operator, precision) for operator in OPERATORS for precision in operator.precisions]


@pytest.mark.parametrize(("operator", "precision"), CASES, ids=[f"{o.name} {p}" for o, p in CASES])
def test_five_seeds_pass(operator, precision) -> None:
    plan = Plan(seeds=(0, 1, 2, 3, 4), shapes="one")
    implementation = HostImplementation(operator.function)
    judged = judge_operator(operator, precision, implementation, Arithmetic(precision=precision), plan)
    assert judged.findings
    assert not [finding for finding in judged.findings if finding.verdict != "pass"]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_oracle_agrees_with_pytorchs_optimizer_in_float64(step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    weight, gradient, mean = (torch.randn(50, generator=generator, dtype=torch.float64) for _ in range(3))
    variance = torch.rand(50, generator=generator, dtype=torch.float64)
    parameter = weight.clone().requires_grad_()
    optimizer = torch.optim.AdamW([parameter], LEARNING_RATE, BETAS, EPSILON, WEIGHT_DECAY, foreach=False)
    state = {"step": torch.tensor(step - 1.0), "exp_avg": mean.clone(), "exp_avg_sq": variance.clone()}
    optimizer.state[parameter] = state
    parameter.grad = gradient
    optimizer.step()
    exact = adamw_exactly(weight, gradient, mean, variance, step)
    torch.testing.assert_close(exact.weight, parameter.detach(), rtol=1e-14, atol=1e-15)


def _small_steps(rounding: str, seed: int) -> torch.Tensor:
    ones = torch.ones(4096, dtype=torch.bfloat16)
    weight = ones
    for step in range(updates_small_steps.STEPS):
        if rounding == "nearest":
            weight = (weight.float() - updates_small_steps.STEP_SIZE).to(torch.bfloat16)
        else:
            number = torch.tensor([seed * 100 + step], dtype=torch.int32)
            weight = updates_small_steps.with_stochastic_rounding(weight, ones, number)
    return weight


def test_nearest_loses_every_small_update_and_stochastic_rounding_arrives_on_average() -> None:
    assert bool((_small_steps("nearest", 0) == 1.0).all())
    found = _small_steps("stochastic", 0).double()
    assert abs(float(found.mean()) - 0.9) < 6 * float(found.std()) / 64
    assert torch.equal(_small_steps("stochastic", 0), _small_steps("stochastic", 0))
    assert not torch.equal(_small_steps("stochastic", 0), _small_steps("stochastic", 1))


def test_lost_updates_are_told_with_their_share() -> None:
    operator = next(one for one in OPERATORS if one.name == "AdamW with 16-bit weights")
    assert operator.statistics is not None
    arithmetic = Arithmetic(precision="bf16")
    found = list(operator.statistics(HostImplementation(operator.function), "bf16", Plan(), arithmetic))
    frozen = HostImplementation(lambda weight, *others: weight.clone())
    assert "100% of gaussian weights" in next(iter(operator.statistics(frozen, "bf16", Plan(), arithmetic))).where
    assert "100%" not in found[0].where
    assert [finding.verdict for finding in found] == ["pass"]


class _Rounding:
    """A backend that rounds the sums it is asked to wait for as told."""

    device = torch.device("cpu")

    def __init__(self, rounding) -> None:
        self._rounding = rounding

    def materialize(self, outputs) -> None:
        outputs[0].copy_(self._rounding(outputs[0]))


@pytest.mark.parametrize(("rounding", "answer"), [("nearest", False), ("stochastic", True), ("wide", None)])
def test_stochastic_rounding_of_a_device_is_detected(rounding: str, answer: bool | None) -> None:
    generator = torch.Generator().manual_seed(0)
    walk = torch.full((updates_rounding.LANES,), 1024.0)

    def rounded(sums: torch.Tensor) -> torch.Tensor:
        if rounding == "nearest":
            return sums
        if rounding == "wide":
            return walk.add_(0.5).half()
        # A walk of its own, with the right mean, whatever rounding to nearest did with the sum.
        unit = torch.where(walk < 2048.0, 1.0, 2.0)
        walk.add_(unit * (torch.rand(sums.shape, generator=generator) < 0.5 / unit))
        return walk.half()

    assert updates_rounding.detect_stochastic_rounding(_Rounding(rounded)) is answer


def test_random_bits_are_even() -> None:
    bits = updates_rounding.random_bits(1 << 16, torch.tensor([3], dtype=torch.int32)) >> 8
    # 256 equally likely values: chi-square with 255 degrees of freedom has deviation sqrt(510).
    chi_square = float(((torch.bincount(bits, minlength=256) - 256.0) ** 2 / 256.0).sum())
    assert abs(chi_square - 255.0) < 6 * 510**0.5
