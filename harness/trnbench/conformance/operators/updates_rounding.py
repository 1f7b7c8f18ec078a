"""Stochastic rounding from float32 to bfloat16: each value goes to one of its two neighbours, and on average nowhere.

PyTorch has no such operator, so it is written here as tensor code: random bits below the last kept bit are added to the
bit pattern, and the rest is cut off (as torchao's optimizers do). The random bits come from a hash of position and
seed, made of additions, shifts and exclusive ors of int32 alone, so that a seed gives the same bits on every device.
Stochastic rounding in hardware is found by `detect_stochastic_rounding`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from trnbench.conformance.arithmetic import CONFIDENCE
from trnbench.conformance.inputs import make, rounded
from trnbench.conformance.operators.base import ExactSample, Finding, Operator, Plan, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trnbench.backends.base import Backend
    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.implementation import Implementation, Tensors

LENGTH = 65_536
"""Values of a sample: enough that a share of 1/512 rounded up is told from none by 11 standard deviations."""

POSITIVE = 0x7FFFFFFF
KEPT = ~0xFFFF
"""Mask of the bits of a float32 that a bfloat16 keeps."""

FRACTIONS: tuple[float, ...] = (1 / 4, 1 / 2, 15 / 16, 1 / 32, 1 / 512)
"""Distances above the lower neighbour, in units in the last place: few random bits never round the smallest up."""


def _mix(bits: Tensor) -> Tensor:
    """Bob Jenkins' six-shift integer hash, kept non-negative so that right shifts do not depend on the sign."""
    bits = ((bits + 0x7ED55D16) + (bits << 12)) & POSITIVE
    bits = (bits ^ 0x4761C23C) ^ (bits >> 19)
    bits = ((bits + 0x165667B1) + (bits << 5)) & POSITIVE
    bits = ((bits + 0x53A2646C) ^ (bits << 9)) & POSITIVE
    bits = ((bits + 0x7D7046C5) + (bits << 3)) & POSITIVE
    return (bits ^ 0x355A4F09) ^ (bits >> 16)


def random_bits(length: int, seed: Tensor) -> Tensor:
    """int32 [length] of 16 random bits each, from `seed` (int32 [1], below 2^30) and the position."""
    positions = torch.arange(length, dtype=torch.int32, device=seed.device)
    return (_mix(_mix(positions) ^ _mix(_mix(seed))) >> 9) & 0xFFFF


def round_stochastically(values: Tensor, seed: Tensor) -> Tensor:
    """bfloat16 [n] from float32 [n]: up in magnitude with the probability of the bits that are lost.

    Infinities and NaN stay what they are: adding to the bits of a NaN could make it a number.
    """
    bits = values.view(torch.int32)
    moved = ((bits + random_bits(values.shape[0], seed)) & KEPT).view(torch.float32)
    return torch.where(torch.isfinite(values), moved, values).to(torch.bfloat16)


def neighbours(values: Tensor) -> tuple[Tensor, Tensor]:
    """float64 bfloat16 numbers next to each float32 value, toward zero and away from it; equal where it is one."""
    bits = values.view(torch.int32)
    inner = bits & KEPT
    outer = torch.where(inner == bits, inner, inner + 0x10000)
    return inner.view(torch.float32).double(), outer.view(torch.float32).double()


def _samples(precision: str, plan: Plan) -> Iterator[Sample]:
    for seed in plan.seeds:
        for name in ("gaussian", "wide range", "subnormal"):
            yield Sample(
                input=name,
                shape=f"{LENGTH} values",
                inputs=(make(name, (LENGTH,), torch.float32, seed), torch.tensor([seed], dtype=torch.int32)),
                seed=seed,
            )


def _exact(precision: str, plan: Plan) -> Iterator[ExactSample]:
    """Every bfloat16 number stays what it is, whatever the seed."""
    numbers = torch.from_numpy(np.arange(65_536, dtype=np.uint32) << 16).view(torch.int32).view(torch.float32)
    subnormal = (numbers.abs() < torch.finfo(torch.float32).tiny) & (numbers != 0.0)
    finite = torch.where(torch.isfinite(numbers) & ~subnormal, numbers, 1.0)
    for seed in plan.seeds:
        yield ExactSample(
            input="every bfloat16 number",
            shape=f"{LENGTH} values",
            inputs=(finite, torch.tensor([seed], dtype=torch.int32)),
            expected=(finite.to(torch.bfloat16),),
            seed=seed,
        )
    for name, mask in (("infinities and NaN", ~torch.isfinite(numbers)), ("subnormal numbers", subnormal)):
        values = torch.where(mask, numbers, 1.0)
        yield ExactSample(
            input=name,
            shape=f"{LENGTH} values",
            inputs=(values, torch.tensor([1], dtype=torch.int32)),
            expected=(values.to(torch.bfloat16),),
            special=True,
        )


def _bound(inputs: Tensors, arithmetic: Arithmetic) -> Tensors:
    """The distance between the two neighbours: no value moves farther than to the other one."""
    inner, outer = neighbours(inputs[0])
    return ((outer - inner).abs() + (arithmetic.smallest if arithmetic.flushes_subnormals else 0.0),)


def at_fraction(fraction: float) -> Tensor:
    """float32 [n]: 1 + `fraction` of a bfloat16's unit in the last place, everywhere."""
    return torch.full((LENGTH,), 1.0 + fraction * 2.0**-7)


def _statistics(
    implementation: Implementation, precision: str, plan: Plan, arithmetic: Arithmetic
) -> Iterator[Finding]:
    for seed in plan.seeds:
        yield from _of_one_seed(implementation, seed)


def _of_one_seed(implementation: Implementation, seed: int) -> Iterator[Finding]:
    def run(values: Tensor, number: int) -> Tensor:
        return implementation.forward((values, torch.tensor([number], dtype=torch.int32)))[0].double()

    first = 3 * seed
    for name in ("gaussian", "wide range"):
        values = make(name, (LENGTH,), torch.float32, seed, "stochastic")
        found = run(values, first)
        inner, outer = neighbours(values)
        strangers = int(((found != inner) & (found != outer)).sum())
        yield _finding(
            f"{name}: only the two neighbours",
            None if strangers else 0.0,
            f"{strangers} of {LENGTH} values are neither neighbour; seed {seed}",
            "rounded to a number that is no neighbour",
        )
        yield _unbiased(f"{name}: unbiased", values, found, seed)
    for fraction in FRACTIONS:
        values = at_fraction(fraction)
        yield _unbiased(f"at {fraction:g} of the way: unbiased", values, run(values, first), seed)
    yield from _of_the_bits(run, first, seed)


def _of_the_bits(run: object, first: int, seed: int) -> Iterator[Finding]:
    assert callable(run)
    values = at_fraction(0.25)
    found, again, other = run(values, first), run(values, first), run(values, first + 1)
    yield _finding(
        "the same seed repeats",
        0.0 if bool((found == again).all()) else None,
        f"seed {first} twice; seed {seed}",
        "random bits differ under one seed",
    )
    share = float((found != other).double().mean())
    # Independent bits agree unless exactly one of the two rounds up: 2 p (1 - p), within CONFIDENCE deviations.
    expected = 2 * 0.25 * 0.75
    deviation = math.sqrt(expected * (1.0 - expected) / LENGTH)
    yield _finding(
        "different seeds differ",
        abs(share - expected) / deviation / CONFIDENCE,
        f"{share:.4f} of values differ between two seeds, {expected:.4f} of independent ones; seed {seed}",
        "the same random bits at every step" if share == 0.0 else "random bits of two seeds are related",
    )
    up = (found > 1.0).double() - float((found > 1.0).double().mean())
    power = float(up.square().mean())
    lag = float((up[1:] * up[:-1]).mean()) / power if power > 0.0 else 0.0
    yield _finding(
        "neighbouring values independent",
        abs(lag) * math.sqrt(LENGTH) / CONFIDENCE,
        f"lag-1 correlation {lag:.4f}; seed {seed}",
        "random bits of neighbours are related",
    )


def _unbiased(name: str, values: Tensor, found: Tensor, seed: int) -> Finding:
    """z-test of the sum of rounding errors, in magnitude: rounding up has probability p, so variance p (1 - p) ulp^2.

    With n values z is standard normal to within what the central limit leaves, and beyond 6 once in 5e8.
    """
    inner, outer = neighbours(values)
    gap = (outer - inner).abs()
    inexact = gap > 0.0
    chance = ((values.double() - inner).abs() / gap)[inexact]
    up = ((found - inner).abs() / gap)[inexact]
    z = float((up - chance).sum() / (chance * (1.0 - chance)).sum().sqrt())
    deterministic = bool((up == (chance > 0.5)).all()) or bool((up == (chance >= 0.5)).all())
    if bool((up == 1.0).all()):
        looks_like = "always rounds up"
    elif deterministic:
        looks_like = "rounds to nearest"
    elif bool((up == 0.0).all()):
        looks_like = "always rounds down"
    else:
        looks_like = "too few random bits" if z < 0.0 else "biased upward"
    return _finding(name, abs(z) / CONFIDENCE, f"z = {z:.2f}, {float(up.mean()):.4f} up; seed {seed}", looks_like)


def _finding(name: str, ratio: float | None, where: str, looks_like: str) -> Finding:
    passes = ratio is not None and ratio <= 1.0
    return Finding(
        operator="stochastic rounding",
        direction="forward",
        input=name,
        tier="T3",
        verdict="pass" if passes else "fail",
        value=ratio,
        where=where,
        looks_like="" if passes else looks_like,
    )


ROUNDING: list[Operator] = [
    Operator(
        name="stochastic rounding",
        family="updates",
        function=round_stochastically,
        precisions=("bf16",),
        samples=_samples,
        oracle=lambda values, seed: values.double(),
        bound=_bound,
        exact=_exact,
        statistics=_statistics,
    )
]

ADDITIONS, LANES = 2048, 64


def detect_stochastic_rounding(backend: Backend) -> bool | None:
    """Whether the open `backend` rounds results to float16 at random: True, False, or None where this cannot tell.

    AWS's documented check ("Neuron rounding modes"): 2048 additions of 0.5 onto 1024 in half precision. 1024.5 lies
    half-way, and rounding to nearest even returns to 1024 every time; stochastic rounding goes up every second time
    and ends near 2048 (above that a unit in the last place is 2, of which 0.5 is a quarter). 64 lanes are counted at
    once. Every sum is waited for, so that no compiler can keep it in a wider format between additions. None where all
    lanes agree on anything but 1024, which some other rounding or a wide format does.
    """
    values = torch.full((LANES,), 1024.0, dtype=torch.float16).to(backend.device)
    half = torch.full((LANES,), 0.5, dtype=torch.float16).to(backend.device)
    for _ in range(ADDITIONS):
        values = values + half
        backend.materialize((values,))
    lanes = values.cpu().double()
    if bool((lanes == 1024.0).all()):
        return False
    # A share of one half of 2048 additions, within CONFIDENCE deviations of sqrt(2048) / 2, reaches this.
    least = 1024.0 + ADDITIONS / 2 - CONFIDENCE * math.sqrt(ADDITIONS) / 2
    different = bool((lanes != lanes[0]).any())
    return True if different and bool((lanes >= least).all()) and bool((lanes <= 2.0 * 1024.0 + 512.0).all()) else None


def nearest(values: Tensor) -> Tensor:
    """float32 values rounded to bfloat16 to nearest even, on the host."""
    return rounded(values.double().numpy(), torch.bfloat16)
