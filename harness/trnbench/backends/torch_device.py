"""What all backends share: compile, numerics, counters, versions, flags, failures; and devices of torch.accelerator.

`TorchBackend` needs from a subclass only how to open, name, wait for and describe its device. `AcceleratorBackend`
adds what PyTorch's device-neutral interface offers to every stream-ordered device: CUDA, ROCm, XPU and Neuron.
"""

from __future__ import annotations

import abc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from trnbench.backends import precision_probe
from trnbench.backends.base import Backend
from trnbench.backends.compile_watch import CompileWatch, inductor_cache_state
from trnbench.backends.failures import classify_error, retry_when_busy
from trnbench.backends.packages import installed_versions
from trnbench.backends.settings import COMMON_VARIABLES, environment_flags
from trnbench.backends.switches import numerics_switches
from trnbench.device import Counters, Device, MemoryUse, Scalar
from trnbench.status import BackendUnavailable, CaseError, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch


class TorchBackend(Backend):
    """Everything that does not depend on the device. Subclasses must say how to wait: `wait_for_device`."""

    compiler: ClassVar[str] = "inductor"
    """Name that torch.compile knows the graph compiler by."""

    distributions: ClassVar[tuple[str, ...]] = ("torch",)
    """Installed packages whose versions a record keeps."""

    variables: ClassVar[tuple[str, ...]] = COMMON_VARIABLES
    """Environment variables that `flags` reports where they are set."""

    def __init__(self) -> None:
        self._watch = CompileWatch()
        self._outputs_on: set[str] = set()
        self._compile_cache: str | None = None
        self._refusals: dict[tuple[str, str], str | None] = {}

    @abc.abstractmethod
    def wait_for_device(self) -> None:
        """Block until all work handed to the device so far has run."""

    def materialize(self, outputs: Sequence[torch.Tensor]) -> None:
        """Block until every output exists, by waiting for the device and reading one element of each back.

        Raises `CaseError(INVALID)` without outputs, since there would be nothing to prove that work was done, and
        `CaseError(FALLBACK)` where an output lives on another kind of device than this backend's.
        """
        firsts = [self._first_element(output) for output in outputs]
        if not firsts:
            raise CaseError(Status.INVALID, "the step returned no output, so nothing shows that it ran")
        self.wait_for_device()
        for first in firsts:
            first.cpu()

    def _first_element(self, output: torch.Tensor) -> torch.Tensor:
        """A view of at most one element: no copy, and on lazy devices the same small part of every round's graph."""
        if output.device.type != self.device.type:
            raise CaseError(
                Status.FALLBACK,
                f"an output lives on {output.device.type}, not on {self.device.type}: work left the device",
            )
        self._outputs_on.add(str(output.device))
        return output.detach()[(slice(0, 1),) * output.dim()]

    def counters(self) -> Counters:
        """Compilations by TorchDynamo of forward and backward graphs; no operator of these devices falls back."""
        return Counters(compiles=self._watch.compiles, compile_seconds=self._watch.seconds)

    def unsupported(self, precision: str, mode: str) -> str | None:
        """Why `precision` and `mode` cannot run here, found by trying once; None where they can."""
        absent = self.no_such_mode(mode)
        if absent is not None:
            return absent
        key = (precision, mode)
        if key not in self._refusals:
            self._refusals[key] = precision_probe.refusal(self, precision) or self._cannot_compile(mode)
        return self._refusals[key]

    def _cannot_compile(self, mode: str) -> str | None:
        """Why `mode` "compiled" lacks a compiler; subclasses say."""
        return None

    def compile(self, function: Callable[..., Any], mode: str) -> Callable[..., Any]:
        """`function` itself for "eager"; else one static graph, or `CaseError(FALLBACK)` when shapes run out."""
        self._check_mode(mode)
        return function if mode == "eager" else self._watch.compiled(function, self.compiler)

    def _check_mode(self, mode: str) -> None:
        absent = self.no_such_mode(mode)
        if absent is not None:
            raise CaseError(Status.UNSUPPORTED, absent)

    @contextmanager
    def numerics(self, precision: str) -> Iterator[dict[str, Scalar]]:
        """Every switch set for `precision`, what is in force yielded, all restored. See `switches`."""
        with numerics_switches(precision) as in_force:
            yield in_force

    def versions(self) -> dict[str, str]:
        """Installed distributions that decide what runs, by name."""
        return installed_versions(self.distributions)

    def flags(self) -> dict[str, Scalar]:
        """Allow-listed environment variables without paths or names, and PyTorch's threads."""
        import torch

        return {
            **environment_flags(self.variables),
            "torch.num_threads": torch.get_num_threads(),
            "torch.num_interop_threads": torch.get_num_interop_threads(),
        }

    def compile_cache_state(self) -> str | None:
        """State of inductor's cache of compiled graphs on disk, as found at `open`; None before it."""
        return self._compile_cache

    def _note_compile_cache(self) -> None:
        """Called by `open`: look at the cache before this process adds to it."""
        self._compile_cache = inductor_cache_state()

    def classify(self, error: BaseException) -> Status:
        """The status that `error`, or what it was raised from, means; FAILED where no table knows it."""
        return classify_error(error) or Status.FAILED


class AcceleratorBackend(TorchBackend):
    """A device that torch.accelerator knows. Subclasses say which types they accept and how to list owners."""

    modes: ClassVar[tuple[str, ...]] = ("eager", "compiled")
    sync_method: ClassVar[str] = "torch.accelerator.synchronize(), then one element of each output read back"

    device_types: ClassVar[tuple[str, ...]]
    """Values of `torch.accelerator.current_accelerator().type` that this backend may use."""

    busy_wait: ClassVar[float] = 5.0
    """Seconds before the second try to take a busy device."""

    def open(self) -> None:
        """Take device 0 and run one operation on it; a busy device is tried three times.

        Raises `BackendUnavailable` where there is no such device, or where it stays busy.
        """
        import torch

        found = torch.accelerator.current_accelerator(check_available=True)
        if found is None or found.type not in self.device_types:
            seen = "none" if found is None else found.type
            wanted = " or ".join(self.device_types)
            raise BackendUnavailable(f"backend {self.name} needs a device of type {wanted}; PyTorch finds {seen}")
        self._note_compile_cache()
        self._device = torch.device(found.type, 0)
        retry_when_busy(self._first_use, wait=self.busy_wait, list_owners=self.list_owners())

    @abc.abstractmethod
    def list_owners(self) -> str:
        """Command that shows which processes hold the device."""

    def _first_use(self) -> None:
        """The first operation on a device is what fails where another process owns it."""
        import torch

        torch.accelerator.set_device_index(0)
        torch.ones(1, device=self._device).add(1).cpu()

    @property
    def device(self) -> torch.device:
        """Device 0 of the type that PyTorch found at `open`."""
        return self._device

    def wait_for_device(self) -> None:
        """Wait for all streams of the device."""
        import torch

        torch.accelerator.synchronize()

    def describe(self) -> Device:
        """Name, memory and count as the runtime gives them; where outputs really were is in `read_back`."""
        import torch

        properties = torch.get_device_module(self._device).get_device_properties(0)
        name = str(properties.name)
        return Device(
            backend=self.name,
            platform=self._platform(),
            chip=self._chip(name),
            chips=torch.accelerator.device_count(),
            cores=torch.accelerator.device_count(),
            memory_bytes=int(properties.total_memory),
            read_back={"name": name, "outputs_on": ",".join(sorted(self._outputs_on)), **self._read_back(properties)},
        )

    def _platform(self) -> str:
        """The runtime below PyTorch's device type; ROCm calls its devices cuda."""
        import torch

        if self._device.type == "cuda" and torch.version.hip is not None:
            return "rocm"
        return self._device.type

    def _chip(self, runtime_name: str) -> str:
        """The catalog's name for the runtime's, or the runtime's own where the catalog has none."""
        from trnbench.catalog.chips import chip_for_device_name

        chip = chip_for_device_name(runtime_name)
        return runtime_name if chip is None else chip.chip

    def _read_back(self, properties: Any) -> dict[str, Scalar]:
        """Further facts from the runtime's own description of the device."""
        return {}

    def reset_memory_peak(self) -> None:
        """Start a new peak of the allocator."""
        import torch

        torch.accelerator.synchronize()
        torch.accelerator.reset_peak_memory_stats()

    def memory_peak(self) -> MemoryUse:
        """Peak of bytes that tensors held, not of what the allocator kept in reserve."""
        import torch

        torch.accelerator.synchronize()
        return MemoryUse(
            peak_bytes=int(torch.accelerator.max_memory_allocated()), source="torch.accelerator.max_memory_allocated"
        )
