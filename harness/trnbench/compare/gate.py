"""The regression gate: current records against a baseline of the same cases on the same machine.

Green only if every case of the baseline was compared and none got worse; a case that neither side can run does not
count. A missing case, a case without a comparable baseline and a case with too few runs are each their own answer, so
nobody learns to ignore the gate.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Literal

import msgspec

from trnbench.compare import statistics
from trnbench.compare.admission import refusal
from trnbench.compare.keys import case_order, device_key
from trnbench.compare.metrics import METRICS, metric_values, preferred_metrics
from trnbench.compare.model import Ratio
from trnbench.compare.pairing import newest_attempts
from trnbench.status import ExitCode, NoBaseline, Status, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trnbench.case import Case
    from trnbench.records.schema import Record

THRESHOLD = 0.05
"""Relative loss of throughput that counts as a regression once the interval lies wholly beyond it."""

Outcome = Literal[
    "ok", "improved", "regressed", "failed", "missing", "new", "not comparable", "not enough runs", "not run"
]

_RED: frozenset[Outcome] = frozenset({"regressed", "failed", "missing"})
_UNDECIDED: frozenset[Outcome] = frozenset({"not comparable", "not enough runs"})


class GateEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate says about one case. `ratio` is current over baseline in `metric`, whose unit is in `unit`."""

    name: str
    outcome: Outcome
    reason: str
    metric: str | None = None
    unit: str | None = None
    baseline_value: float | None = None
    current_value: float | None = None
    ratio: Ratio | None = None


class GateReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every case of baseline and current, in a fixed order, with the exit code that the gate returns."""

    threshold: float
    entries: list[GateEntry]

    @property
    def exit_code(self) -> ExitCode:
        """FAILED for a regressed, failed or missing case; NO_BASELINE where one could not be decided; else CLEAN."""
        outcomes = {entry.outcome for entry in self.entries}
        if outcomes & _RED:
            return ExitCode.FAILED
        compared = outcomes & {"ok", "improved"}
        return ExitCode.NO_BASELINE if outcomes & _UNDECIDED or not compared else ExitCode.CLEAN


def case_name(case: Case) -> str:
    """How the gate and its alias file call a case: suite and id, without the workload's version."""
    return f"{case.suite}/{case.id}"


def load_aliases(path: Path) -> dict[str, str]:
    """Old case name to new one, from a TOML file with one table `[aliases]`.

    Raises `UsageError` naming the file and what is wrong: TOML that does not parse (a name given twice included),
    another table, or a value that is not text.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    if set(data) != {"aliases"} or not isinstance(data["aliases"], dict):
        raise UsageError(f'{path} must hold exactly one table, [aliases], with lines "old name" = "new name"')
    for old, new in data["aliases"].items():
        if not isinstance(new, str):
            raise UsageError(f"{path}: alias of {old!r} is {new!r}; it must be the new name as text")
    return dict(data["aliases"])


def gate(
    baseline: Sequence[Record],
    current: Sequence[Record],
    aliases: Mapping[str, str] | None = None,
    threshold: float = THRESHOLD,
) -> GateReport:
    """Judge every case of `current` against `baseline`; `aliases` maps old case names to new ones.

    Cases that are only checked have no speed, and so no part in the gate: their own run says whether they conform.
    Raises `NoBaseline` where no case can be compared at all: an empty baseline, or one of another machine. Raises
    `UsageError` for a threshold outside 0 to 1, or an alias that joins two cases of the baseline.
    """
    if not 0 <= threshold < 1:
        raise UsageError(f"gate threshold is {threshold}; it must be at least 0 and below 1")
    baseline, current = (
        [record for record in records if not record.case.checks_only] for records in (baseline, current)
    )
    if not baseline:
        raise NoBaseline("no comparable baseline: it holds no record of a measured case")
    before, now = _by_name(baseline, aliases or {}), _by_name(current, {})
    names = sorted({*before, *now}, key=lambda name: case_order((now.get(name) or before[name])[0].case))
    report = GateReport(
        threshold=threshold,
        entries=[_judge(name, before.get(name, []), now.get(name, []), threshold) for name in names],
    )
    outcomes = {entry.outcome for entry in report.entries}
    if outcomes <= {"not comparable", "not enough runs"}:
        reasons = sorted({entry.reason for entry in report.entries})
        raise NoBaseline(f"no comparable baseline: {'; '.join(reasons)}")
    return report


def _by_name(records: Sequence[Record], aliases: Mapping[str, str]) -> dict[str, list[Record]]:
    named: dict[str, list[Record]] = {}
    called: dict[str, str] = {}
    for record in records:
        old = case_name(record.case)
        name = aliases.get(old, old)
        if called.setdefault(name, old) != old:
            raise UsageError(f"aliases join {called[name]!r} and {old!r} of the baseline into one case {name!r}")
        named.setdefault(name, []).append(record)
    return named


def _judge(name: str, before: list[Record], now: list[Record], threshold: float) -> GateEntry:
    if not now:
        return GateEntry(name=name, outcome="missing", reason="in the baseline, but not among the current records")
    if not before:
        return GateEntry(name=name, outcome="new", reason="not in the baseline")
    if (status := _never_run(now)) is not None and _never_run(before) == status:
        return GateEntry(
            name=name, outcome="not run", reason=f"{status} in the baseline as it is now: {now[-1].reason}"
        )
    runs = [run.record for run in newest_attempts(now)[0]]
    refused = [f"run {record.run_id}: {found.reason}" for record in runs if (found := refusal(record)) is not None]
    if refused:
        return GateEntry(name=name, outcome="failed", reason="; ".join(refused))
    newest = runs[-1]
    comparable, why_not = _comparable(before, newest)
    if not comparable:
        return GateEntry(name=name, outcome="not comparable", reason=why_not)
    return _judge_speed(name, comparable, _comparable(now, newest)[0], threshold)


def _never_run(records: list[Record]) -> Status | None:
    """The status that all records share where it says that the device cannot run the case; None otherwise."""
    statuses = {record.status for record in records}
    return statuses.pop() if len(statuses) == 1 and statuses <= {Status.UNSUPPORTED, Status.SKIPPED} else None


def _comparable(records: list[Record], like: Record) -> tuple[list[Record], str]:
    """Records of the same machine and workload version as `like`, or why there are none."""
    same_machine = [record for record in records if device_key(record) == device_key(like)]
    if not same_machine:
        return [], "the baseline is of another machine"
    same_work = [record for record in same_machine if record.case.version == like.case.version]
    if not same_work:
        return [], "the workload changed since the baseline (another workload version)"
    return same_work, ""


def _judge_speed(name: str, before: list[Record], now: list[Record], threshold: float) -> GateEntry:
    runs = [[run.record for run in newest_attempts(records)[0]] for records in (before, now)]
    usable = [[record for record in side if refusal(record) is None] for side in runs]
    values = [[metric_values(record) for record in side] for side in usable]
    preferred = preferred_metrics(now[-1].case)
    metric = next((one for one in preferred if all(one in each for side in values for each in side)), None)
    clocks = {record.measurement.clock for side in usable for record in side if record.measurement is not None}
    if metric is None or len(clocks) > 1:
        return GateEntry(name=name, outcome="not comparable", reason="no common metric with the baseline")
    old, new = ([each[metric] for each in side] for side in values)
    ratio = statistics.ratio_of_runs(new, old)
    if ratio is None:
        outcome: Outcome = "not enough runs"
        reason = f"not enough runs: {len(old)} of the baseline and {len(new)} now, {statistics.LEAST_RUNS} needed each"
    else:
        outcome, reason = _outcome(ratio, threshold)
    return GateEntry(
        name=name,
        outcome=outcome,
        reason=reason,
        metric=metric,
        unit=METRICS[metric].unit,
        baseline_value=statistics.geometric_mean(old),
        current_value=statistics.geometric_mean(new),
        ratio=ratio,
    )


def _outcome(ratio: Ratio, threshold: float) -> tuple[Outcome, str]:
    told = f"{ratio.value:.3g} times the baseline, {ratio.confidence:.0%} interval {ratio.low:.3g} to {ratio.high:.3g}"
    if ratio.high < 1 - threshold:
        return "regressed", f"{told}: all of it more than {threshold:.0%} slower"
    if ratio.low > 1 + threshold:
        return "improved", f"{told}: all of it more than {threshold:.0%} faster"
    return "ok", told
