"""What a backend must do: reach a device through PyTorch, wait for it, and prove what ran.

A backend that cannot wait for its device cannot be registered. Backends import torch only when opened, never when
imported, so that listing, comparing and refusing an absent accelerator work without it.
"""

from __future__ import annotations

import abc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from trnbench.device import Counters, Device, MemoryUse, Scalar
    from trnbench.status import Status


class Backend(abc.ABC):
    """One way from PyTorch to a device. Create it only in a fresh process: cores are exclusive, flags read at start."""

    name: ClassVar[str]
    """What `--backend` takes: cpu, cuda, neuron, xla."""

    modes: ClassVar[tuple[str, ...]]
    """Execution modes it offers, of "eager" and "compiled"."""

    sync_method: ClassVar[str]
    """How `materialize` waits, in words; stored with every measurement."""

    simulated: bool = False
    """True where a stand-in device runs: such records never compare and never reach a page."""

    @classmethod
    @abc.abstractmethod
    def preflight(cls) -> None:
        """Say at once, without importing torch, whether the backend can be opened here.

        Raises `BackendUnavailable` with one sentence: what is missing and where to get it.
        """

    @classmethod
    def no_such_mode(cls, mode: str) -> str | None:
        """Why this backend cannot run in `mode`, in one sentence; None where it offers the mode."""
        return None if mode in cls.modes else f"backend {cls.name} has no {mode} mode; it has {', '.join(cls.modes)}"

    @abc.abstractmethod
    def open(self) -> None:
        """Initialise the runtime and take the device.

        Raises `BackendUnavailable`, where the device stays busy after bounded retries as well.
        """

    @property
    @abc.abstractmethod
    def device(self) -> torch.device:
        """Where models and inputs must live."""

    @abc.abstractmethod
    def materialize(self, outputs: Sequence[torch.Tensor]) -> None:
        """Block until every output exists, by reading one element of each back to the host."""

    @abc.abstractmethod
    def counters(self) -> Counters:
        """Running totals of compiles, compile seconds and host fallbacks since `open`."""

    @abc.abstractmethod
    def unsupported(self, precision: str, mode: str) -> str | None:
        """Why this precision and mode cannot run here, found by trying; None where they can."""

    @abc.abstractmethod
    def compile(self, function: Callable[..., Any], mode: str) -> Callable[..., Any]:
        """`function` itself for mode "eager", else run through the backend's own graph compiler, static shapes."""

    @contextmanager
    @abc.abstractmethod
    def numerics(self, precision: str) -> Iterator[dict[str, Scalar]]:
        """Set every numerics switch for `precision`, yield what is in force, and restore what was there before.

        Raises `UsageError` where a deprecated switch that changes dtypes behind Python's back is set.
        """

    @abc.abstractmethod
    def describe(self) -> Device:
        """The device that ran, read back from the runtime."""

    @abc.abstractmethod
    def versions(self) -> dict[str, str]:
        """Versions of torch and of the backend's own packages, drivers and compilers, by distribution name."""

    @abc.abstractmethod
    def flags(self) -> dict[str, Scalar]:
        """Environment variables and settings, by allow-list, that can change what is computed or how fast."""

    @abc.abstractmethod
    def reset_memory_peak(self) -> None:
        """Start a new peak; call after `materialize`, since allocators are asynchronous."""

    @abc.abstractmethod
    def memory_peak(self) -> MemoryUse:
        """Peak device memory since `reset_memory_peak`."""

    @abc.abstractmethod
    def compile_cache_state(self) -> str | None:
        """State of the persistent compile cache as found at `open`.

        One of "cold", "warm", and "none" where there is no such cache; None if unknown.
        """

    @abc.abstractmethod
    def classify(self, error: BaseException) -> Status:
        """The status that an exception of this backend's runtime means; `Status.FAILED` for all others."""
