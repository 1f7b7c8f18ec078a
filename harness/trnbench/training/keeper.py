"""When a run under way is written down, and what to do where the disk refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trnbench.records.store import StoreError

if TYPE_CHECKING:
    from trnbench.training.checkpoint import Preparation, Progress, StateFolder

CHECKPOINT_SECONDS = 15.0
"""Least time from one checkpoint to the next."""

CHECKPOINT_SHARE = 0.05
"""Largest share of a run's time that checkpoints may take: those of a large model come less often."""


class Keeper:
    """Writes the checkpoints of one run. All times are seconds on the run's own clock."""

    def __init__(self, state: StateFolder, number: int, seed: int, preparation: Preparation) -> None:
        self._state = state
        self._number, self._seed, self._preparation = number, seed, preparation
        self._latest, self._cost = 0.0, 0.0
        self._refused = False

    def start(self, now: float) -> None:
        """The run starts, or goes on."""
        self._latest = now

    def is_due(self, now: float) -> bool:
        """Whether the last checkpoint, or the start, is long enough ago."""
        wait = max(CHECKPOINT_SECONDS, self._cost * (1 / CHECKPOINT_SHARE - 1))
        return not self._refused and now - self._latest >= wait

    def keep(self, progress: Progress, log: str, tensors: dict[str, Any]) -> None:
        """Write one. A disk that refuses ends the checkpoints and not the run, and is noted."""
        progress.checkpoints += 1
        try:
            self._state.write_checkpoint(
                self._number,
                seed=self._seed,
                preparation=self._preparation,
                progress=progress,
                log=log,
                tensors=tensors,
            )
        except StoreError as error:
            progress.checkpoints -= 1
            self._refused = True
            self._state.notes.append(f"run {self._number} (seed {self._seed}) went on without checkpoints: {error}")

    def note(self, progress: Progress, start: float, end: float) -> None:
        """Count what a checkpoint took, copying to the host included."""
        self._latest, self._cost = end, end - start
        progress.checkpoint_seconds += self._cost
