"""A backend and programs whose every step is scripted, on a clock that only they move.

Nothing sleeps: a step of 20 ms moves the clock by 20 ms. Work is queued by `step` and done by `materialize`, as on a
real asynchronous device, so a harness that does not wait reads 0 s.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trnbench.backends.base import Backend
from trnbench.case import Case, case_from
from trnbench.device import Counters, Device, MemoryUse, Scalar
from trnbench.status import Status
from trnbench.workloads.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class StepClock:
    """Seconds since it was made; moves only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = StepClock()
"""The clock of suites that are run inside a test: their markers need it before any backend exists."""


@dataclass
class Step:
    """What one step does beside producing its output; `raises` ends it."""

    seconds: float = 0.010
    compiles: int = 0
    compile_seconds: float = 0.0
    fallbacks: dict[str, int] = field(default_factory=dict)
    loss: float = 2.0
    moves: bool = True
    raises: BaseException | None = None


class FakeBackend(Backend):
    """Runs nothing; keeps the queue, the clock and the counters that scripted programs act upon."""

    name: ClassVar[str] = "fake"
    modes: ClassVar[tuple[str, ...]] = ("eager", "compiled")
    sync_method: ClassVar[str] = "drains the queue of scripted work"
    latest: ClassVar[FakeBackend]
    """The backend opened last, for programs that are built elsewhere than in a test."""

    def __init__(self, clock: StepClock = CLOCK) -> None:
        self.clock = clock
        self.queue: list[float] = []
        self.compiles: int | None = 0
        self.compile_seconds = 0.0
        self.fallbacks: dict[str, int] = {}
        self.chips = 1
        self.cache_state: str | None = "cold"
        self.materialized = 0

    @classmethod
    def preflight(cls) -> None:
        return None

    def open(self) -> None:
        FakeBackend.latest = self

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def materialize(self, outputs: Sequence[torch.Tensor]) -> None:
        self.materialized += 1
        while self.queue:
            self.clock.now += self.queue.pop(0)

    def counters(self) -> Counters:
        return Counters(compiles=self.compiles, compile_seconds=self.compile_seconds, fallbacks=dict(self.fallbacks))

    def unsupported(self, precision: str, mode: str) -> str | None:
        return "fake has no fp16" if precision == "fp16" else None

    def compile(self, function: Callable[..., Any], mode: str) -> Callable[..., Any]:
        return function

    @contextmanager
    def numerics(self, precision: str) -> Iterator[dict[str, Scalar]]:
        yield {"fake.precision": precision}

    def describe(self) -> Device:
        return Device(backend=self.name, platform="cpu", chip="cpu", chips=self.chips, cores=2)

    def versions(self) -> dict[str, str]:
        return {"fake": "1"}

    def flags(self) -> dict[str, Scalar]:
        return {}

    def reset_memory_peak(self) -> None:
        return None

    def memory_peak(self) -> MemoryUse:
        return MemoryUse(peak_bytes=1024, source="scripted")

    def compile_cache_state(self) -> str | None:
        return self.cache_state

    def classify(self, error: BaseException) -> Status:
        return Status.OOM if "out of memory" in str(error) else Status.FAILED


class FakeProgram(Program):
    """Plays `script` step by step; the last entry repeats."""

    def __init__(self, backend: FakeBackend, script: Sequence[Step], case: Case) -> None:
        self.case = case
        self.backend = backend
        self.script = list(script)
        self.steps = 0
        self.moved = 0
        self.resets = 0
        self.sequences = [case.batch]
        self.first_token: Sequence[Step] = ()

    def reset(self) -> None:
        self.resets += 1

    def step(self) -> list[torch.Tensor]:
        current = self.script[min(self.steps, len(self.script) - 1)]
        self.steps += 1
        return [self._play(current)]

    def _play(self, current: Step) -> torch.Tensor:
        if current.raises is not None:
            raise current.raises
        if self.backend.compiles is not None:
            self.backend.compiles += current.compiles
        self.backend.compile_seconds += current.compile_seconds
        for name, count in current.fallbacks.items():
            self.backend.fallbacks[name] = self.backend.fallbacks.get(name, 0) + count
        self.backend.queue.append(current.seconds)
        self.moved += current.moves
        return torch.tensor(current.loss)

    def items(self) -> dict[str, int]:
        sequences = self.sequences[min(self.steps, len(self.sequences) - 1)]
        return {"tokens": 10 * sequences, "padded_tokens": 16 * sequences, "sequences": sequences}

    def loss_like(self, outputs: Sequence[torch.Tensor]) -> torch.Tensor:
        return outputs[0]

    def state_fingerprint(self) -> str:
        return hashlib.sha256(str(self.moved).encode()).hexdigest()

    def flops(self) -> tuple[int, str]:
        return 1000, "scripted"

    def time_to_first_token(self, materialize: Callable[[Sequence[torch.Tensor]], None]) -> Callable[[], None] | None:
        if not self.first_token:
            return None
        script = iter(self.first_token)

        def first_token() -> None:
            materialize([self._play(next(script))])

        return first_token


def fake_case(**changes: object) -> Case:
    """A small training case of the nano workload with some fields changed."""
    fields: dict[str, object] = {
        "suite": "fake",
        "workload": "nano",
        "phase": "train_step",
        "precision": "fp32",
        "mode": "eager",
        "tier": "smoke",
        "batch": 4,
        "sequence": 16,
    }
    return case_from({**fields, **changes})
