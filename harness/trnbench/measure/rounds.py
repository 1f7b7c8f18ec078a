"""A case's program on a backend, measured: warm-up, timed rounds through pytest-benchmark, and the judgement on them.

pytest-benchmark runs the rounds in pedantic mode only: its automatic mode calibrates, so that compile time sets the
number of rounds, and runs the function once more than it says (pytest-benchmark issues 121 and 162).
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from trnbench.collector import collector_paused
from trnbench.measure import checks
from trnbench.measure.energy import EnergyMeter, open_meter
from trnbench.measure.first_token import first_token_seconds
from trnbench.measure.loop import StepLoop, StepNote
from trnbench.measure.settle import Settle, collect_between_rounds
from trnbench.measure.warmup import MAX_WARMUP, MIN_WARMUP, Warmup, warm_up
from trnbench.records.measured import Clock, Measured, clock_name, compilation, null_reasons
from trnbench.records.schema import MAX_ROUNDS, Flops, Measurement, Memory, Round, WarmupStep
from trnbench.status import CaseError, Status, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.workloads.program import Program

DEFAULT_ROUNDS = 10


def check_round_count(rounds: int) -> int:
    """`rounds` itself, or `UsageError` where a record could not hold as many."""
    if not 1 <= rounds <= MAX_ROUNDS:
        raise UsageError(f"rounds is {rounds}; a record holds between 1 and {MAX_ROUNDS}")
    return rounds


def measure_program(
    backend: Backend,
    program: Program,
    benchmark: BenchmarkFixture,
    *,
    case: Case,
    rounds: int = DEFAULT_ROUNDS,
    min_warmup: int = MIN_WARMUP,
    max_warmup: int = MAX_WARMUP,
    clock: Clock = time.perf_counter,
    meter: EnergyMeter | None = None,
) -> Measured:
    """Time `rounds` steps of `program`, each until its outputs exist on `backend`, in seconds of `clock`.

    `clock` times warm-up, first tokens and the whole loop; the rounds are timed by pytest-benchmark's own timer,
    which must be the same function. `benchmark` must be enabled and unused. Raises `UsageError` for a round count
    that no record can hold, and `CaseError` where the numbers would be no measurement (see `measure.checks`).
    """
    check_round_count(rounds)
    meter = open_meter(backend.describe()) if meter is None else meter
    loop = StepLoop(backend, program, Settle(backend, case.cache), meter)

    start_state = program.state_fingerprint()
    compile_start = backend.counters()
    warmup = warm_up(lambda: _warmup_step(loop, clock), min_warmup, max_warmup)
    compile_end = backend.counters()
    compiled = compilation(
        compile_end.since(compile_start),
        first_step_seconds=warmup.steps[0].seconds,
        cache=backend.compile_cache_state(),
        backend=backend.name,
    )
    if not warmup.settled:
        raise CaseError(Status.INVALID, _unsettled(warmup))
    warm_state = program.state_fingerprint()

    backend.reset_memory_peak()
    notes, seconds, wall_seconds = _timed_rounds(loop, benchmark, rounds, clock)
    peak = backend.memory_peak()
    checks.check_steps(loop.executed, len(warmup.steps), len(seconds), len(notes))
    checks.check_seconds(seconds, wall_seconds)
    checks.check_state(case, start_state, warm_state, program.state_fingerprint())

    timings = first_token_seconds(backend, program, Settle(backend, case.cache), clock, rounds)
    flops, convention = program.flops()
    measurement = Measurement(
        clock=clock_name(clock),
        sync=backend.sync_method,
        warmup=warmup.steps,
        rounds=[_round(value, note) for value, note in zip(seconds, notes, strict=True)],
        compile=compiled,
        memory=Memory(peak_bytes=peak.peak_bytes, source=peak.source),
        flops=Flops(value=flops, convention=convention),
        energy_source=meter.source,
        timings=timings,
    )
    return _judge(case, measurement, notes, meter)


def _warmup_step(loop: StepLoop, clock: Clock) -> WarmupStep:
    loop.prepare()
    start = clock()
    loop.run()
    seconds = clock() - start
    return WarmupStep(seconds=seconds, compiles=loop.conclude("warm-up").compiles)


def _timed_rounds(
    loop: StepLoop, benchmark: BenchmarkFixture, rounds: int, clock: Clock
) -> tuple[list[StepNote], list[float], float]:
    """Notes and seconds of every round, and the seconds of the whole loop."""
    notes: list[StepNote] = []

    def setup() -> None:
        collect_between_rounds()
        loop.prepare()

    with collector_paused():
        start = clock()
        pedantic: Callable[..., object] = benchmark.pedantic
        pedantic(
            loop.run,
            setup=setup,
            teardown=lambda: notes.append(loop.conclude("the timed rounds")),
            rounds=rounds,
            iterations=1,
            warmup_rounds=0,
        )
        wall_seconds = clock() - start
    stats: Any = benchmark.stats
    if stats is None:
        raise UsageError("pytest-benchmark is disabled (--benchmark-disable): nothing can be measured")
    timer = stats.options["timer"]
    if timer is not clock:
        raise CaseError(
            Status.INVALID, f"rounds were timed with {clock_name(timer)}, the rest with {clock_name(clock)}"
        )
    return notes, list(stats.stats.data), wall_seconds


def _round(seconds: float, note: StepNote) -> Round:
    return Round(
        seconds=seconds,
        items=note.items,
        compiles=note.compiles,
        fallbacks=sum(note.fallbacks.values()),
        energy_joules=note.energy_joules,
    )


def _judge(case: Case, measurement: Measurement, notes: list[StepNote], meter: EnergyMeter) -> Measured:
    fallbacks: Counter[str] = Counter()
    for note in notes:
        fallbacks.update(note.fallbacks)
    compiled = measurement.compile
    status, reasons = checks.faults_in_rounds(case, measurement.rounds, fallbacks, compiled.count, compiled.cache)
    warning = checks.drift_warning([item.seconds for item in measurement.rounds])
    reason = "; ".join([*reasons, warning] if warning else reasons)
    return Measured(
        measurement=measurement, status=status, reason=reason, unknown=null_reasons(measurement, energy=meter.reason)
    )


def _unsettled(warmup: Warmup) -> str:
    compiles = sum(step.compiles or 0 for step in warmup.steps)
    return (
        f"recompiled: still compiling after {len(warmup.steps)} warm-up steps ({compiles} compiles); no round was timed"
    )
