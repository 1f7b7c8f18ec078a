"""A test double of an asynchronous device: work is queued on a thread and done 20 ms later, in host memory."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from contract import Subject

from trnbench.backends.torch_device import TorchBackend
from trnbench.device import Counters, Device, MemoryUse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORK_SECONDS = 0.02
COMPILE_SECONDS = 0.001


class AsyncFakeBackend(TorchBackend):
    """Correct in everything that the contract asks. Its device executes one piece of work after the other."""

    name: ClassVar[str] = "async-fake"
    modes: ClassVar[tuple[str, ...]] = ("eager", "compiled")
    sync_method: ClassVar[str] = "waits for its thread"
    simulated = True

    @classmethod
    def preflight(cls) -> None:
        """Always here."""

    def open(self) -> None:
        self._device = torch.device("cpu")
        self._thread = ThreadPoolExecutor(1)
        self._queue: list[Future[None]] = []
        self._compiles = 0
        self._fallbacks = 0
        self._peak = 0

    def close(self) -> None:
        self._thread.shutdown()

    @property
    def device(self) -> torch.device:
        return self._device

    def launch(self) -> torch.Tensor:
        """Returns at once; the tensor holds NaN until the device has done its 20 ms."""
        result = torch.full((4,), float("nan"))

        def work() -> None:
            time.sleep(WORK_SECONDS)
            result.fill_(1.0)

        self._queue.append(self._thread.submit(work))
        return result

    def to_host(self, result: torch.Tensor) -> torch.Tensor:
        """A full copy, which has to wait, as on any device."""
        for work in self._queue:
            work.result()
        return result.clone()

    def run_on_host(self) -> torch.Tensor:
        """An operator that this device does not have."""
        self._fallbacks += 1
        return torch.ones(1)

    def wait_for_device(self) -> None:
        for work in self._queue:
            work.result()
        self._queue.clear()

    def materialize(self, outputs: Sequence[torch.Tensor]) -> None:
        super().materialize(outputs)
        self._peak = max([self._peak, *(output.numel() * output.element_size() for output in outputs)])

    def compile(self, function: Callable[..., Any], mode: str) -> Callable[..., Any]:
        self._check_mode(mode)
        shapes: set[tuple[int, ...]] = set()

        def compiled(*tensors: torch.Tensor) -> Any:
            key = tuple(size for tensor in tensors for size in tensor.shape)
            if key not in shapes:
                shapes.add(key)
                self._compiles += 1
            return function(*tensors)

        return function if mode == "eager" else compiled

    def counters(self) -> Counters:
        return Counters(
            compiles=self._compiles,
            compile_seconds=self._compiles * COMPILE_SECONDS,
            fallbacks={"fake::run_on_host": self._fallbacks} if self._fallbacks else {},
        )

    def describe(self) -> Device:
        return Device(
            backend=self.name,
            platform="cpu",
            chip="cpu",
            chips=1,
            cores=1,
            read_back={"outputs_on": ",".join(sorted(self._outputs_on))},
        )

    def reset_memory_peak(self) -> None:
        self._peak = 0

    def memory_peak(self) -> MemoryUse:
        return MemoryUse(peak_bytes=self._peak, source="largest output of the double")

    def compile_cache_state(self) -> str | None:
        return "none"


class Step(torch.autograd.Function):
    """An operator whose forward and whose backward each take 20 ms of the device's time."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, backend: AsyncFakeBackend) -> torch.Tensor:
        ctx.backend = backend
        backend.launch()
        return values * 1.0

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.backend.launch()
        return gradients[0] * 1.0, None


def subject_of(backend: AsyncFakeBackend) -> Subject:
    """The contract's view of an open double."""
    return Subject(backend=backend, launch=backend.launch, to_host=backend.to_host, falls_back=backend.run_on_host)
