"""Everything that can be wrong with a Neuron installation and be seen without importing torch, one sentence each.

In order: installed at all, the real package, the native product, versions that were released together, a device that
this product supports, a driver that its runtime accepts, cores that nobody else holds.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from trnbench.backends import neuron_hardware
from trnbench.backends.packages import AWS_INDEX, installed_version, is_placeholder, release, same_minor
from trnbench.catalog.neuron_releases import NeuronRelease, neuron_release
from trnbench.status import BackendUnavailable, Status

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.backends.neuron_hardware import NeuronHardware

PACKAGE = "torch-neuronx"
FIRST_NATIVE = (2, 13)
SIMULATED_KEYWORD = "simulated-device"
"""A stand-in distribution carries this keyword in its metadata; nothing it computes is ever a measurement."""

INSTALL = f"pip install torch-neuronx neuronx-cc --extra-index-url {AWS_INDEX}"


def declared_simulated() -> bool:
    """True where the installed torch-neuronx says of itself that it is a stand-in."""
    try:
        keywords = importlib.metadata.metadata(PACKAGE).json.get("keywords", [])
    except importlib.metadata.PackageNotFoundError:
        return False
    return SIMULATED_KEYWORD in keywords


def check_installation(sysfs: Path, proc: Path, dpkg_status: Path) -> None:
    """Raise `BackendUnavailable` with the first thing that is wrong, its status saying of which kind it is."""
    version = _check_package()
    known = neuron_release(version)
    _check_companions(version, known)
    if declared_simulated():
        return
    hardware = neuron_hardware.read_hardware(sysfs)
    if hardware is None:
        raise BackendUnavailable(
            f"torch-neuronx {version} is installed, but the kernel shows no Neuron device: run on a Trn2 or Trn3 "
            "instance, with the driver package aws-neuronx-dkms loaded"
        )
    if hardware.chip not in neuron_hardware.NATIVE_CHIPS:
        raise BackendUnavailable(
            f"this machine has {hardware.device_name}, and native torch-neuronx {version} supports "
            f"{' and '.join(neuron_hardware.NATIVE_CHIPS)} only: use --backend xla with torch-neuronx 2.9"
        )
    if installed_version("neuronx-cc") is None:
        raise BackendUnavailable(f"the compiler neuronx-cc is not installed: {INSTALL}")
    _check_driver(version, known, hardware)
    _check_runtime(version, known, hardware, neuron_hardware.runtime_version(dpkg_status))
    _check_owners(proc)


def _check_package() -> str:
    version = installed_version(PACKAGE)
    if version is None:
        raise BackendUnavailable(f"torch-neuronx is not installed; it comes from AWS's own index: {INSTALL}")
    for distribution in (PACKAGE, "neuronx-cc", "libneuronxla", "nki"):
        if is_placeholder(distribution):
            raise BackendUnavailable(
                f"WRONG PACKAGE: {distribution} {installed_version(distribution)} is the public index's empty "
                f"placeholder; uninstall it and take AWS's: {INSTALL}"
            )
    if release(version)[:2] < FIRST_NATIVE:
        raise BackendUnavailable(
            f"torch-neuronx {version} is the torch-xla product, which has no `neuron` device: use --backend xla, or "
            "install torch-neuronx 2.13 or later for Trn2 and Trn3",
            Status.VERSION_MISMATCH,
        )
    return version


def _check_companions(version: str, known: NeuronRelease | None) -> None:
    torch = installed_version("torch")
    if torch is None:
        raise BackendUnavailable(f"torch is not installed; torch-neuronx {version} needs torch {_minor(version)}")
    if not same_minor(torch, version):
        raise _mismatch(
            f"torch {torch} does not pair with torch-neuronx {version}, which needs torch {_minor(version)}"
        )
    compiler = installed_version("neuronx-cc")
    if compiler is not None and known is not None and not same_minor(compiler, known.neuronx_cc):
        raise _mismatch(
            f"neuronx-cc {compiler} does not pair with torch-neuronx {version} (SDK {known.sdk}), which needs "
            f"neuronx-cc {known.neuronx_cc}"
        )
    wanted, running = _python_wanted(), platform.python_version()
    if wanted is not None and running not in wanted:
        raise _mismatch(f"this is Python {running}, and torch-neuronx {version} needs Python {wanted}")


def _check_driver(version: str, known: NeuronRelease | None, hardware: NeuronHardware) -> None:
    driver = hardware.driver
    if driver is None or known is None:
        return
    if known.driver_minimum is not None and release(driver) < release(known.driver_minimum):
        raise _mismatch(
            f"the Neuron driver is {driver}, and torch-neuronx {version} (SDK {known.sdk}) needs "
            f"{known.driver_minimum} or later: update aws-neuronx-dkms"
        )


def _check_runtime(version: str, known: NeuronRelease | None, hardware: NeuronHardware, runtime: str | None) -> None:
    """Driver 2.29 and later speak only to runtime 2.33 and later (release-notes/components/runtime.rst)."""
    if runtime is None:
        return
    driver = hardware.driver
    if driver is not None and release(driver) >= (2, 29) and release(runtime) < (2, 33):
        raise _mismatch(
            f"the Neuron driver is {driver} and the runtime library {runtime}; this driver needs runtime 2.33 or "
            "later: update aws-neuronx-runtime-lib"
        )
    if known is not None and release(runtime)[:2] < release(known.runtime)[:2]:
        raise _mismatch(
            f"the Neuron runtime library is {runtime}, and torch-neuronx {version} (SDK {known.sdk}) was released "
            f"with {known.runtime}: update aws-neuronx-runtime-lib"
        )


def _check_owners(proc: Path) -> None:
    """Without a choice of cores a process takes them all, so any other owner is in the way."""
    if os.environ.get("NEURON_RT_VISIBLE_CORES") or os.environ.get("NEURON_RT_NUM_CORES", "0") != "0":
        return
    owners = neuron_hardware.device_owners(proc)
    if owners:
        raise BackendUnavailable(
            f"the Neuron cores are held by {owners} other process(es); list them with `neuron-ls`, or choose free "
            "cores with NEURON_RT_VISIBLE_CORES",
            Status.BUSY,
        )


def _python_wanted() -> SpecifierSet | None:
    requires = importlib.metadata.metadata(PACKAGE).json.get("requires_python")
    try:
        return SpecifierSet(str(requires)) if requires else None
    except InvalidSpecifier:
        return None


def _minor(version: str) -> str:
    return ".".join(str(part) for part in release(version)[:2])


def _mismatch(message: str) -> BackendUnavailable:
    return BackendUnavailable(message, Status.VERSION_MISMATCH)
