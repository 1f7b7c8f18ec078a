"""Loss curves of field cases C4, C7 and C12, and what is read from a curve."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trnbench.conformance.learning.arms import Run
from trnbench.conformance.learning.curves import loss_drop, samples_to_target, target_loss
from trnbench.conformance.learning.judge import falls_check, finite_check, samples_check
from trnbench.conformance.learning.updates import FROZEN, updates_check

WORDS = {"compared_with": "fp32", "scope": "a test"}


def test_a_nan_that_comes_and_goes_is_named_and_never_averaged() -> None:
    """C12: 2.1, NaN, NaN, 2.0."""
    check = finite_check([[2.2, 2.1, 2.1, 2.0], [2.1, math.nan, math.nan, 2.0]], scope="a test")
    assert check.verdict == "non-finite"
    assert check.value is None
    assert check.where.startswith("first bad step 2 (run 1); 2 losses in 1 of 2 runs")
    assert check.looks_like == "NaN at step 2 that goes away at step 4"


def test_an_infinity_that_stays_is_named() -> None:
    assert finite_check([[2.2, 2.1, math.inf]], scope="a test").looks_like == "infinity at step 3 that stays"


def test_finite_losses_pass() -> None:
    assert finite_check([[2.2, 2.1]], scope="a test").verdict == "pass"


def fine_tune(seed: int, dtype: torch.dtype, *, masters: bool) -> list[float]:
    """C4: a classifier of 77 classes, 30 steps of SGD from weights of 1, so that updates are small."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(77, 32, generator=generator)
    weight = torch.nn.Parameter(torch.ones(77, 32, dtype=torch.float32 if masters else dtype))
    optimizer = torch.optim.SGD([weight], lr=0.05)
    losses = []
    for _ in range(30):
        labels = torch.randint(77, (64,), generator=generator)
        inputs = centres[labels] + 0.3 * torch.randn(64, 32, generator=generator)
        logits = torch.nn.functional.linear(inputs.to(dtype), weight.to(dtype))
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize(("masters", "verdict"), [(True, "pass"), (False, "fail")])
def test_a_fine_tune_of_77_classes_must_fall_as_in_fp32(masters: bool, verdict: str) -> None:
    reference = [fine_tune(seed, torch.float32, masters=True) for seed in range(6)]
    narrow = [fine_tune(seed, torch.bfloat16, masters=masters) for seed in range(6)]
    check = falls_check(narrow, reference, 6, **WORDS)
    assert check.verdict == verdict, check
    assert "is asked for" in check.where


def test_a_flat_loss_fails_and_is_called_flat() -> None:
    generator = np.random.default_rng(0)
    falling = [list(np.linspace(4.0, 2.0, 30) + 0.05 * generator.normal(size=30)) for _ in range(6)]
    flat = [list(4.0 + 0.05 * generator.normal(size=30)) for _ in range(6)]
    assert falls_check(falling, falling, 5, **WORDS).verdict == "pass"
    check = falls_check(flat, falling, 5, **WORDS)
    assert (check.verdict, check.looks_like) == ("fail", "flat loss")


def sgd_run(dtype: torch.dtype) -> Run:
    """C7: a weight of 1, a hundred steps of 0.001."""
    weight = torch.ones(64, dtype=dtype)
    for _ in range(100):
        weight -= 0.001
    change = (weight.double() - 1.0).abs()
    return Run(
        losses=[1.0],
        unmoved={"weight": int((change == 0).sum())},
        distance={"weight": float(change.norm())},
        decay={"weight": 0.0},
    )


def test_updates_that_round_to_nearest_swallows_are_named() -> None:
    reference = [sgd_run(torch.float32), sgd_run(torch.float64)]
    lost = updates_check([sgd_run(torch.bfloat16)] * 2, reference, {"weight": 64}, **WORDS)
    assert (lost.verdict, lost.looks_like) == ("fail", FROZEN)
    assert "100.00% of the weights never moved" in lost.where
    assert updates_check(reference, reference, {"weight": 64}, **WORDS).verdict == "pass"


def test_samples_to_target_are_read_between_steps() -> None:
    falling = [5.0, 4.0, 3.0, 2.0, 1.0]
    assert samples_to_target(falling, 3.0, 1, 8) == pytest.approx(24.0)
    assert samples_to_target(falling, 2.5, 1, 8) == pytest.approx(28.0)
    assert samples_to_target(falling, 2.5, 2, 8) == pytest.approx(32.0)
    assert samples_to_target(falling, 9.0, 1, 8) == pytest.approx(8.0)
    assert samples_to_target(falling, 0.5, 1, 8) == math.inf
    assert loss_drop(falling, 2) == pytest.approx(3.5)


def test_the_target_is_one_that_the_slowest_reference_reaches() -> None:
    fast, slow = list(np.linspace(4.0, 1.0, 40)), list(np.linspace(4.0, 2.0, 40))
    target = target_loss([fast, slow], 4)
    assert math.isfinite(samples_to_target(slow, target, 4, 1))
    assert samples_to_target(slow, target, 4, 1) <= 30


def test_an_arm_that_misses_the_target_is_too_slow() -> None:
    generator = np.random.default_rng(1)
    reference = [list(np.linspace(4.0, 2.0, 40) + 1e-4 * generator.normal(size=40)) for _ in range(4)]
    floor = [[loss + 1e-5 * generator.normal() for loss in losses] for losses in reference * 2]
    stuck = [[max(loss, 3.0) for loss in losses] for losses in reference]
    check = samples_check(stuck, reference, floor, 4, 8, vocabulary=48, **WORDS)
    assert (check.verdict, check.looks_like) == ("fail", "learns too slowly")
    assert check.where.startswith("4 of 4 runs never reach the target")
    assert samples_check(floor[4:], reference, floor, 4, 8, vocabulary=48, **WORDS).verdict == "pass"
