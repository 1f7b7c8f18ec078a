"""torch-xla: Trainium1 and Inferentia2 on AWS's pinned releases, TPU, and XLA on the CPU as the stand-in of CI.

torch-xla is lazy: `torch_xla.sync()` hands a graph over and returns before it has run, so does `sync(wait=True)`;
`wait_device_ops()` waits. Counters are those of `torch_xla.debug.metrics` (torch-xla 2.9).
"""

from __future__ import annotations

import importlib
import logging
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trnbench.backends.failures import classify_error, failure_reason, retry_when_busy
from trnbench.backends.host import ResidentPeak, cpu_packages, total_memory, usable_cores
from trnbench.backends.neuron_hardware import read_hardware
from trnbench.backends.packages import AWS_INDEX, installed_version, is_placeholder, release, same_minor
from trnbench.backends.settings import COMMON_VARIABLES, XLA_VARIABLES
from trnbench.backends.torch_device import TorchBackend
from trnbench.device import Counters, Device, MemoryUse, Scalar
from trnbench.status import BackendUnavailable, Status, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

NOT_FALLBACKS = frozenset({"aten::_local_scalar_dense"})
"""Counted like operators run on the host, but only ways of reading a number back."""

_NATIVE_SINCE = (2, 13)
"""torch-neuronx of this and later releases is no longer torch-xla's (backend neuron)."""

_ARCHITECTURE = Path("/sys/devices/virtual/neuron_device/neuron0/info/architecture")
_LIST_OWNERS = {"NEURON": "neuron-ls", "TPU": "tpu-info"}


def _part(name: str) -> Any:
    """A module of torch-xla, which ships no types and is imported only once the backend opens."""
    return importlib.import_module(name)


class XlaBackend(TorchBackend):
    """Whatever device torch-xla's runtime really opened; PJRT_DEVICE is only a wish."""

    name: ClassVar[str] = "xla"
    modes: ClassVar[tuple[str, ...]] = ("compiled",)
    sync_method: ClassVar[str] = "torch_xla.sync(), wait_device_ops(), then one element of each output read back"
    distributions: ClassVar[tuple[str, ...]] = (
        *("torch", "torch-xla", "torch-neuronx", "neuronx-cc", "libneuronxla", "libtpu"),
    )
    variables: ClassVar[tuple[str, ...]] = (*COMMON_VARIABLES, *XLA_VARIABLES)

    @classmethod
    def preflight(cls) -> None:
        """torch and torch-xla of one release, and AWS's package where PJRT_DEVICE asks for Neuron.

        Raises `BackendUnavailable`.
        """
        torch_version, xla_version = installed_version("torch"), installed_version("torch-xla")
        if torch_version is None or xla_version is None:
            absent = "torch" if torch_version is None else "torch-xla"
            raise BackendUnavailable(
                f"backend xla needs {absent}, which is not installed here: pip install trnbench[xla]"
            )
        if not same_minor(torch_version, xla_version):
            raise BackendUnavailable(
                f"torch-xla {xla_version} needs torch of the same release, but torch {torch_version} is installed",
                Status.VERSION_MISMATCH,
            )
        if os.environ.get("PJRT_DEVICE") == "NEURON":
            _check_neuron_package()

    def open(self) -> None:
        """Start the runtime on the device it chooses; a busy one is tried three times. Raises `BackendUnavailable`."""
        self._wish = os.environ.get("PJRT_DEVICE")
        if self._wish == "NEURON":
            # Read when the runtime starts: round to nearest, unless the user chose otherwise, which is recorded.
            os.environ.setdefault("NEURON_RT_STOCHASTIC_ROUNDING_EN", "0")
        self._cache_state = compile_cache_state(self._wish)
        self._memory = ResidentPeak()
        try:
            retry_when_busy(self._first_use, list_owners=_LIST_OWNERS.get(self._wish or "", "lsof /dev/accel*"))
        except BackendUnavailable:
            raise
        except Exception as error:
            status = classify_error(error) or Status.UNSUPPORTED
            raise BackendUnavailable(f"backend xla cannot start: {failure_reason(str(error))}", status) from error
        self._runtime_device = str(_part("torch_xla.runtime").device_type())
        if self._wish is not None and self._runtime_device != self._wish.upper():
            raise BackendUnavailable(
                f"PJRT_DEVICE={self._wish} was asked for, but the runtime opened {self._runtime_device}"
            )

    def _first_use(self) -> None:
        import torch

        self._device: torch.device = _part("torch_xla").device()
        ones = torch.ones(1, device=self._device)
        self.wait_for_device()
        ones.cpu()

    @property
    def device(self) -> torch.device:
        """torch-xla's default device."""
        return self._device

    def wait_for_device(self) -> None:
        """Close the step's graph, hand it over and wait until it has run: the step boundary belongs here."""
        _part("torch_xla").sync()
        _part("torch_xla.core.xla_model").wait_device_ops()

    def counters(self) -> Counters:
        """Graphs that were compiled, the time it took, and each operator that ran on the host."""
        metrics = _part("torch_xla.debug.metrics")
        compile_time = metrics.metric_data("CompileTime")
        ran_on_host = {name for name in metrics.counter_names() if name.startswith("aten::")} - NOT_FALLBACKS
        return Counters(
            compiles=metrics.counter_value("UncachedCompile") or 0,
            compile_seconds=compile_time[1] / 1e9 if compile_time else 0.0,
            fallbacks={name: metrics.counter_value(name) for name in sorted(ran_on_host)},
        )

    def compile(self, function: Callable[..., Any], mode: str) -> Callable[..., Any]:
        """`function` itself: torch-xla compiles what it recorded at the end of each step."""
        self._check_mode(mode)
        return function

    @contextmanager
    def numerics(self, precision: str) -> Iterator[dict[str, Scalar]]:
        """Also XLA's matmul precision and, on Neuron, the compiler's auto-cast. Raises `UsageError` as `auto_cast`."""
        xla = _part("torch_xla.backends")
        before = xla.get_mat_mul_precision()
        with super().numerics(precision) as in_force, _compiler_flags(self._runtime_device, precision) as compiler:
            _set_matmul_precision("highest" if precision == "fp32" else "default")
            try:
                yield {**in_force, **compiler, "xla.mat_mul_precision": xla.get_mat_mul_precision()}
            finally:
                _set_matmul_precision(before)

    def describe(self) -> Device:
        """The device that the runtime opened. XLA on the CPU is a CPU, whatever was asked for."""
        runtime = _part("torch_xla.runtime")
        runtime_device = str(runtime.device_type())
        kind = str(_part("torch_xla.core.xla_model").xla_device_kind(self._device))
        on_host = runtime_device == "CPU"
        cores = int(runtime.addressable_runtime_device_count())
        chips = cpu_packages() if on_host else len(list(Path("/dev").glob("neuron[0-9]*"))) or cores
        hardware = None if on_host else read_hardware()
        return Device(
            backend=self.name,
            platform=runtime_device.lower(),
            chip="cpu" if on_host else chip_of_kind(kind, neuron_family()),
            chips=chips,
            cores=usable_cores() if on_host else cores,
            memory_bytes=total_memory() if on_host else self._memory_info().get("bytes_limit"),
            instance_type=None if hardware is None else hardware.instance_type,
            read_back={
                "outputs_on": ",".join(sorted(self._outputs_on)),
                "pjrt_device": runtime_device,
                "pjrt_device_asked_for": self._wish or "nothing",
                "device_kind": kind,
                "devices": cores,
            },
        )

    def _memory_info(self) -> dict[str, int]:
        """Empty where the runtime keeps no statistics of its allocator."""
        try:
            return dict(_part("torch_xla.core.xla_model").get_memory_info(self._device))
        except RuntimeError:
            return {}

    def reset_memory_peak(self) -> None:
        """Only the host's peak can start anew."""
        self._memory.reset()

    def memory_peak(self) -> MemoryUse:
        """Host: resident memory. Else the device's peak since the process started, which the runtime cannot reset."""
        if self._runtime_device == "CPU":
            return self._memory.read()
        peak = self._memory_info().get("peak_bytes_used")
        source = "get_memory_info: peak_bytes_used since the process started"
        return MemoryUse(peak_bytes=peak, source=source if peak is not None else "this runtime keeps no peak")

    def compile_cache_state(self) -> str | None:
        """State of the Neuron compiler's cache as found at `open`; XLA on the CPU has none."""
        return self._cache_state


def _check_neuron_package() -> None:
    version = installed_version("torch-neuronx")
    if version is None or is_placeholder("torch-neuronx"):
        what = "is not installed" if version is None else f"{version} is an empty placeholder"
        raise BackendUnavailable(f"PJRT_DEVICE=NEURON, but torch-neuronx {what}; get it from {AWS_INDEX}")
    if release(version)[:2] >= _NATIVE_SINCE:
        raise BackendUnavailable(
            f"torch-neuronx {version} no longer uses torch-xla; run with --backend neuron", Status.VERSION_MISMATCH
        )


def _set_matmul_precision(value: str) -> None:
    """Quietly: torch-xla warns of a second setting because graphs compiled before it keep the first."""
    xla, logger = _part("torch_xla.backends"), logging.getLogger("torch_xla.backends")
    if xla.get_mat_mul_precision() == value:
        return
    was_disabled, logger.disabled = logger.disabled, True
    try:
        xla.set_mat_mul_precision(value)
    finally:
        logger.disabled = was_disabled


@contextmanager
def _compiler_flags(runtime_device: str, precision: str) -> Iterator[dict[str, Scalar]]:
    """Pin the Neuron compiler's auto-cast while a case runs, and put NEURON_CC_FLAGS back."""
    if runtime_device != "NEURON":
        yield {}
        return
    before = os.environ.get("NEURON_CC_FLAGS")
    os.environ["NEURON_CC_FLAGS"] = auto_cast(before or "", precision)
    try:
        yield {
            "neuron.auto_cast": "matmult tf32" if precision == "tf32" else "none",
            "neuron.stochastic_rounding": os.environ.get("NEURON_RT_STOCHASTIC_ROUNDING_EN", "unset"),
        }
    finally:
        if before is None:
            os.environ.pop("NEURON_CC_FLAGS", None)
        else:
            os.environ["NEURON_CC_FLAGS"] = before


def auto_cast(compiler_flags: str, precision: str) -> str:
    """NEURON_CC_FLAGS with the auto-cast that `precision` means: none, or TF32 matmuls.

    The compiler's own default changed with SDK 2.27, so it is always written out. Raises `UsageError` where the
    flags already ask for another cast, which would make the case's precision untrue.
    """
    wanted = {"--auto-cast": "matmult", "--auto-cast-type": "tf32"} if precision == "tf32" else {"--auto-cast": "none"}
    for option, value in re.findall(r"(--auto-cast(?:-type)?)(?:=|\s+)(\S+)", compiler_flags):
        if wanted.get(option, value) != value:
            raise UsageError(f"NEURON_CC_FLAGS has {option}={value}, but a {precision} case needs {wanted[option]}")
    missing = [f"{option}={value}" for option, value in wanted.items() if f"{option}={value}" not in compiler_flags]
    return " ".join([*compiler_flags.split(), *missing])


def neuron_family() -> str | None:
    """The family of instances that the Neuron driver names in sysfs, such as "trn1"; None without the driver."""
    try:
        return (_ARCHITECTURE / "instance_type").read_text("ascii", "replace").strip().lower() or None
    except OSError:
        return None


def chip_of_kind(kind: str, family: str | None) -> str:
    """The catalog's chip for PJRT's device kind; NeuronCore-v2 is in two chips, told apart by the instance family."""
    from trnbench.catalog.chips import chip_for_device_name

    if kind == "NC_v2" and family is not None:
        if family.startswith("trn1"):
            return "trainium1"
        if family.startswith("inf2"):
            return "inferentia2"
    chip = chip_for_device_name(kind)
    return kind if chip is None else chip.chip


def compile_cache_state(pjrt_device: str | None) -> str | None:
    """The persistent cache: "none" without one, "warm" or "cold" for a directory, None for one that lies elsewhere."""
    if pjrt_device != "NEURON":
        return "none"
    flags = os.environ.get("NEURON_CC_FLAGS", "")
    if "--no_cache" in flags:
        return "none"
    chosen = re.search(r"--cache_dir(?:=|\s+)(\S+)", flags)
    place = chosen[1] if chosen else os.environ.get("NEURON_COMPILE_CACHE_URL", "/var/tmp/neuron-compile-cache")
    if "://" in place:
        return None
    directory = Path(place)
    return "warm" if directory.is_dir() and any(directory.iterdir()) else "cold"
