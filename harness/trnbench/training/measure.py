"""A case that trains to a quality, measured: as many runs as asked for, each from a seed of its own, and the judgement.

pytest-benchmark times the runs, one round each: initialisation is the round's setup, run_start to run_stop its target.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from trnbench.case import QUALITY_PHASES
from trnbench.collector import collector_paused
from trnbench.records.measured import Measured, clock_name, null_reasons
from trnbench.records.schema import MAX_ROUNDS, Measurement, Memory
from trnbench.records.store import StoreError
from trnbench.status import CaseError, Status, UsageError
from trnbench.training.checkpoint import KEPT_AFTER, Finished, Identity, Preparation, StateFolder
from trnbench.training.convergence import convergence_checks
from trnbench.training.judge import judge
from trnbench.training.outcome import as_stored, finish
from trnbench.training.run import Run, Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_benchmark.fixture import BenchmarkFixture

    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.records.measured import Clock
    from trnbench.records.schema import Check, TrainingRun
    from trnbench.workloads.text import Data

REFERENCES = Path("suites/training/reference")
"""Reference convergence points, relative to where the measuring is started."""

SEED_BITS = 32

NO_ENERGY = "energy is not read in runs to a quality"
NO_FLOPS = "runs to a quality differ in length, so a round has no one number of operations"


def measure_quality(
    backend: Backend,
    benchmark: BenchmarkFixture,
    *,
    case: Case,
    runs: int,
    clock: Clock,
    state: Path,
    data: str | None = None,
    target: float | None = None,
    seeds: Sequence[int] = (),
    references: Path = REFERENCES,
) -> Measured:
    """Train `runs` times until the target of the case's recipe, each timed by `clock` from run_start to run_stop.

    `data` is what `workloads.text.open_data` understands; without it the recipe's own. `target`, in nats per token,
    takes the place of the recipe's, which a text without a known floor may need. `seeds` are drawn from the
    operating system unless given, to reproduce a run. Where an earlier process was interrupted and left its `state`,
    its finished runs are taken over and the run under way goes on. The folder `state` is removed once the case ends.

    Raises `UsageError` for a number of runs or seeds that makes no sense, and `CaseError` where what ran was no
    training of this case; a loss that is not finite ends the case with the runs so far as evidence, without a speed.
    """
    _check_able(case, benchmark, runs, seeds)
    setting, folder = _setting(backend, case, clock, state, _Goal(data, target))
    try:
        ended = _run_all(setting, benchmark, _seeds(folder, runs, seeds))
    except Exception as error:
        status = error.status if isinstance(error, CaseError) else backend.classify(error)
        if status not in KEPT_AFTER:
            folder.discard()
        raise
    own_data = data in (None, setting.recipe.data) and target is None
    checks = convergence_checks(case, ended.runs, references) if own_data and not ended.failure else []
    measured = _measured(setting, ended, checks)
    folder.discard()
    return measured


class _Ended(NamedTuple):
    """Finished runs by number; where a loss was not finite also the run that ended so, and the sentence about it."""

    finished: dict[int, Finished]
    failed: Run | None
    failure: str

    @property
    def runs(self) -> list[TrainingRun]:
        runs = [one.run for one in self.finished.values()]
        last = None if self.failed is None else as_stored(self.failed)
        return runs if last is None else [*runs, last]

    @property
    def logs(self) -> dict[str, bytes]:
        """The event logs by file name, numbered as the runs are."""
        logs = {number: one.log for number, one in self.finished.items()}
        if self.failed is not None:
            logs[self.failed.number] = self.failed.log
        return {f"result_{number}.txt": text.encode() for number, text in logs.items()}

    @property
    def preparation(self) -> Preparation:
        """Of the first run, which compiled with the coldest cache."""
        if self.finished:
            return next(iter(self.finished.values())).preparation
        assert self.failed is not None, "a case has at least one run"
        return self.failed.preparation


def _check_able(case: Case, benchmark: BenchmarkFixture, runs: int, seeds: Sequence[int]) -> None:
    if case.phase not in QUALITY_PHASES:
        raise UsageError(f"case {case.id}: phase {case.phase} trains to no quality; {', '.join(QUALITY_PHASES)} do")
    case.require_one_device()
    if benchmark.disabled:
        raise UsageError("pytest-benchmark is disabled (--benchmark-disable): nothing can be measured")
    if not 1 <= runs <= MAX_ROUNDS:
        raise UsageError(f"runs is {runs}; a record holds between 1 and {MAX_ROUNDS}")
    if seeds and (len(seeds) != runs or len(set(seeds)) != runs or min(seeds) < 0):
        raise UsageError(f"{runs} runs need as many different seeds that are not negative; given are {list(seeds)}")


class _Goal(NamedTuple):
    """What the caller asks for instead of the recipe's own: data, and the loss that ends a run."""

    data: str | None
    target: float | None


def _setting(backend: Backend, case: Case, clock: Clock, state: Path, goal: _Goal) -> tuple[Setting, StateFolder]:
    from trnbench.workloads.presets import preset
    from trnbench.workloads.recipes import recipe_for
    from trnbench.workloads.text import open_data

    model, recipe = preset(case.workload), recipe_for(case)
    if goal.target is not None:
        recipe = msgspec.structs.replace(recipe, gap_share=None, improvement=None, target_loss=goal.target)
    if case.sequence > model.max_positions:
        raise UsageError(
            f"case {case.id}: {case.sequence} positions are asked of {model.name}, which has {model.max_positions}"
        )
    opened = open_data(goal.data or recipe.data, model, recipe)
    identity = Identity(
        case=case.id,
        version=case.version,
        backend=backend.name,
        chip=backend.describe().chip,
        software=", ".join(f"{name} {version}" for name, version in sorted(backend.versions().items())),
        data=_data_identity(opened),
    )
    folder = StateFolder(state, identity)
    return Setting(backend, case, recipe, opened, clock, folder, identity), folder


def _data_identity(data: Data) -> str:
    """A hash by which the data are the same ones: over their description and what is held out of them."""
    facts = sorted((name, str(value)) for name, value in data.describe().items())
    digest = hashlib.sha256(repr(facts).encode())
    digest.update(data.evaluation().tokens.tobytes())
    return digest.hexdigest()[:16]


def _seeds(folder: StateFolder, runs: int, given: Sequence[int]) -> list[int]:
    """One seed a run: those given, those that an interrupted process drew, or new ones of the operating system."""
    plan = None if given else folder.plan()
    seeds = list(given) or ([] if plan is None else plan.seeds)
    while len(seeds) < runs:
        seed = secrets.randbits(SEED_BITS)
        if seed not in seeds:
            seeds.append(seed)
    try:
        folder.write_plan(seeds)
    except StoreError as error:
        folder.notes.append(f"an interruption would have lost everything: {error}")
    return seeds[:runs]


def _run_all(setting: Setting, benchmark: BenchmarkFixture, seeds: Sequence[int]) -> _Ended:
    """Every run that did not end in an earlier process, timed by pytest-benchmark, up to one that breaks."""
    folder = setting.state
    finished: dict[int, Finished] = {}
    for number, seed in enumerate(seeds, 1):
        found = folder.finished(number, seed)
        if found is not None:
            finished[number] = found
    queue = [(number, seed) for number, seed in enumerate(seeds, 1) if number not in finished]
    current: list[Run] = []

    def setup() -> None:
        # The last run's model goes before the next one is built.
        current.clear()
        _check_timer(benchmark, setting.clock)
        number, seed = queue.pop(0)
        run = Run(setting, number, seed)
        current.append(run)
        run.prepare()

    def target() -> None:
        current[0].train()

    def teardown() -> None:
        stats: Any = benchmark.stats
        run = current[0]
        finished[run.number] = finish(run, stats.stats.data[-1])
        try:
            folder.write_finished(run.number, finished[run.number])
        except StoreError as error:
            folder.notes.append(f"an interruption would have lost {run.name}: {error}")

    if queue:
        pedantic: Callable[..., object] = benchmark.pedantic
        try:
            with collector_paused():
                pedantic(target, setup=setup, teardown=teardown, rounds=len(queue), iterations=1, warmup_rounds=0)
        except CaseError as error:
            if not (current and current[0].failed):
                raise
            return _Ended(dict(sorted(finished.items())), current[0], str(error))
    return _Ended(dict(sorted(finished.items())), None, "")


def _check_timer(benchmark: BenchmarkFixture, clock: Clock) -> None:
    stats: Any = benchmark.stats
    timer = stats.options["timer"]
    if timer is not clock:
        raise CaseError(
            Status.INVALID, f"runs would be timed with {clock_name(timer)}, evaluations with {clock_name(clock)}"
        )


def _measured(setting: Setting, ended: _Ended, checks: list[Check]) -> Measured:
    if ended.failure:
        status, reason = Status.INVALID, "; ".join([ended.failure, *setting.state.notes])
    else:
        status, reason = judge(ended.finished, setting.state.notes)
    prepared = ended.preparation
    measurement = Measurement(
        clock=clock_name(setting.clock),
        sync=setting.backend.sync_method,
        warmup=prepared.warmup,
        # A training that broke has no speed, not even of the runs before.
        rounds=[] if ended.failure else [one.round for one in ended.finished.values()],
        compile=prepared.compile,
        memory=_peak(list(ended.finished.values())),
        flops=None,
        energy_source=None,
        training=ended.runs,
    )
    return Measured(
        measurement=measurement,
        status=status,
        reason=reason,
        unknown={
            **null_reasons(measurement, energy=NO_ENERGY, flops=NO_FLOPS),
            **_floors(setting, measurement),
        },
        files=ended.logs,
        checks=checks,
    )


def _peak(finished: list[Finished]) -> Memory:
    """The largest peak of all runs; unknown where one of them has none."""
    if not finished:
        return Memory(peak_bytes=None, source="no run ended")
    unknown = [one.memory for one in finished if one.memory.peak_bytes is None]
    return unknown[0] if unknown else max((one.memory for one in finished), key=lambda memory: memory.peak_bytes or 0)


def _floors(setting: Setting, measurement: Measurement) -> dict[str, str]:
    """Why the loss of the best possible predictor is not known, where it is not."""
    unknown = any(run.floor is None for run in measurement.training)
    return {"measurement.training[*].floor": setting.data.floor_reason} if unknown else {}
