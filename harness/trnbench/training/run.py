"""One run: from one seed to the target, by the clock rules of the MLPerf(R) Training benchmarks (training_rules.adoc).

Building the model, compiling and warming up on synthetic tokens come before the clock starts. It starts before the
first batch is drawn and stops when an evaluation reaches the target; evaluations and checkpoints are on it, and it is
never paused. Reading a text, tokenising it and computing the floor of a token source are preparation of the data set,
done once for all runs.

Every step is waited for, and its loss stays on the device: losses are read where an evaluation or a checkpoint stops
the device anyway. Each of them is then looked at, so that the first one that is not finite is found and named.
"""

from __future__ import annotations

import gc
import math
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from trnbench.records.measured import Clock, compilation
from trnbench.records.schema import Evaluation
from trnbench.status import CaseError, Status
from trnbench.training.checkpoint import Identity, Preparation, Progress, StateFolder
from trnbench.training.keeper import Keeper
from trnbench.training.log import RunLog
from trnbench.training.watch import Waits

if TYPE_CHECKING:
    import torch

    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.device import Counters
    from trnbench.workloads.data import TokenBatch
    from trnbench.workloads.quality import Learner
    from trnbench.workloads.recipe import Recipe
    from trnbench.workloads.text import Data


class Setting(NamedTuple):
    """What all runs of a case share."""

    backend: Backend
    case: Case
    recipe: Recipe
    data: Data
    clock: Clock
    state: StateFolder
    identity: Identity

    @property
    def train_samples(self) -> int:
        """How many training samples there are: whole windows of a text, or all that a run may draw of a source."""
        windows = self._windows
        return self.recipe.max_samples if windows is None else windows

    @property
    def endless(self) -> bool:
        """Whether the data are a source that can be drawn from for ever, so that there is no pass over them."""
        return self._windows is None

    @property
    def _windows(self) -> int | None:
        tokens = self.data.describe().get("train_tokens")
        return max(1, tokens // self.recipe.sequence) if isinstance(tokens, int) else None


class Run:
    """Run `number`, counted from 1, from `seed`: `prepare` is untimed, `train` timed, `outcome.finish` comes after."""

    def __init__(self, setting: Setting, number: int, seed: int) -> None:
        self.setting = setting
        self.number, self.seed = number, seed
        self.progress = Progress()
        self.converged = False
        self.failed = False
        """Whether a loss was not finite; `train` then raised."""
        self.target: float | None = None
        """The evaluation loss to reach; None until it is known."""
        self.preparation: Preparation
        """What the untimed part was like; set by `prepare`, as are the next two."""
        self.learner: Learner
        self.before: Counters
        """The backend's counters just before the timed part."""
        self._log = RunLog(setting.train_samples, endless=setting.endless)
        self._waits = Waits(setting.backend, setting.clock)
        self._keeper: Keeper
        self._pending: list[torch.Tensor] = []
        self._held_out: TokenBatch
        self._origin = 0.0

    @property
    def name(self) -> str:
        """The run in words."""
        return f"run {self.number} (seed {self.seed})"

    @property
    def log(self) -> str:
        """The text of the event log so far."""
        return self._log.text()

    def prepare(self) -> None:
        """Build, compile and warm up; go on from this run's checkpoint where there is one."""
        backend, recipe = self.setting.backend, self.setting.recipe
        left = self.setting.state.checkpoint(self.number, self.seed)
        if left is None:
            self._log.header(self.setting.case, backend.describe())
            self._log.initialise(self.setting.case, self.seed, recipe.learning(), recipe.evaluation_sequences)
        self.preparation = self._build()
        if not recipe.starts_with_evaluation:
            self._aim(recipe.target(self.setting.data))
        if left is None:
            self._log.initialised()
            self.progress.start_state = self.fingerprint()
        else:
            checkpoint, tensors = left
            self.learner.load_state(tensors)
            self.progress, self.preparation = checkpoint.progress, checkpoint.preparation
            self.progress.resumed_at.append(self.progress.samples)
            self._log.restore(checkpoint.log)
            if self.target is None and self.progress.evaluations:
                self.target = recipe.target(self.setting.data, self.progress.evaluations[0].loss)
        self._keeper = Keeper(self.setting.state, self.number, self.seed, self.preparation)
        backend.reset_memory_peak()
        self.before = backend.counters()

    def _build(self) -> Preparation:
        import torch

        from trnbench.workloads.quality import Learner

        backend, clock = self.setting.backend, self.setting.clock
        start = clock()
        if self.setting.case.mode == "compiled":
            # Every run compiles anew, as in a process of its own; what the last one compiled would also keep its model.
            torch.compiler.reset()
        before = backend.counters()
        self._waits.start()
        self.learner = Learner(
            self.setting.case, self.setting.recipe, backend.device, backend.compile, self._waits, seed=self.seed
        )
        self.learner.warm_up()
        warmup = self._waits.stop()
        compiled = compilation(
            backend.counters().since(before),
            first_step_seconds=warmup[0].seconds,
            cache=backend.compile_cache_state(),
            backend=backend.name,
        )
        return Preparation(seconds=clock() - start, warmup=warmup, compile=compiled)

    def fingerprint(self) -> str:
        """SHA-256 of every parameter that is trained, copied to the host."""
        from trnbench.workloads.program import fingerprint

        return fingerprint(self.learner.parameters)

    def train(self) -> None:
        """Train until an evaluation reaches the target or the samples are used up.

        Raises `CaseError` (`INVALID`), with `failed` set, for the first loss that is not finite.
        """
        progress = self.progress
        self._origin = self.setting.clock() - progress.seconds
        if progress.resumed_at:
            self._log.resumed(progress.samples)
        else:
            self._log.run_start()
        self._keeper.start(progress.seconds)
        self._held_out = self.setting.data.evaluation()
        while True:
            if self._evaluation_is_due():
                self._evaluate()
            if self.converged or progress.steps >= self.setting.recipe.max_steps:
                break
            self._keep()
            self._step()
        self._stop()

    def _step(self) -> None:
        progress = self.progress
        if not progress.in_block:
            self._log.block_start(progress.samples)
            progress.in_block = True
        batch = self.setting.data.batch(self.seed, progress.steps)
        loss = self.learner.train(batch)
        # Lazy devices run nothing until they are waited for: without this the graph of a step would hold all before.
        self._waits([loss])
        self._pending.append(loss)
        progress.steps += 1
        progress.samples += int(batch.lengths.shape[0])
        progress.tokens += batch.real_tokens

    def _evaluation_is_due(self) -> bool:
        recipe, progress = self.setting.recipe, self.progress
        if progress.evaluations and progress.evaluations[-1].samples == progress.samples:
            return False
        if progress.steps == 0:
            return recipe.starts_with_evaluation
        return progress.steps % recipe.steps_between_evaluations == 0 or progress.steps >= recipe.max_steps

    def _evaluate(self) -> None:
        progress, log = self.progress, self._log
        self._read_losses()
        self._close_block()
        log.eval_start(progress.samples)
        loss = self.learner.evaluate(self._held_out)
        finite = math.isfinite(loss)
        log.eval_stop(progress.samples, loss if finite else None)
        if not finite:
            self._fail(f"the evaluation loss is {loss} in {self.name} after {progress.samples} samples")
        progress.evaluations.append(Evaluation(samples=progress.samples, seconds=self._now(), loss=loss))
        target = self._aim(self.setting.recipe.target(self.setting.data, loss)) if self.target is None else self.target
        self.converged = loss <= target
        # The collector is paused in a run; what it would have found is freed where the device rests.
        gc.collect()

    def _aim(self, target: float) -> float:
        self.target = target
        self._log.target(target)
        return target

    def _read_losses(self) -> None:
        """Bring the losses since the last time to the host, one by one: a stack of them would be another graph."""
        pending, self._pending = self._pending, []
        for tensor in pending:
            loss = float(tensor)
            if not math.isfinite(loss):
                step = len(self.progress.losses) + 1
                self._fail(f"the loss is {loss} in {self.name}: first bad step {step}, counted from 1")
            self.progress.losses.append(loss)

    def _keep(self) -> None:
        """Write a checkpoint, at a step boundary, where the last one is long enough ago."""
        start = self._now()
        if self.progress.steps == 0 or not self._keeper.is_due(start):
            return
        self._read_losses()
        self.progress.seconds = start
        self._keeper.keep(self.progress, self.log, self.learner.state())
        self._keeper.note(self.progress, start, self._now())

    def _fail(self, sentence: str) -> NoReturn:
        self.failed, self.converged = True, False
        self._stop()
        raise CaseError(Status.INVALID, sentence)

    def _stop(self) -> None:
        self.progress.seconds = self._now()
        self._close_block()
        self._log.run_stop(self.progress.samples, converged=self.converged)

    def _close_block(self) -> None:
        if self.progress.in_block:
            self._log.block_stop(self.progress.samples)
            self.progress.in_block = False

    def _now(self) -> float:
        """Seconds since the clock of the run started; time between two processes is no part of it."""
        return self.setting.clock() - self._origin
