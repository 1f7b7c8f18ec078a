"""Whether a set of rounds is a measurement at all: the rules that withhold or mark a speed.

Two kinds of fault. One makes the numbers meaningless, and no speed is stored (`CaseError`). The other is a fact
about rounds that were honestly timed, such as a compile inside a round: the raw rounds are kept as evidence under a
status that no comparison accepts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trnbench.records.drift import drift
from trnbench.records.measured import fell_back_to_eager
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trnbench.case import Case
    from trnbench.records.schema import Round

CLOCK_TOLERANCE = 1e-6
"""Relative and absolute (seconds) slack for the sum of many floating-point differences of one clock."""


def check_seconds(seconds: Sequence[float], wall_seconds: float) -> None:
    """Refuse rounds that no clock can have produced.

    `wall_seconds` spans the whole timed loop, untimed setup included, on the same clock. Raises `CaseError`
    (`INVALID`) for no usable round, a round that is not positive and finite, or a sum above the wall time.
    """
    bad = [index for index, value in enumerate(seconds, start=1) if not (math.isfinite(value) and value > 0)]
    if len(bad) == len(seconds):
        raise CaseError(Status.INVALID, f"no valid samples: none of {len(seconds)} rounds has a positive, finite time")
    if bad:
        raise CaseError(
            Status.INVALID, f"inconsistent timing: round {bad[0]} of {len(seconds)} took {seconds[bad[0] - 1]} s"
        )
    total = math.fsum(seconds)
    if total > wall_seconds * (1 + CLOCK_TOLERANCE) + CLOCK_TOLERANCE:
        raise CaseError(
            Status.INVALID,
            f"inconsistent timing: the rounds add up to {total:.6g} s, the whole loop took {wall_seconds:.6g} s",
        )


def check_steps(executed: int, warmup: int, rounds: int, noted: int) -> None:
    """Refuse a loop that ran another number of steps than it stores. Raises `CaseError` (`INVALID`)."""
    if executed != warmup + rounds or noted != rounds:
        raise CaseError(
            Status.INVALID,
            f"{executed} steps ran, {warmup} warm-up steps and {rounds} rounds were timed and {noted} rounds noted; "
            "they must agree",
        )


def check_loss(loss: float, step: int, where: str) -> None:
    """Refuse a loss that is not a finite number. `step` counts from 1 over warm-up and rounds together."""
    if not math.isfinite(loss):
        raise CaseError(Status.INVALID, f"the loss is {loss} in {where}: first bad step {step}, counted from 1")


def check_placement(found: Sequence[str], asked: str) -> None:
    """Refuse a step whose outputs are missing or lie elsewhere than on the backend's device (torch device types)."""
    if not found:
        raise CaseError(Status.INVALID, "a step returned no output, so nothing shows that it ran")
    elsewhere = sorted({name for name in found if name != asked})
    if elsewhere:
        raise CaseError(Status.FALLBACK, f"outputs are on {', '.join(elsewhere)}, the backend's device is {asked}")


def check_state(case: Case, start: str, warm: str, end: str) -> None:
    """Refuse steps that left no trace in what they should have changed. Raises `CaseError` (`INVALID`).

    Fingerprints are of the state before the first step, after warm-up and after the last round. Only training moves
    on with every step: decoding rewinds its cache and prefill computes the same logits again.
    """
    changed = "parameters" if case.phase == "train_step" else "outputs"
    if start == end:
        raise CaseError(Status.INVALID, f"the {changed} are the same after the last step as before the first")
    if case.phase == "train_step" and warm == end:
        raise CaseError(Status.INVALID, f"the {changed} did not change during the timed rounds")


def faults_in_rounds(
    case: Case, rounds: Sequence[Round], fallbacks: Mapping[str, int], compiled_graphs: int | None, cache: str | None
) -> tuple[Status, list[str]]:
    """What happened in the timed rounds that makes them no speed of this case, with the status that names it.

    `fallbacks` maps operators to how often each left the device during the rounds. `compiled_graphs` counts the
    graphs compiled before the rounds; None where the backend cannot count them.
    """
    status, reasons = Status.OK, []
    recompiled = [index for index, item in enumerate(rounds, start=1) if item.compiles]
    if recompiled:
        total = sum(item.compiles or 0 for item in rounds)
        rounds_hit = f"{len(recompiled)} of {len(rounds)} timed rounds, first in round {recompiled[0]}"
        reasons.append(f"recompiled: {total} compiles in {rounds_hit}")
        status = Status.INVALID
    sequences = [item.items["sequences"] for item in rounds if "sequences" in item.items]
    if sequences and case.batch not in sequences:
        reasons.append(f"effective batch {sequences[0]}: no round processed the {case.batch} sequences the case names")
        status = Status.INVALID
    if any(item.fallbacks for item in rounds):
        named = ", ".join(f"{operator} x{count}" for operator, count in sorted(fallbacks.items()) if count)
        reasons.append(f"operators ran on the host in timed rounds: {named}")
        status = Status.FALLBACK
    fell_back = fell_back_to_eager(case.mode, compiled_graphs, cache)
    if fell_back:
        reasons.append(fell_back)
        status = Status.FALLBACK
    return status, reasons


def drift_warning(seconds: Sequence[float]) -> str:
    """One sentence with both halves where the rounds drift, else empty."""
    found = drift(seconds)
    if found is None:
        return ""
    return (
        f"drift: the median round went from {found.first_half_seconds:.4g} s in the first half to "
        f"{found.second_half_seconds:.4g} s in the second ({found.change * 100:+.0f} %)"
    )
