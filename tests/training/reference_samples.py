"""Reference points of known mean and spread, and runs of known speed, for the tests."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from log_samples import case

from trnbench.records.schema import Evaluation, TrainingRun
from trnbench.training.reference import REFERENCE_VERSION, Reference, ReferencePoint

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERY, BUDGET = 160, 4800
TARGET, FLOOR = 2.0, 1.5
SPREAD = 0.064
"""That of the first six points of `nano`."""


def shares(points: int) -> list[float]:
    """Where so many draws of a normal distribution lie on average (Blom's approximation), scaled to spread 1."""
    scores = [statistics.NormalDist().inv_cdf((number - 0.375) / (points + 0.25)) for number in range(1, points + 1)]
    return [score / statistics.stdev(scores) for score in scores]


def curve(samples: float, *, budget: int = BUDGET, every: int = EVERY) -> list[Evaluation]:
    """Evaluations of a loss that falls along a straight line through the target after `samples`, then stops."""
    found = []
    for seen in range(every, budget + 1, every):
        loss = TARGET + 0.5 * (1 - seen / samples)
        found.append(Evaluation(samples=seen, seconds=seen / 100, loss=loss))
        if loss <= TARGET:
            break
    return found


def reference(typical: float = 1600.0, spread: float = SPREAD, runs: int = 3, points: int = 6) -> Reference:
    needed = [typical * math.exp(spread * share) for share in shares(points)]
    return Reference(
        reference_version=REFERENCE_VERSION,
        workload="nano",
        phase="pretrain",
        batch=16,
        micro_batch=16,
        sequence=32,
        version=case().version,
        runs=runs,
        target=TARGET,
        floor=FLOOR,
        floor_reason="",
        precision="fp32",
        backend="cpu",
        mode="eager",
        threads=1,
        made_at="2026-11-30T12:00:00.000000Z",
        command="trnbench reference --make --workload nano --phase pretrain",
        versions={"torch": "2.13.0"},
        cpu={"model": "A CPU"},
        learning={"opt_name": "adamw"},
        points=[
            ReferencePoint(seed=seed, samples_to_target=round(samples, 3), evaluations=curve(samples))
            for seed, samples in enumerate(needed, 1)
        ],
    )


def trained(seed: int, samples: float, **curve_options: int) -> TrainingRun:
    """A run that needs so many samples; one that needs more than its budget does not converge."""
    return run_of(seed, curve(samples, **curve_options))


def run_of(seed: int, evaluations: Sequence[Evaluation], target: float = TARGET) -> TrainingRun:
    return TrainingRun(
        seed=seed,
        converged=evaluations[-1].loss <= target if evaluations else False,
        scored=True,
        resumed_at=[],
        samples=evaluations[-1].samples if evaluations else 0,
        tokens=0,
        seconds=1.0,
        init_seconds=0.1,
        target=target,
        floor=FLOOR,
        evaluations=list(evaluations),
        losses=[],
        loss_every=1,
        learning={},
    )
