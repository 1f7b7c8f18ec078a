"""What is done with a case: measured and then checked, or only checked."""

from __future__ import annotations

import datetime
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from trnbench.case import QUALITY_PHASES, SERVING_PHASES
from trnbench.measure.rounds import measure_program
from trnbench.records.deviations import apply_deviations
from trnbench.records.measured import Measured
from trnbench.records.schema import FAILED
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_benchmark.fixture import BenchmarkFixture

    from trnbench.backends.base import Backend
    from trnbench.case import Case, Phase
    from trnbench.device import Scalar
    from trnbench.plugin.options import Settings
    from trnbench.records.deviations import Deviation
    from trnbench.records.schema import Check, Measurement

INTERRUPTED = ".interrupted"
"""Folder of a store that holds what an interrupted training resumes from; none of its files is a record."""


class Attempt:
    """What is known of a case so far; every stage fills in what it learns, so that a failure keeps the rest."""

    def __init__(self) -> None:
        self.status = Status.FAILED
        self.reason = ""
        self.measurement: Measurement | None = None
        self.conformance: list[Check] = []
        self.switches: dict[str, Scalar] = {}
        self.unknown: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        """What to store beside the record, by name."""
        self.error: BaseException | None = None
        """What ended the case unforeseen, for the terminal; None where `reason` says it all."""

    def end(self, status: Status, reason: str) -> None:
        """Set the outcome, keeping what was measured."""
        self.status, self.reason = status, reason

    def keep(self, measured: Measured) -> None:
        """Take over rounds and the judgement on them."""
        self.measurement, self.unknown = measured.measurement, dict(measured.unknown)
        self.files, self.conformance = dict(measured.files), list(measured.checks)
        self.end(measured.status, measured.reason)


class Work(Protocol):
    """Fills in `attempt` by what it does with a case; raises what the device raises."""

    def __call__(self, attempt: Attempt, backend: Backend, case: Case, settings: Settings) -> None: ...


def measuring(case: Case, benchmark: BenchmarkFixture, rounds: int, clock: Callable[[], float]) -> Work:
    """Work that measures the case as its phase is measured, then checks what it computes, outside of the timing."""
    if case.phase in SERVING_PHASES:
        measure = _serve(benchmark, rounds, clock)
    elif case.phase in QUALITY_PHASES:
        measure = _train_to_quality(benchmark, rounds, clock)
    else:
        measure = _time_steps(benchmark, rounds, clock)

    def work(attempt: Attempt, backend: Backend, case: Case, settings: Settings) -> None:
        with backend.numerics(case.precision) as switches:
            attempt.switches = dict(switches)
            attempt.keep(measure(backend, case, settings))
        if not settings.conformance:
            attempt.conformance = []
        elif attempt.status is Status.OK:
            from trnbench.conformance.model.check import check_case

            with backend.numerics(case.precision):
                checks = check_case(checked_as(case), backend)
            _judge(attempt, [*attempt.conformance, *checks], backend, case, settings.deviations)

    return work


Measure = Callable[["Backend", "Case", "Settings"], Measured]
"""Measures a case on an open backend whose numerics switches are set."""


def _time_steps(benchmark: BenchmarkFixture, rounds: int, clock: Callable[[], float]) -> Measure:
    """Rounds of one step each."""

    def measure(backend: Backend, case: Case, settings: Settings) -> Measured:
        from trnbench.workloads.steps import build

        del settings
        # The program's weights and optimizer state go when this returns: conformance needs the room.
        program = build(case, backend.device, backend.compile)
        return measure_program(backend, program, benchmark, case=case, rounds=rounds, clock=clock)

    return measure


def _serve(benchmark: BenchmarkFixture, rounds: int, clock: Callable[[], float]) -> Measure:
    """Rounds of one LoadGen test each; LoadGen writes its logs into a folder that lasts as long."""

    def measure(backend: Backend, case: Case, settings: Settings) -> Measured:
        from trnbench.serving.measure import measure_serving

        del settings
        with tempfile.TemporaryDirectory(prefix="trnbench-") as folder:
            return measure_serving(backend, benchmark, case=case, rounds=rounds, clock=clock, folder=Path(folder))

    return measure


def _train_to_quality(benchmark: BenchmarkFixture, rounds: int, clock: Callable[[], float]) -> Measure:
    """Rounds of one run to the target each, from a seed of its own."""

    def measure(backend: Backend, case: Case, settings: Settings) -> Measured:
        from trnbench.training.measure import measure_quality

        state = settings.results / INTERRUPTED / f"{case.id}-{case.version}"
        if state.exists() and not settings.resume:
            # A time that begins at a checkpoint is no score, so only who asks for it gets it.
            shutil.rmtree(state)
        return measure_quality(
            backend,
            benchmark,
            case=case,
            runs=rounds,
            clock=clock,
            state=state,
            data=settings.data,
            target=settings.target_loss,
            references=settings.references,
        )

    return measure


def checked_as(case: Case) -> Case:
    """The step whose numbers prove those of `case`: its own, or the one that serving or training is made of."""
    proof: dict[str, Phase] = {
        "serving": "decode",
        "scoring": "prefill",
        "pretrain": "train_step",
        "finetune_lora": "train_step",
    }
    phase = proof.get(case.phase)
    return case if phase is None else msgspec.structs.replace(case, phase=phase, scenario="", profile="")


def checking() -> Work:
    """Work that checks a case which measures nothing."""

    def work(attempt: Attempt, backend: Backend, case: Case, settings: Settings) -> None:
        from trnbench.conformance.cases import check_conformance

        with backend.numerics(case.precision) as switches:
            attempt.switches = dict(switches)
            checks = check_conformance(case, backend, settings.seeds)
        if not checks or all(check.verdict == "not checked" for check in checks):
            attempt.conformance = checks
            attempt.end(Status.SKIPPED, checks[0].where if checks else "the case has no check in this precision")
            return
        attempt.end(Status.OK, "")
        _judge(attempt, checks, backend, case, settings.deviations)

    return work


def _judge(
    attempt: Attempt, checks: list[Check], backend: Backend, case: Case, deviations: Sequence[Deviation]
) -> None:
    """Keep the checks with what is listed about them; a failed one makes the case nonconformant.

    A listed deviation leaves a case that is only checked ok. A speed beside a check that does not hold is no
    comparable speed, listed or not.
    """
    today = datetime.datetime.now(datetime.UTC).date()
    attempt.conformance = apply_deviations(checks, deviations, case, backend.versions(), today)
    failed = [check for check in attempt.conformance if check.verdict in FAILED]
    listed = [check for check in attempt.conformance if check.verdict == "known deviation"]
    if failed:
        attempt.end(Status.NONCONFORMANT, _failures(failed))
    elif listed and not case.checks_only:
        attempt.end(Status.NONCONFORMANT, f"known deviation {listed[0].deviation}: {_failures(listed)}")


def _failures(checks: Sequence[Check]) -> str:
    """The first in full, and how many more there are."""
    more = f", and {len(checks) - 1} more" if len(checks) > 1 else ""
    return _failure(checks[0]) + more


def _failure(check: Check) -> str:
    if check.verdict == "non-finite" or check.value is None or check.limit is None:
        found = "is not finite" if check.verdict == "non-finite" else "fails"
    else:
        found = f"is {check.value:.3g} against {check.limit:.3g}"
    like = f", looks like {check.looks_like}" if check.looks_like else ""
    where = f" at {check.where}" if check.where else ""
    return f"{check.check}: {check.metric} {found}{like}{where}"
