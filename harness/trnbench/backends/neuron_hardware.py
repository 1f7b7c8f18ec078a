"""Neuron hardware as the kernel driver and AWS's `neuron-ls` describe it: the evidence for what really ran.

Sources: neuron-sysfs-user-guide.rst and neuron-ls.rst of the Neuron documentation (SDK 2.32), and the public driver
source for the names in `device_name` and for `core_count`. Only allow-listed fields leave this module: the tools
also print instance ids, serial numbers and other users' command lines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from trnbench.catalog.chips import chip_for_device_name
from trnbench.status import TrnBenchError

SYSFS = Path("/sys")
PROC = Path("/proc")
DPKG_STATUS = Path("/var/lib/dpkg/status")
NEURON_LS = "/opt/aws/neuron/bin/neuron-ls"
NATIVE_CHIPS = ("trainium2", "trainium3")
"""Chips that native torch-neuronx supports, by their keys in the catalog."""


class NeuronHardware(msgspec.Struct, frozen=True, kw_only=True):
    """What sysfs says. `chip` is the catalog's key for the driver's `device_name`, or that name where it has none.

    `cores_per_chip` counts physical NeuronCores; None where the driver does not say.
    """

    chip: str
    device_name: str
    chips: int
    cores_per_chip: int | None
    architecture: str | None
    driver: str | None
    instance_type: str | None


class ListedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The allow-listed fields of one device in `neuron-ls --json-output`; `processes` is only how many hold it."""

    neuron_device: int
    nc_count: int
    memory_bytes: int
    logical_core_config: int | None
    processes: int


class _Process(msgspec.Struct):
    pid: int


class _Listed(msgspec.Struct):
    """Unknown fields are skipped; that is where the private ones are."""

    neuron_device: int
    nc_count: int
    memory_size: int
    logical_neuroncore_config: int | None = None
    numa_node: str | int | None = None
    neuron_processes: list[_Process] | None = None


class NeuronListError(TrnBenchError):
    """`neuron-ls` printed something that is not its documented JSON."""


def read_hardware(sysfs: Path = SYSFS) -> NeuronHardware | None:
    """The chips that the driver shows, None where there is none. Several kinds at once give the first's name."""
    devices = sorted((sysfs / "devices/virtual/neuron_device").glob("neuron[0-9]*"))
    described = [device for device in devices if (device / "info/architecture").is_dir()]
    if not described:
        return None
    architecture = described[0] / "info/architecture"
    count = _text(described[0] / "core_count")
    cores = int(count) if count and count.isdigit() else len(list(described[0].glob("neuron_core[0-9]*"))) or None
    name = _text(architecture / "device_name") or "unknown Neuron device"
    known = chip_for_device_name(name)
    return NeuronHardware(
        chip=name if known is None else known.chip,
        device_name=name,
        chips=len(described),
        cores_per_chip=cores,
        architecture=_text(architecture / "arch_type"),
        driver=driver_version(sysfs),
        instance_type=_instance_type(sysfs),
    )


def driver_version(sysfs: Path = SYSFS) -> str | None:
    """Version of the loaded kernel module, None where none is loaded."""
    return _text(sysfs / "module/neuron/version")


def runtime_version(dpkg_status: Path = DPKG_STATUS) -> str | None:
    """Version of the installed runtime library, None where the system's package database does not list it."""
    try:
        text = dpkg_status.read_text("utf-8", "replace")
    except OSError:
        return None
    for paragraph in text.split("\n\n"):
        if re.search(r"^Package: aws-neuronx-runtime-lib$", paragraph, re.MULTILINE):
            found = re.search(r"^Version: (?:\d+:)?([0-9.]+)", paragraph, re.MULTILINE)
            return found[1].rstrip(".") if found else None
    return None


def device_owners(proc: Path = PROC, own: int | None = None) -> int:
    """How many other processes hold a Neuron device open, as far as this user may see; monitors do not count."""
    own = os.getpid() if own is None else own
    return sum(1 for process in proc.glob("[0-9]*") if int(process.name) != own and _holds_device(process))


def _holds_device(process: Path) -> bool:
    if (_text(process / "comm") or "").startswith("neuron-"):
        return False
    try:
        links = list((process / "fd").iterdir())
    except OSError:
        return False
    for link in links:
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if re.fullmatch(r"/dev/neuron\d+", target):
            return True
    return False


def parse_neuron_ls(output: bytes) -> list[ListedDevice]:
    """Devices from `neuron-ls --json-output`; empty output, with which it exits 1, means no device.

    Raises `NeuronListError` where the output is not the documented list.
    """
    if not output.strip():
        return []
    try:
        listed = msgspec.json.decode(output, type=list[_Listed])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NeuronListError(f"neuron-ls printed something other than its list of devices: {error}") from None
    return [
        ListedDevice(
            neuron_device=device.neuron_device,
            nc_count=device.nc_count,
            memory_bytes=device.memory_size,
            logical_core_config=device.logical_neuroncore_config,
            processes=len(device.neuron_processes or []),
        )
        for device in listed
    ]


def list_devices(timeout: float = 10.0) -> list[ListedDevice] | None:
    """Ask `neuron-ls`; None where it is not installed, does not answer in `timeout` seconds or is not understood."""
    program = shutil.which("neuron-ls") or (NEURON_LS if Path(NEURON_LS).is_file() else None)
    if program is None:
        return None
    try:
        done = subprocess.run([program, "--json-output"], capture_output=True, timeout=timeout, check=False)
        return parse_neuron_ls(done.stdout)
    except (OSError, subprocess.TimeoutExpired, NeuronListError):
        return None


def _instance_type(sysfs: Path) -> str | None:
    """EC2 puts the instance type where other machines have their product name; only Neuron types are taken."""
    product = _text(sysfs / "class/dmi/id/product_name") or ""
    return product if re.fullmatch(r"(?:trn|inf)\d[a-z-]*\.\w+", product) else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip() or None
    except OSError:
        return None
