"""One step at a time: bring the device to rest, run and wait, then read what the step did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from trnbench.device import difference
from trnbench.measure.checks import check_loss, check_placement

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from trnbench.backends.base import Backend
    from trnbench.measure.energy import EnergyMeter
    from trnbench.measure.settle import Settle
    from trnbench.workloads.program import Program


class StepNote(msgspec.Struct, frozen=True, kw_only=True):
    """What one step did beside taking time: differences of the counters read just before and just after it."""

    items: dict[str, int]
    compiles: int | None
    fallbacks: dict[str, int]
    energy_joules: float | None


class StepLoop:
    """Drives a program's steps: `run` is all that lies inside the timed region, `prepare` and `conclude` around it."""

    def __init__(self, backend: Backend, program: Program, settle: Settle, meter: EnergyMeter) -> None:
        self._backend = backend
        self._program = program
        self._settle = settle
        self._meter = meter
        self._outputs: Sequence[torch.Tensor] = ()
        self._items: dict[str, int] = {}
        self._before = backend.counters()
        self._energy_before: float | None = None
        self.executed = 0
        """Steps run so far, counted where they run."""

    def prepare(self) -> None:
        """Untimed: rewind the program, drain the queue, flush caches where the case says so, read the counters."""
        self._outputs = ()
        self._program.reset()
        self._settle()
        self._items = dict(self._program.items())
        self._before = self._backend.counters()
        self._energy_before = self._meter.read()

    def run(self) -> None:
        """Timed: one step, and the wait until its outputs exist."""
        self.executed += 1
        self._outputs = self._program.step()
        self._backend.materialize(self._outputs)

    def conclude(self, where: str) -> StepNote:
        """Untimed: what the step did. Raises `CaseError` (`INVALID`) for a loss that is not finite."""
        energy = self._meter.read()
        counted = self._backend.counters().since(self._before)
        check_placement([output.device.type for output in self._outputs], self._backend.device.type)
        check_loss(float(self._program.loss_like(self._outputs)), self.executed, where)
        return StepNote(
            items=self._items,
            compiles=counted.compiles,
            fallbacks=counted.fallbacks,
            energy_joules=difference(energy, self._energy_before),
        )
