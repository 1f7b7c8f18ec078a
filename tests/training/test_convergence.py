"""The convergence check: what it lets pass, what it catches, and how often it errs, by simulation."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from log_samples import case
from reference_samples import BUDGET, EVERY, SPREAD, TARGET, curve, reference, run_of, trained

from trnbench.records.schema import Evaluation
from trnbench.training import convergence
from trnbench.training.convergence import (
    LEVEL,
    NOT_FASTER,
    NOT_SLOWER,
    TOO_FAST,
    TOO_SLOW,
    allowed_shift,
    convergence_checks,
    judge,
    limits,
)
from trnbench.training.points import samples_to_target
from trnbench.training.reference import write_reference

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trnbench.records.schema import Check, TrainingRun
    from trnbench.training.reference import Reference

REFERENCE = reference(points=16, runs=8)
FEW = reference(points=6, runs=3)
counts = st.floats(200, 4000)


def verdicts(checks: list[Check]) -> dict[str, str]:
    assert [check.check for check in checks] == [NOT_FASTER, NOT_SLOWER]
    assert {check.level for check in checks} == {"learning"}
    return {check.check: check.verdict for check in checks}


def runs_at(factor: float, count: int = 3) -> list[TrainingRun]:
    """Runs that scatter as the reference does, around `factor` times its mean."""
    shares = np.linspace(-1, 1, count)
    typical = REFERENCE.typical * factor
    return [
        trained(seed, typical * math.exp(REFERENCE.spread * share), budget=20_000)
        for seed, share in enumerate(shares, 100)
    ]


# Points


@given(counts, st.integers(16, 400))
def test_a_straight_line_is_read_exactly(samples: float, every: int) -> None:
    found = samples_to_target(curve(samples, every=every, budget=5000), TARGET)
    if samples > every:
        assert found.bound == ""
        assert found.samples == pytest.approx(samples)
    else:
        assert found.bound == "upper"
        assert found.samples >= samples


@given(st.lists(st.floats(1.0, 4.0), min_size=1, max_size=12))
def test_a_point_lies_in_the_interval_in_which_the_target_was_met(losses: list[float]) -> None:
    evaluations = [Evaluation(samples=EVERY * n, seconds=n, loss=loss) for n, loss in enumerate(losses, 1)]
    found = samples_to_target(evaluations, TARGET)
    first = next((n for n, loss in enumerate(losses, 1) if loss <= TARGET), None)
    if first is None:
        assert (found.samples, found.bound) == (EVERY * len(losses), "lower")
    elif first == 1:
        assert (found.samples, found.bound) == (EVERY, "upper")
    else:
        assert EVERY * (first - 1) <= found.samples <= EVERY * first
        assert found.bound == ""


def test_the_evaluation_before_training_counts_as_one() -> None:
    evaluations = [Evaluation(samples=0, seconds=0, loss=4.0), Evaluation(samples=160, seconds=1, loss=1.0)]
    assert samples_to_target(evaluations, 2.0).samples == pytest.approx(160 * 2 / 3)
    assert samples_to_target(evaluations, 4.0).samples == 1.0
    with pytest.raises(ValueError, match="without evaluations"):
        samples_to_target([], 2.0)


# Verdicts


def test_runs_like_the_reference_pass() -> None:
    checks = judge(REFERENCE, runs_at(1.0))
    assert verdicts(checks) == {NOT_FASTER: "pass", NOT_SLOWER: "pass"}
    assert all(0 <= check.value <= 1 and check.limit == 1 for check in checks)


@pytest.mark.parametrize(
    ("factor", "caught", "looks_like"),
    [
        (0.7, NOT_FASTER, TOO_FAST),
        (0.8, NOT_FASTER, TOO_FAST),
        (1.2, NOT_SLOWER, TOO_SLOW),
        (1.3, NOT_SLOWER, TOO_SLOW),
    ],
)
@pytest.mark.parametrize("count", [3, 10])
def test_mutants_are_caught_and_named(factor: float, caught: str, looks_like: str, count: int) -> None:
    checks = judge(REFERENCE, runs_at(factor, count))
    other = NOT_SLOWER if caught == NOT_FASTER else NOT_FASTER
    assert verdicts(checks) == {caught: "fail", other: "pass"}
    assert {check.check: check.looks_like for check in checks} == {caught: looks_like, other: ""}
    (bad,) = [check for check in checks if check.verdict == "fail"]
    assert bad.value > 1
    assert "reference 1600" in bad.where
    assert "16 runs in fp32 on a CPU, torch 2.13.0, 2026-11-30" in bad.reference


def test_few_points_let_more_pass() -> None:
    # What 16 points find with 3 runs is within what 6 points can tell from chance.
    for factor, found in ((0.7, NOT_FASTER), (0.8, ""), (1.2, ""), (1.3, "")):
        verdict = verdicts(judge(FEW, runs_at(factor)))
        assert [name for name, one in verdict.items() if one == "fail"] == ([found] if found else [])


@given(st.floats(0.5, 2.0))
def test_the_limits_in_samples_are_where_the_verdict_turns(factor: float) -> None:
    bounds = limits(REFERENCE, 3)
    mean = REFERENCE.typical * factor
    found = verdicts(judge(REFERENCE, runs_at(factor)))
    if min(abs(mean / bounds.fewest - 1), abs(mean / bounds.most - 1)) > 1e-9:
        assert (found[NOT_FASTER] == "fail") == (mean < bounds.fewest)
        assert (found[NOT_SLOWER] == "fail") == (mean > bounds.most)


@pytest.mark.parametrize("made", [FEW, REFERENCE], ids=["6 points", "16 points"])
def test_the_limit_is_a_prediction_limit_of_a_mean(made: Reference) -> None:
    logarithms = [math.log(point.samples_to_target) for point in made.points]
    points = len(logarithms)
    quantile = scipy.stats.t.ppf(0.999, points - 1)
    assert allowed_shift(made, 3) == pytest.approx(
        quantile * statistics.stdev(logarithms) * math.sqrt(1 / points + 1 / 3)
    )
    # More runs, a closer limit, down to what the reference itself is uncertain by.
    shifts = [allowed_shift(made, count) for count in (1, 3, 10, 1000)]
    assert shifts == sorted(shifts, reverse=True)
    assert shifts[-1] > quantile * made.spread / math.sqrt(points)


def test_a_run_that_missed_the_target_counts_with_what_it_was_given() -> None:
    missed = trained(9, 10 * BUDGET)
    assert not missed.converged
    checks = judge(REFERENCE, [*runs_at(1.0, 2), missed])
    assert verdicts(checks)[NOT_SLOWER] == "fail"
    assert "1 of 3 runs never reached the target" in checks[1].where


def test_two_that_missed_fail_however_short_they_were() -> None:
    # Given so little that the lower bounds look fast.
    missed = [trained(seed, BUDGET, budget=EVERY * 9) for seed in (7, 8)]
    checks = judge(REFERENCE, [*runs_at(1.0, 1), *missed])
    assert checks[1].value <= 1
    assert verdicts(checks)[NOT_SLOWER] == "fail"
    assert checks[1].looks_like == TOO_SLOW


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_judged_before_anything(bad: float) -> None:
    evaluations = [*curve(1600)[:3], Evaluation(samples=EVERY * 4, seconds=1, loss=bad), *curve(1600)[4:]]
    checks = judge(REFERENCE, [*runs_at(1.0, 2), run_of(9, evaluations)])
    assert verdicts(checks) == {NOT_FASTER: "non-finite", NOT_SLOWER: "non-finite"}
    assert {check.value for check in checks} == {None}
    assert "first bad evaluation after 640 samples, of the run with seed 9" in checks[0].where


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ([], "there are no runs"),
        ([run_of(7, [])], "the run with seed 7 was never evaluated"),
        ([run_of(7, curve(1600), target=2.1)], "the run with seed 7 has target 2.1, the reference 2"),
    ],
)
def test_what_cannot_be_judged_is_not(runs: list[TrainingRun], reason: str) -> None:
    checks = judge(REFERENCE, runs)
    assert verdicts(checks) == {NOT_FASTER: "not checked", NOT_SLOWER: "not checked"}
    assert {check.where for check in checks} == {reason}
    assert {(check.value, check.limit) for check in checks} == {(None, None)}


# From a folder


def test_points_are_found_for_any_precision_and_mode(tmp_path: Path) -> None:
    write_reference(tmp_path, REFERENCE)
    for changes in ({}, {"precision": "fp16", "mode": "compiled"}, {"micro_batch": 4}, {"suite": "another"}):
        changed = msgspec.structs.replace(case(), **changes)
        assert verdicts(convergence_checks(changed, runs_at(0.7), tmp_path))[NOT_FASTER] == "fail"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "fedcba9876543210"}, "are of version 0123456789abcdef, the case is of version fedcba9876543210"),
        ({"batch": 32, "micro_batch": 32}, "there are no reference convergence points nano-pretrain-b32-s32.json"),
        ({"workload": "other"}, "there are no reference convergence points other-pretrain-b16-s32.json"),
    ],
)
def test_points_of_another_training_judge_nothing(changes: dict[str, object], reason: str, tmp_path: Path) -> None:
    write_reference(tmp_path, REFERENCE)
    checks = convergence_checks(msgspec.structs.replace(case(), **changes), runs_at(0.7), tmp_path)
    assert verdicts(checks) == {NOT_FASTER: "not checked", NOT_SLOWER: "not checked"}
    assert reason in checks[0].where


def test_a_broken_file_costs_no_measurement(tmp_path: Path) -> None:
    path = write_reference(tmp_path, REFERENCE)
    path.write_text(path.read_text("utf-8").replace('"reference_version": 1', '"reference_version": 2'), "utf-8")
    checks = convergence_checks(case(), runs_at(1.0), tmp_path)
    assert verdicts(checks) == {NOT_FASTER: "not checked", NOT_SLOWER: "not checked"}
    assert "format 2; this is format 1" in checks[0].where
    assert "no folder" in convergence_checks(case(), runs_at(1.0))[0].where


# Error rates, on the whole path from loss curves to verdicts

SETS = 2000
RULES_LEVEL = 0.05


def rates(factor: float, spread: float, made: Reference | None = None, *, points: int = 16) -> tuple[float, float]:
    """Shares of `SETS` simulated sets of 3 runs that are found too fast and too slow.

    All meet the reference `made`; without it every set has one of its own, drawn from the same population.
    """
    generator = np.random.default_rng(2026)
    fast = slow = 0
    for _ in range(SETS):
        against = made or _drawn(np.exp(generator.normal(math.log(1600), spread, points)))
        needed = np.exp(generator.normal(math.log(1600 * factor), spread, 3))
        found = verdicts(judge(against, [trained(seed, samples) for seed, samples in enumerate(needed)]))
        fast += found[NOT_FASTER] == "fail"
        slow += found[NOT_SLOWER] == "fail"
    return fast / SETS, slow / SETS


def _drawn(samples: Sequence[float]) -> Reference:
    """A reference of runs that need so many samples, read as those of a set are."""
    points = [
        msgspec.structs.replace(
            REFERENCE.points[0], seed=seed, samples_to_target=samples_to_target(curve(needed), TARGET).samples
        )
        for seed, needed in enumerate(samples, 1)
    ]
    return msgspec.structs.replace(REFERENCE, points=points)


def within(share: float, expected: float) -> bool:
    """Inside four standard errors of a binomial share."""
    return abs(share - expected) <= 4 * math.sqrt(expected * (1 - expected) / SETS)


@pytest.mark.parametrize("level", [RULES_LEVEL, LEVEL])
@pytest.mark.parametrize("points", [6, 16])
def test_false_alarms_over_all_references_are_the_level(
    level: float, points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2000 sets can tell the rules' level well; of our own they only tell that it is not much higher.
    monkeypatch.setattr(convergence, "LEVEL", level)
    fast, slow = rates(1.0, SPREAD, points=points)
    assert within(fast, level)
    assert within(slow, level)


@pytest.mark.parametrize(("made", "rate"), [(FEW, 0.0068), (REFERENCE, 0.0280)], ids=["6 points", "16 points"])
def test_false_alarms_against_a_reference_with_the_true_spread(
    made: Reference, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At the rules' level: the limit allows for a reference whose spread came out too small.
    monkeypatch.setattr(convergence, "LEVEL", RULES_LEVEL)
    points = len(made.points)
    expected = scipy.stats.norm.cdf(-scipy.stats.t.ppf(0.95, points - 1) * math.sqrt(1 + 3 / points))
    assert expected == pytest.approx(rate, abs=1e-4)
    fast, slow = rates(1.0, SPREAD, made)
    assert within(fast, expected)
    assert within(slow, expected)


@pytest.mark.parametrize(
    ("factor", "side", "power"), [(0.7, 0, 0.99999), (0.8, 0, 0.938), (1.2, 1, 0.762), (1.3, 1, 0.990)]
)
def test_power_over_all_references_of_16_points(factor: float, side: int, power: float) -> None:
    # The mean's distance over its estimated error follows a noncentral t distribution.
    error = math.sqrt(1 / 16 + 1 / 3)
    expected = scipy.stats.nct.sf(scipy.stats.t.ppf(1 - LEVEL, 15), 15, abs(math.log(factor)) / (SPREAD * error))
    assert expected == pytest.approx(power, abs=1e-3)
    found = rates(factor, SPREAD)
    assert within(found[side], expected)
    assert found[1 - side] == 0.0
