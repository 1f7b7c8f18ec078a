"""Energy counters: joules of a stated boundary, or no number and the reason.

A meter reads a running total; callers subtract two readings. Every meter names its boundary, because joules of a
GPU board and joules of a CPU package answer different questions. Neuron devices publish only a percentage of rated
power and no watts (Neuron documentation, neuron-monitor), so no joules are derived for them.
"""

from __future__ import annotations

import abc
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trnbench.device import Device

POWERCAP_ROOT = Path("/sys/class/powercap")


class EnergyMeter(abc.ABC):
    """A running total of joules. `source` names the counter and its boundary, None where there is no counter."""

    source: str | None
    reason: str = ""
    """Why `read` gives None; empty where it gives joules."""

    @abc.abstractmethod
    def read(self) -> float | None:
        """Joules since the meter was opened, or None where they are not known."""


class NoMeter(EnergyMeter):
    """Stands where no counter can be read, and says why."""

    source = None

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def read(self) -> float | None:
        """Always None."""
        return None


class RaplZone:
    """One powercap zone, its wraparounds undone.

    The counter runs modulo `max_energy_range_uj` (Linux, Documentation/power/powercap/powercap.rst), so a reading
    below the last one means exactly one wrap: at 300 W a range of 262 kJ lasts a quarter of an hour, and rounds
    are read far more often than that.
    """

    def __init__(self, path: Path) -> None:
        self.name = (path / "name").read_text().strip()
        self._counter = path / "energy_uj"
        self._range = int((path / "max_energy_range_uj").read_text())
        self._last = int(self._counter.read_text())
        self._total = 0

    def microjoules(self) -> int:
        """Microjoules since the zone was opened."""
        now = int(self._counter.read_text())
        step = now - self._last
        self._total += step if step >= 0 else step + self._range
        self._last = now
        return self._total


class RaplMeter(EnergyMeter):
    """The host's processor packages and, where the kernel shows them, their memory, through Linux powercap.

    Raises `OSError` or `ValueError` where a zone cannot be read, `LookupError` where there is none.
    """

    def __init__(self, root: Path = POWERCAP_ROOT) -> None:
        # psys covers the packages too, and core and uncore lie inside their package: counting them would count twice.
        paths = [path for path in sorted(root.glob("intel-rapl*:*")) if (path / "energy_uj").exists()]
        self._zones = [RaplZone(path) for path in paths if _counts(path)]
        if not self._zones:
            raise LookupError(f"no RAPL package zone under {root}")
        names = ", ".join(zone.name for zone in self._zones)
        self.source = f"RAPL energy_uj of {names}: processor packages and their memory, without accelerators"

    def read(self) -> float | None:
        """Joules of all zones together; None once a zone cannot be read."""
        try:
            return sum(zone.microjoules() for zone in self._zones) / 1e6
        except (OSError, ValueError) as error:
            self.reason = f"RAPL counter could not be read: {type(error).__name__}"
            return None


class NvmlMeter(EnergyMeter):
    """One NVIDIA GPU's total energy counter, in millijoules since the driver was loaded (NVML, Volta and newer).

    The GPU is found by UUID, because NVML counts physical devices and the framework counts visible ones.
    """

    def __init__(self, nvml: Any, uuid: str) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        self._start: int = nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        self.source = "NVML nvmlDeviceGetTotalEnergyConsumption: one GPU board with its memory, without the host"

    def read(self) -> float | None:
        """Joules of the board since the meter was opened; None once the driver refuses to answer."""
        try:
            now: int = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        except self._nvml.NVMLError as error:
            self.reason = f"NVML energy counter could not be read: {error}"
            return None
        return (now - self._start) / 1000


def open_meter(device: Device, powercap_root: Path = POWERCAP_ROOT) -> EnergyMeter:
    """The counter whose boundary holds the device that runs, or a `NoMeter` with the reason. Never raises."""
    if device.chip == "cpu":
        return _open_rapl(powercap_root)
    if device.platform == "cuda":
        return _open_nvml()
    if device.platform == "neuron":
        return NoMeter("Neuron publishes only a percentage of rated power and no watts")
    return NoMeter(f"no energy counter is known for platform {device.platform!r}")


def _counts(zone: Path) -> bool:
    name = (zone / "name").read_text().strip()
    return name.startswith("package-") or name == "dram"


def _open_rapl(root: Path) -> EnergyMeter:
    try:
        return RaplMeter(root)
    except LookupError as error:
        return NoMeter(f"{error.args[0]}: this processor or virtual machine shows no energy counter")
    except PermissionError:
        return NoMeter("the RAPL counter energy_uj is readable by root only")
    except (OSError, ValueError) as error:
        return NoMeter(f"RAPL counter could not be read: {type(error).__name__}")


def _open_nvml() -> EnergyMeter:
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        return NoMeter("nvidia-ml-py is not installed; it comes with the extra trnbench[energy]")
    import torch

    uuid = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    try:
        return NvmlMeter(pynvml, uuid)
    except pynvml.NVMLError as error:
        return NoMeter(f"NVML has no energy counter for this GPU: {error}")
