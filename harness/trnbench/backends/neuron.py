"""Native Neuron devices (Trainium2, Trainium3): torch-neuronx 2.13 and later, device type `neuron`.

What is known of the package is its documentation (SDK 2.33) and a public development tree of April 2026; private
functions are therefore called guardedly, and a count that cannot be read is None. The device's events are never used
as timers: `elapsed_time` subtracts the host's clock at the two `record` calls, which is when work was queued.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trnbench.backends import neuron_flags, neuron_hardware
from trnbench.backends.failures import classify_error, failure_reason, retry_when_busy
from trnbench.backends.neuron_preflight import check_installation, declared_simulated
from trnbench.backends.packages import installed_version
from trnbench.backends.settings import COMMON_VARIABLES, refuse_deprecated
from trnbench.backends.torch_device import TorchBackend
from trnbench.device import Counters, Device, MemoryUse, Scalar
from trnbench.status import BackendUnavailable, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

HOST_READS = frozenset({"aten::_local_scalar_dense", "aten::_to_copy", "aten::_copy_from", "aten::item"})
"""Operators that end on the host by their nature; reading a result is not a fallback."""

_LIAR = 0.5
"""An event that reports less than this share of the wall-clock time has timed something else than the work."""


class NeuronBackend(TorchBackend):
    """One logical NeuronCore through PyTorch's own device interface."""

    name: ClassVar[str] = "neuron"
    modes: ClassVar[tuple[str, ...]] = ("eager", "compiled")
    compiler: ClassVar[str] = "neuron"
    sync_method: ClassVar[str] = "torch.neuron.synchronize(), then one element of each output read back"
    distributions: ClassVar[tuple[str, ...]] = ("torch", "torch-neuronx", "neuronx-cc", "libneuronxla", "nki", "nrtpy")
    variables: ClassVar[tuple[str, ...]] = (*COMMON_VARIABLES, *neuron_flags.VARIABLES)

    sysfs: ClassVar[Path] = neuron_hardware.SYSFS
    proc: ClassVar[Path] = neuron_hardware.PROC
    dpkg_status: ClassVar[Path] = neuron_hardware.DPKG_STATUS
    busy_wait: ClassVar[float] = 5.0
    """Seconds before the second try to take busy cores; twice as long before the third."""

    @classmethod
    def preflight(cls) -> None:
        """Raise `BackendUnavailable` for what is wrong with the installation or device; imports no torch."""
        check_installation(cls.sysfs, cls.proc, cls.dpkg_status)

    def open(self) -> None:
        """Set the flags, import torch with its Neuron device, and take the cores; busy cores are tried three times.

        Raises `UsageError` for flags that change dtypes, `BackendUnavailable` where the device cannot be had.
        """
        refuse_deprecated()
        self._flags_in_time = "torch" not in sys.modules
        neuron_flags.set_flags()
        hardware = neuron_hardware.read_hardware(self.sysfs)
        # Decided by evidence: without hardware in sysfs nothing here ran on a Trainium, whatever the package says.
        self.simulated = hardware is None or declared_simulated()
        self._hardware = None if self.simulated else hardware
        self._cache_state = self._find_cache_state()
        self._import_device()
        retry_when_busy(self._first_use, wait=self.busy_wait, list_owners="neuron-ls")
        self._fallbacks: dict[str, int] = {}
        self._clear_operators()
        self._count_compiles()

    def _import_device(self) -> None:
        """Import torch, which loads the device by itself unless TORCH_DEVICE_BACKEND_AUTOLOAD=0, and check it."""
        try:
            torch = importlib.import_module("torch")
            self._package: Any = importlib.import_module("torch_neuronx")
        except (ImportError, OSError, RuntimeError) as error:
            status = classify_error(error) or Status.UNSUPPORTED
            cause = error.__cause__ or error
            raise BackendUnavailable(f"torch-neuronx does not load: {failure_reason(str(cause))}", status) from error
        self._module: Any = getattr(torch, "neuron", None)
        if self._module is None or not self._module.is_available():
            raise BackendUnavailable(
                "torch has no usable `neuron` device although torch-neuronx is installed; unset "
                "TORCH_DEVICE_BACKEND_AUTOLOAD and see what `neuron-ls` lists"
            )

    def _first_use(self) -> None:
        import torch

        self._device = torch.device(self.name, self._module.current_device())
        torch.ones(1).to(self._device).add(1).cpu()
        self._module.synchronize()

    @property
    def device(self) -> torch.device:
        """The logical core in use."""
        return self._device

    def wait_for_device(self) -> None:
        """Wait for everything queued on the core."""
        self._module.synchronize()

    def counters(self) -> Counters:
        """Compilations from the package's cache statistics, and operators that ran on the host since `open`.

        The package lists fallback operators by name without a count, so each counts once per reading.
        """
        self._module.synchronize()  # compilation is asynchronous as well
        for operator in self._ask("get_fallback_ops", []):
            if operator not in HOST_READS:
                self._fallbacks[operator] = self._fallbacks.get(operator, 0) + 1
        self._clear_operators()
        compiles, seconds = self._compilations()
        return Counters(compiles=compiles, compile_seconds=seconds, fallbacks=dict(self._fallbacks))

    def _count_compiles(self) -> None:
        """Switch the package's counters on; its variable only works where torch was not imported before `open`."""
        with contextlib.suppress(Exception):  # private, and gone without harm: the count is then None or from Dynamo
            importlib.import_module("torch_neuronx._C")._neuron_set_metrics_enabled(True)

    def _compilations(self) -> tuple[int | None, float | None]:
        """Count and seconds; the statistics cover eager kernels and whole graphs alike. None where unreadable."""
        try:
            statistics = importlib.import_module("torch_neuronx._C")._get_compilation_cache_stats()
            return int(statistics["total_compilations"]), float(statistics["total_compilation_time_ms"]) / 1000
        except Exception:  # a private function may have gone, changed its keys, or fail in any way
            graphs = self._ask("get_dynamo_metrics", None)
            if graphs is None:
                return None, None
            times = [getattr(graph, "torch_neuronx_compile_us", None) for graph in graphs]
            known = [value for value in times if value is not None]
            return len(graphs), sum(known) / 1e6 if len(known) == len(times) else None

    def _ask(self, function: str, otherwise: Any) -> Any:
        """Call a function of the package, wherever this version keeps it; `otherwise` where there is none."""
        for owner in (self._package, self._module):
            found: Callable[[], Any] | None = getattr(owner, function, None)
            if found is not None:
                return found()
        return otherwise

    def _clear_operators(self) -> None:
        self._ask("clear_op_tracking", None)

    def _cannot_compile(self, mode: str) -> str | None:
        """Why torch.compile cannot reach neuronx-cc here, found by compiling one small function."""
        if mode == "eager":
            return None
        import torch

        try:
            doubled = self.compile(lambda value: value * 2 + 1, mode)(torch.ones(4).to(self._device))
            self.materialize([doubled])
        except Exception as error:
            return f"torch.compile(backend='neuron') fails on a small function: {failure_reason(str(error))}"
        return None

    def describe(self) -> Device:
        """What ran: the chip from sysfs, or "cpu" where there is none; cores and memory from the runtime."""
        cores = int(self._module.device_count())
        read_back: dict[str, Scalar] = {
            "outputs_on": ",".join(sorted(self._outputs_on)),
            "accelerator": str(self._device.type),
            "event_timer": self._event_timer(),
        }
        if self._hardware is None:
            return Device(
                backend=self.name, platform="simulated", chip="cpu", chips=1, cores=cores, read_back=read_back
            )
        logical, memory = self._logical_cores(), self._chip_memory()
        per_chip = None
        if self._hardware.cores_per_chip is not None and logical is not None:
            per_chip = max(self._hardware.cores_per_chip // logical, 1)
            read_back["logical_cores_per_chip"] = per_chip
        if logical is not None:
            read_back["logical_core_config"] = logical
        if self._hardware.architecture is not None:
            read_back["architecture"] = self._hardware.architecture
        chips = -(-cores // per_chip) if per_chip else self._hardware.chips
        return Device(
            backend=self.name,
            platform=self.name,
            chip=self._hardware.chip,
            chips=chips,
            cores=cores,
            memory_bytes=memory,
            instance_type=self._hardware.instance_type,
            read_back=read_back,
        )

    def _logical_cores(self) -> int | None:
        """Physical cores that form a logical one, from the runtime, then from neuron-ls."""
        try:
            return int(importlib.import_module("torch_neuronx._C")._get_logical_neuron_cores())
        except Exception:  # private, as above
            listed = neuron_hardware.list_devices()
            return listed[0].logical_core_config if listed else None

    def _chip_memory(self) -> int | None:
        """Memory of one chip in bytes as neuron-ls gives it; the runtime's own figure is that of one core."""
        listed = neuron_hardware.list_devices()
        return listed[0].memory_bytes if listed else None

    def _event_timer(self) -> str:
        """Whether this version's events time the work or only its queueing; reported, never relied on."""
        import torch

        size = 512 if self.simulated else 4096
        operand = torch.ones(size, size).to(self._device)
        product = operand @ operand
        self.materialize([product])
        try:
            first, last = self._module.Event(enable_timing=True), self._module.Event(enable_timing=True)
            started = time.perf_counter()
            first.record()
            for _ in range(8):
                product = product @ operand
            last.record()
            self.materialize([product])
            wall = time.perf_counter() - started
            timed = float(first.elapsed_time(last)) / 1000
        except (AttributeError, NotImplementedError, RuntimeError, TypeError):
            return "absent"
        return "times the queueing of work, not the work" if timed < _LIAR * wall else "agrees with the clock"

    def versions(self) -> dict[str, str]:
        """Installed packages, and on hardware the kernel driver and the runtime library."""
        found = super().versions()
        if self._hardware is not None:
            driver = neuron_hardware.driver_version(self.sysfs)
            runtime = neuron_hardware.runtime_version(self.dpkg_status)
            system = {"aws-neuronx-dkms": driver, "aws-neuronx-runtime-lib": runtime}
            found |= {name: version for name, version in system.items() if version is not None}
        return found

    def flags(self) -> dict[str, Scalar]:
        """Variables in force, and whether they were set before torch and the package were imported."""
        return {**super().flags(), "neuron.flags_set_before_import": self._flags_in_time}

    def reset_memory_peak(self) -> None:
        """Start a new peak, once the asynchronous allocator has caught up."""
        self._module.synchronize()
        reset = getattr(self._module, "reset_peak_memory_stats", None)
        if reset is not None:
            reset()

    def memory_peak(self) -> MemoryUse:
        """Peak of allocated device memory; None where this version of the package keeps no peak."""
        self._module.synchronize()
        peak = getattr(self._module, "max_memory_allocated", None)
        if peak is None:
            version = installed_version("torch-neuronx")
            return MemoryUse(peak_bytes=None, source=f"torch-neuronx {version} keeps no peak of allocated memory")
        return MemoryUse(peak_bytes=int(peak()), source="torch.neuron.max_memory_allocated")

    def compile_cache_state(self) -> str | None:
        """State of the on-disk cache of compiled kernels as found at `open`."""
        return self._cache_state

    def _find_cache_state(self) -> str:
        if self.simulated or os.environ.get("TORCH_NEURONX_NEFF_DISABLE_CACHE", "0") == "1":
            return "none"
        folder = Path(os.environ.get(neuron_flags.CACHE_VARIABLE, neuron_flags.DEFAULT_CACHE))
        return "warm" if folder.is_dir() and any(folder.iterdir()) else "cold"
