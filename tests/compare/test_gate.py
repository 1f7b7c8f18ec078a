"""The regression gate: its outcomes, its exit codes, and that it is never green by omission."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from factory import H100, make_case, make_check, make_device, make_environment, make_record, make_runs

from trnbench.compare.gate import case_name, gate, load_aliases
from trnbench.status import ExitCode, NoBaseline, Status, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.records.schema import Record

STEADY = [1000.0, 1010.0, 990.0, 1005.0]


def outcomes(report) -> dict[str, str]:
    return {entry.name: entry.outcome for entry in report.entries}


def test_the_same_speed_is_green() -> None:
    """The ordinary night: compared, within the threshold, exit 0."""
    report = gate(make_runs(STEADY, "old"), make_runs(STEADY, "new"))
    (entry,) = report.entries
    assert (entry.outcome, entry.metric, entry.unit) == ("ok", "tokens_per_second", "token/s")
    assert report.exit_code is ExitCode.CLEAN


@pytest.mark.parametrize(
    ("factor", "outcome", "code"),
    [
        (0.5, "regressed", ExitCode.FAILED),
        (0.97, "ok", ExitCode.CLEAN),
        (1.03, "ok", ExitCode.CLEAN),
        (2.0, "improved", ExitCode.CLEAN),
    ],
)
def test_the_interval_must_lie_beyond_the_threshold(factor: float, outcome: str, code: ExitCode) -> None:
    """D12: half the speed regressed; 3 % less, below the 5 % threshold, did not."""
    report = gate(make_runs(STEADY, "old"), make_runs([factor * value for value in STEADY], "new"))
    assert report.entries[0].outcome == outcome
    assert report.exit_code is code


def test_a_wide_spread_is_no_regression() -> None:
    """D12: 10 % less by the mean, but with a run-to-run spread of 15 % the interval reaches the threshold."""
    noisy = [800.0, 1000.0, 1200.0, 950.0]
    report = gate(make_runs(noisy, "old"), make_runs([0.9 * value for value in noisy], "new"))
    assert report.entries[0].outcome == "ok"


def test_identical_code_rarely_fails_the_gate() -> None:
    """D12: 6 runs a side with a 15 % run offset: fewer than 5 % of unchanged pairs turn the gate red."""
    generator = np.random.default_rng(3)
    red = 0
    for _ in range(200):
        old, new = (list(1000 * generator.lognormal(0, 0.15, 6)) for _ in range(2))
        red += gate(make_runs(old, "old"), make_runs(new, "new")).exit_code is not ExitCode.CLEAN
    assert red / 200 < 0.05


def test_an_empty_baseline_is_its_own_answer() -> None:
    """D13: no comparable baseline is exit 5, neither 0 nor 1."""
    with pytest.raises(NoBaseline, match="no comparable baseline: it holds no record") as caught:
        gate([], make_runs(STEADY))
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    "other",
    [
        {"device": make_device(**H100)},
        {"environment": make_environment(cpu={"model": "Other CPU", "threads": 2})},
        {"environment": make_environment(cpu={"model": "Example CPU 1", "isa": "avx2 avx512f", "threads": 1})},
    ],
)
def test_a_baseline_of_another_machine_is_none(other: dict) -> None:
    """D13: another chip, CPU or thread count is no baseline, with the same exit code and its own sentence."""
    with pytest.raises(NoBaseline, match="no comparable baseline: the baseline is of another machine"):
        gate(make_runs(STEADY, "old", **other), make_runs(STEADY, "new"))


def test_another_stack_on_the_same_machine_is_a_baseline() -> None:
    """A new compiler is what the gate is there to judge."""
    newer = make_environment(versions={"torch": "2.14.0"})
    assert gate(make_runs(STEADY, "old"), make_runs(STEADY, "new", environment=newer)).exit_code is ExitCode.CLEAN


def test_another_workload_version_is_no_baseline() -> None:
    """D13: once the workload's code changed, old numbers are of other work."""
    changed = make_case(version="fedcba9876543210")
    with pytest.raises(NoBaseline, match="workload changed"):
        gate(make_runs(STEADY, "old"), make_runs(STEADY, "new", case=changed))


def test_too_few_runs_are_no_baseline() -> None:
    """D12 and D13: two runs a side decide nothing, and the gate is not green."""
    with pytest.raises(NoBaseline, match="not enough runs: 2 of the baseline and 4 now, 3 needed each"):
        gate(make_runs(STEADY[:2], "old"), make_runs(STEADY, "new"))


def test_one_undecided_case_among_good_ones_is_not_green() -> None:
    """D13: part of the baseline could not be compared, so the gate says 5 although the rest is ok."""
    wide = make_case(batch=16)
    old = [*make_runs(STEADY, "old"), *make_runs(STEADY[:1], "old", case=wide, tokens=2000)]
    # Runs of the wide case process its whole batch.
    new = [*make_runs(STEADY, "new"), make_record("new-0", case=wide, items={"tokens": 2000, "sequences": 16})]
    old[-1] = make_record("old-0", case=wide, items={"tokens": 2000, "sequences": 16})
    report = gate(old, new)
    assert sorted(outcomes(report).values()) == ["not enough runs", "ok"]
    assert report.exit_code is ExitCode.NO_BASELINE


def test_a_renamed_case_is_missing_and_new() -> None:
    """D14: after a rename the old name is missing, the new one is new, and the gate is not green."""
    old_case, new_case = make_case(workload="step"), make_case(workload="train")
    old, new = make_runs(STEADY, "old", case=old_case), make_runs(STEADY, "new", case=new_case)
    report = gate(old, new)
    assert outcomes(report) == {case_name(old_case): "missing", case_name(new_case): "new"}
    assert report.exit_code is ExitCode.FAILED


def test_an_alias_joins_histories(tmp_path: Path) -> None:
    """D14: with the alias the renamed case is compared with its history."""
    old_case, new_case = make_case(workload="step"), make_case(workload="train")
    path = tmp_path / "aliases.toml"
    path.write_text(f'[aliases]\n"{case_name(old_case)}" = "{case_name(new_case)}"\n', encoding="utf-8")
    report = gate(make_runs(STEADY, "old", case=old_case), make_runs(STEADY, "new", case=new_case), load_aliases(path))
    assert outcomes(report) == {case_name(new_case): "ok"}
    assert report.exit_code is ExitCode.CLEAN


def test_a_dropped_case_is_not_green() -> None:
    """D14: the remaining case is fine, the dropped one still turns the gate red."""
    dropped = make_case(workload="gone")
    old = [*make_runs(STEADY, "old"), *make_runs(STEADY, "old", case=dropped)]
    report = gate(old, make_runs(STEADY, "new"))
    assert outcomes(report)[case_name(dropped)] == "missing"
    assert report.exit_code is ExitCode.FAILED


@pytest.mark.parametrize(
    "broken",
    [
        {"status": Status.OOM, "reason": "out of memory"},
        {"conformance": [make_check("fail")]},
        {"conformance": []},
    ],
)
def test_one_bad_run_fails_its_case(broken: dict) -> None:
    """D20: a case that ran out of memory or lost its conformance in one run failed, whatever its other runs' speed."""
    new = [make_record("bad", started_at="2026-11-01T08:00:00Z", **broken), *make_runs(STEADY, "new")]
    report = gate(make_runs(STEADY, "old"), new)
    assert report.entries[0].outcome == "failed"
    assert "run bad" in report.entries[0].reason
    assert report.exit_code is ExitCode.FAILED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[aliases]\n"a" = "b"\n"a" = "c"\n', "is not TOML"),
        ('[aliases]\n"a" = 1\n', "alias of 'a' is 1"),
        ('[alias]\n"a" = "b"\n', r"exactly one table, \[aliases\]"),
        ('"a" = "b"\n', r"exactly one table, \[aliases\]"),
    ],
)
def test_a_wrong_alias_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    """H1: a name given twice, a value of the wrong type or another table is an error that names the file."""
    path = tmp_path / "aliases.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        load_aliases(path)


def test_an_alias_may_not_merge_two_cases() -> None:
    """D14: two histories under one name would be an unlabelled blend."""
    one, two = make_case(workload="one"), make_case(workload="two")
    old = [*make_runs(STEADY, "old", case=one), *make_runs(STEADY, "old", case=two)]
    with pytest.raises(UsageError, match="aliases join"):
        gate(old, make_runs(STEADY, "new", case=two), {case_name(one): case_name(two)})


@pytest.mark.parametrize("threshold", [-0.1, 1.0, 5.0])
def test_a_threshold_is_a_fraction(threshold: float) -> None:
    """5 meant as per cent would switch the gate off."""
    with pytest.raises(UsageError, match="gate threshold"):
        gate(make_runs(STEADY), make_runs(STEADY), threshold=threshold)


def test_a_case_that_neither_side_can_run_is_no_failure() -> None:
    """A precision that the device lacks stays missing every night: it is told, and the gate stays green."""
    lacking = make_case(precision="tf32")

    def night(run: str) -> list[Record]:
        refused = make_record(run, case=lacking, status=Status.UNSUPPORTED, reason="no tf32 here")
        return [*make_runs(STEADY, prefix=run), refused]

    report = gate(night("before"), night("now"))
    assert report.exit_code is ExitCode.CLEAN
    assert [entry.outcome for entry in report.entries if "tf32" in entry.name] == ["not run"]
    lost = [record for record in night("before") if record.case != lacking]
    lost += make_runs(STEADY, prefix="before", case=lacking)
    assert gate(lost, night("now")).exit_code is ExitCode.FAILED
