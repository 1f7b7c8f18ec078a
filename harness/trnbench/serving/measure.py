"""A served case, measured: the system built and warmed, LoadGen's tests run, one round of pytest-benchmark for each."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec

from trnbench.records.measured import Measured, clock_name, compilation, fell_back_to_eager, null_reasons
from trnbench.records.schema import Measurement, Memory, Round, WarmupStep
from trnbench.serving.build import build_system
from trnbench.serving.clock import advance, loadgen_clock
from trnbench.serving.profiles import profile
from trnbench.serving.runs import Runs, kept_logs, time_limit
from trnbench.serving.samples import draw_samples
from trnbench.serving.stages import RESERVE, Stages
from trnbench.serving.system import Request
from trnbench.status import CaseError, Status, UsageError
from trnbench.workloads.presets import preset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.records.schema import Check, Compile
    from trnbench.serving.runs import Ran
    from trnbench.serving.samples import Samples
    from trnbench.serving.system import System

SEED = 0
"""Of the prompts; the samples of the caching audit come from the next one."""

BATCHES_OF_WARMUP = 2
LEAST_PASSES, MOST_PASSES = 2, 5

NO_FLOPS = "continuous batching pads each step to a bucket as requests happen to arrive, so nothing fixed was computed"
NO_ENERGY = "energy is not read over LoadGen's tests"


def measure_serving(
    backend: Backend,
    benchmark: BenchmarkFixture,
    *,
    case: Case,
    rounds: int,
    clock: Callable[[], float],
    folder: Path,
    timeout: float | None = None,
) -> Measured:
    """Serve `case` under LoadGen; each of the `rounds` is one LoadGen test, whose metric is its time in seconds.

    `clock` is `loadgen_clock`, given as the benchmark's timer. LoadGen's logs go into `folder`; each test may take
    `timeout` seconds (None: see `runs.time_limit`). Where a test ends the case, what was run so far is in the result
    as evidence.

    Raises `UsageError` for another clock or a disabled benchmark, `CaseError` where not a single test was run, and
    what the system raises.
    """
    if clock is not loadgen_clock:
        raise UsageError(
            f"case {case.id} needs @pytest.mark.benchmark(timer=loadgen_clock) from trnbench.serving.clock: its rounds "
            "are LoadGen's metric, not wall time"
        )
    rules = profile(case.profile)
    samples = library(case, rules.library)
    start = time.perf_counter()
    before = backend.counters()
    system = build_system(case, backend, samples)
    built = WarmupStep(seconds=time.perf_counter() - start, compiles=backend.counters().since(before).compiles)
    warmup = [built, *warm_passes(backend, system, rules.library, BATCHES_OF_WARMUP * case.batch)]
    compiled = compilation(
        backend.counters().since(before),
        first_step_seconds=built.seconds,
        cache=backend.compile_cache_state(),
        backend=backend.name,
    )
    backend.reset_memory_peak()
    runs = Runs(
        backend,
        system,
        samples,
        folder=folder,
        timeout=lambda test: time_limit(test, rules) if timeout is None else timeout,
    )
    stages = Stages(case, runs)
    checks: list[Check] = []
    ended: CaseError | None = None
    with _collector_settled():
        try:
            stages.run(rounds)
            checks = stages.audit()
        except CaseError as error:
            if not runs.ran:
                raise
            ended = error
    peak = backend.memory_peak()
    timed = [one for one in stages.rounds if one.metric is not None]
    if timed:
        _hand_to(benchmark, [cast("float", one.metric) for one in timed])
    measurement = Measurement(
        clock=clock_name(loadgen_clock),
        sync=backend.sync_method,
        warmup=warmup,
        rounds=[_round(one, case) for one in timed],
        compile=compiled,
        memory=Memory(peak_bytes=peak.peak_bytes, source=peak.source),
        flops=None,
        energy_source=None,
        serving=runs.stored,
    )
    status, reasons = judge(case, stages.rounds, compiled, ended)
    files, missing = kept_logs(stages.rounds)
    return Measured(
        measurement=measurement,
        status=status,
        reason="; ".join([*reasons, *stages.notes, *missing]),
        unknown=null_reasons(measurement, energy=NO_ENERGY, flops=NO_FLOPS),
        files=files,
        checks=checks,
    )


def library(case: Case, count: int) -> Samples:
    """The `count` samples that LoadGen knows, and behind them those that only the audit of caching asks for."""
    shape = preset(case.workload)
    known = draw_samples(shape, case.sequence, case.new_tokens, count, SEED)
    unknown = draw_samples(shape, case.sequence, case.new_tokens, RESERVE, SEED + 1)
    return msgspec.structs.replace(
        known, prompts=(*known.prompts, *unknown.prompts), limits=(*known.limits, *unknown.limits)
    )


def warm_passes(backend: Backend, system: System, count: int, requests: int) -> list[WarmupStep]:
    """Answer the first samples of the library without LoadGen until nothing compiles; one step a pass.

    Every bucket has been run by then; a pass shows that the paths between them compile nothing either. Raises
    `CaseError` (`INVALID`) where they do in the last pass still.
    """
    steps = []
    for number in range(1, MOST_PASSES + 1):
        before, start = backend.counters(), time.perf_counter()
        system.submit([Request(identifier, identifier % count) for identifier in range(requests)])
        while system.busy:
            system.step()
        seconds = time.perf_counter() - start
        compiles = backend.counters().since(before).compiles
        steps.append(WarmupStep(seconds=seconds, compiles=compiles))
        if number >= LEAST_PASSES and not compiles:
            return steps
    raise CaseError(Status.INVALID, f"recompiled: still compiling after {MOST_PASSES} warm-up passes")


def judge(case: Case, rounds: Sequence[Ran], compiled: Compile, ended: CaseError | None) -> tuple[Status, list[str]]:
    """The status of the case by its rounds, with the reasons; `ended` is what stopped its tests."""
    if ended is not None:
        return ended.status, [str(ended)]
    reasons = [
        f"round {number} of {len(rounds)}: {'; '.join(one.run.reasons)}"
        for number, one in enumerate(rounds, 1)
        if not one.run.valid
    ]
    reasons += [
        f"round {number} of {len(rounds)}: no rate, LoadGen gave no metric for {one.run.samples} samples"
        for number, one in enumerate(rounds, 1)
        if one.run.valid and one.metric is None
    ]
    if reasons:
        return Status.INVALID, reasons
    fell_back = fell_back_to_eager(case.mode, compiled.count, compiled.cache)
    return (Status.FALLBACK, [fell_back]) if fell_back else (Status.OK, [])


def _hand_to(benchmark: BenchmarkFixture, metrics: Sequence[float]) -> None:
    """Give LoadGen's metrics to pytest-benchmark as the times of its rounds.

    The tests have run by then: rounds at a rate that does not hold are repeated at a lower one, and pytest-benchmark
    takes no round back.
    """
    left = iter(metrics)
    pedantic: Callable[..., object] = benchmark.pedantic
    pedantic(lambda: advance(next(left)), rounds=len(metrics), iterations=1, warmup_rounds=0)
    stats: Any = benchmark.stats
    if stats is None:
        raise UsageError("pytest-benchmark is disabled (--benchmark-disable): nothing can be measured")
    if stats.options["timer"] is not loadgen_clock:
        raise UsageError("the rounds were not timed with loadgen_clock; give it to the benchmark marker as the timer")


def _round(ran: Ran, case: Case) -> Round:
    items = {"samples": ran.run.samples}
    if case.phase == "serving":
        items["tokens"] = ran.run.tokens["produced"]
    return Round(
        seconds=cast("float", ran.metric),
        items=items,
        compiles=ran.compiles,
        fallbacks=ran.fallbacks,
        energy_joules=None,
    )


@contextmanager
def _collector_settled() -> Iterator[None]:
    """Keep what is alive now out of Python's garbage collections, which would walk the whole model in a decode step."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
