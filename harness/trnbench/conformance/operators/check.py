"""A family of operators on a backend: findings of every operator, the fault that failures look like, as verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.conformance.cases import is_sparing
from trnbench.conformance.diagnosis.engine import diagnose
from trnbench.conformance.diagnosis.registry import hypotheses_of
from trnbench.conformance.implementation import DeviceImplementation
from trnbench.conformance.operators.base import Finding, Plan
from trnbench.conformance.operators.judge import judge_operator
from trnbench.conformance.operators.registry import operators_of
from trnbench.conformance.profile import measure_arithmetic
from trnbench.records.schema import Check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.conformance.arithmetic import Arithmetic
    from trnbench.conformance.operators.base import Operator
    from trnbench.conformance.operators.judge import Failure

METRICS = {
    "T0": "values that differ in any bit from the exact answer",
    "T1": "largest error over its hard bound",
    "T2": "largest error over its probabilistic bound",
    "T3": "statistic over the limit of its noise floor",
}
REFERENCES = {
    "T0": "the exact answer, which no order of operations changes",
    "T1": "float64 on the CPU from the device's own rounded inputs",
    "T2": "float64 on the CPU from the device's own rounded inputs",
    "T3": "permitted implementations on the CPU",
}
_ABSENT = ("not implemented", "unsupported", "not supported", "not yet supported")


def check_family(case: Case, backend: Backend, seeds: int = 1) -> list[Check]:
    """Verdicts on every operator of the family `case.workload` in the case's precision and mode.

    Random inputs are drawn from `seeds` seeds.

    The constants of the bounds come from the numerics that the passport's probes find first.
    """
    arithmetic = measure_arithmetic(backend, case.mode, case.precision)
    checks: list[Check] = []
    for operator in operators_of(case.workload):
        if case.precision in operator.precisions:
            checks += _check_operator(operator, case, backend, arithmetic, plans(case, backend.modes, seeds))
    return checks


def plans(case: Case, modes: Iterable[str], seeds: int) -> list[Plan]:
    """What is tried: at smoke tier several shapes, or sparingly one; at the others all; one shape of further seeds."""
    first = Plan(shapes="one" if is_sparing(case, modes) else "several" if case.tier == "smoke" else "all")
    further = [Plan(seeds=tuple(range(1, seeds)), shapes="one")] if seeds > 1 else []
    return [first, *further]


def _check_operator(
    operator: Operator, case: Case, backend: Backend, arithmetic: Arithmetic, tried: list[Plan]
) -> list[Check]:
    implementation = DeviceImplementation(backend, case.mode, operator.function)
    before = backend.counters().fallbacks
    findings: list[Finding] = []
    failures: list[Failure] = []
    try:
        for plan in tried:
            judged = judge_operator(operator, case.precision, implementation, arithmetic, plan)
            findings += judged.findings
            failures += judged.failures
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return [_not_run(operator, error)]
    fallbacks = [name for name, count in backend.counters().fallbacks.items() if count > before.get(name, 0)]
    if fallbacks:
        return [_on_the_host(operator, fallbacks)]
    return summarise(operator, findings, failures)


def summarise(operator: Operator, findings: list[Finding], failures: list[Failure]) -> list[Check]:
    """One check for each direction and input of an operator: its worst finding over shapes, seeds and tiers."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.direction, finding.input), []).append(finding)
    names = _Names(operator, failures)
    return [
        _check(operator, group, names.of(direction, name) if any(one.verdict != "pass" for one in group) else "")
        for (direction, name), group in groups.items()
    ]


class _Names:
    """What the failures of one operator look like: by input, else by direction as a whole."""

    def __init__(self, operator: Operator, failures: list[Failure]) -> None:
        self._failures = failures
        self._hypotheses = hypotheses_of(operator.name)
        self._by_direction: dict[str, str] = {}

    def of(self, direction: str, name: str) -> str:
        mine = [one for one in self._failures if one.direction == direction and one.sample.input == name]
        if mine:
            found = diagnose(mine, self._hypotheses)
            if found.name != "unexplained":
                return found.words
        if direction not in self._by_direction:
            alike = [one for one in self._failures if one.direction == direction]
            self._by_direction[direction] = diagnose(alike, self._hypotheses).words if alike else "unexplained"
        return self._by_direction[direction]


def _check(operator: Operator, group: list[Finding], looks_like: str) -> Check:
    worst = max(group, key=_severity)
    looks_like = worst.looks_like or looks_like
    more = sum(one.verdict != "pass" for one in group) - 1
    where = worst.where + (f"; {more} more of {len(group)} findings fail" if more > 0 else "")
    return Check(
        check=f"operators/{operator.name}/{worst.direction}/{worst.input}",
        level="operators",
        metric=METRICS[worst.tier],
        value=worst.value,
        limit=0.0 if worst.tier == "T0" else 1.0,
        verdict=worst.verdict,
        reference=REFERENCES[worst.tier],
        where=where,
        tier=worst.tier,
        looks_like=looks_like if worst.verdict != "pass" else "",
    )


def _severity(finding: Finding) -> tuple[bool, int, float]:
    """Failures before passes, strict tiers before statistical ones, then the larger error."""
    failed = finding.verdict != "pass"
    rank = -int(finding.tier[1]) if failed else 0
    return failed, rank, float("inf") if finding.value is None else finding.value


def _not_run(operator: Operator, error: Exception) -> Check:
    """An operator that the device does not have is not checked; one that ends in any other error fails."""
    said = str(error).strip().splitlines()
    sentence = f"{type(error).__name__}: {said[0][:200] if said else 'no message'}"
    absent = isinstance(error, NotImplementedError) or any(words in sentence.lower() for words in _ABSENT)
    return _whole(operator, "not checked" if absent else "fail", sentence, "" if absent else "raises an error")


def _on_the_host(operator: Operator, fallbacks: list[str]) -> Check:
    return _whole(operator, "not checked", f"ran on the host, not on the device: {', '.join(fallbacks)}", "")


def _whole(operator: Operator, verdict: str, where: str, looks_like: str) -> Check:
    return Check(
        check=f"operators/{operator.name}",
        level="operators",
        metric="whether the operator runs on the device",
        value=None,
        limit=None,
        verdict="fail" if verdict == "fail" else "not checked",
        reference="none: nothing was computed on the device",
        where=where,
        looks_like=looks_like,
    )
