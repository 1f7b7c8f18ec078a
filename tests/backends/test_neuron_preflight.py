"""The neuron backend's preflight: each wrong installation and device is one sentence of its own, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trnbench.backends import neuron_preflight
from trnbench.backends.neuron import NeuronBackend
from trnbench.backends.select import open_backend
from trnbench.status import BackendUnavailable, ExitCode, Status


class Machine:
    """A folder of distributions on the import path, and a root of sysfs, proc and dpkg, all made up."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.packages = folder / "packages"
        self.packages.mkdir()
        patch.syspath_prepend(str(self.packages))
        self.root = folder
        patch.setattr(NeuronBackend, "sysfs", folder / "sys")
        patch.setattr(NeuronBackend, "proc", folder / "proc")
        patch.setattr(NeuronBackend, "dpkg_status", folder / "dpkg")
        for name in ("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"):
            patch.delenv(name, raising=False)

    def install(self, requires_python: str = ">=3.10", keywords: str = "", **versions: str) -> Machine:
        for name, version in versions.items():
            info = self.packages / f"{name}-{version}.dist-info"
            info.mkdir()
            text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
            if name == "torch_neuronx":
                text += f"Requires-Python: {requires_python}\n" + (f"Keywords: {keywords}\n" if keywords else "")
            (info / "METADATA").write_text(text)
        return self

    def native(self) -> Machine:
        return self.install(torch="2.14.0", torch_neuronx="2.14.3.0", neuronx_cc="2.28.7631.0")

    def chips(self, name: str = "Trainium2", count: int = 1, driver: str = "2.31.7.0") -> Machine:
        """As in the Neuron sysfs user guide."""
        for index in range(count):
            architecture = self.root / f"sys/devices/virtual/neuron_device/neuron{index}/info/architecture"
            architecture.mkdir(parents=True)
            (architecture / "device_name").write_text(f"{name}\n")
            (architecture / "arch_type").write_text("NDv3\n")
        module = self.root / "sys/module/neuron"
        module.mkdir(parents=True)
        (module / "version").write_text(f"{driver}\n")
        return self

    def runtime(self, version: str) -> Machine:
        (self.root / "dpkg").write_text(
            "Package: bash\nVersion: 5.2\n\n"
            f"Package: aws-neuronx-runtime-lib\nStatus: install ok installed\nVersion: {version}-ab12cd34\n\n"
        )
        return self

    def owner(self, pid: int = 4242, command: str = "python3") -> Machine:
        process = self.root / "proc" / str(pid)
        (process / "fd").mkdir(parents=True)
        (process / "comm").write_text(f"{command}\n")
        (process / "fd/7").symlink_to("/dev/neuron0")
        return self

    def refusal(self) -> BackendUnavailable:
        with pytest.raises(BackendUnavailable) as raised:
            NeuronBackend.preflight()
        assert "\n" not in str(raised.value)
        assert raised.value.exit_code is ExitCode.BACKEND_UNAVAILABLE
        return raised.value


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_asked_for_on_this_machine() -> None:
    """G2: an error, and nothing that could become a row."""
    if Path("/sys/devices/virtual/neuron_device").exists():
        pytest.skip("this machine has a Neuron device")
    with pytest.raises(BackendUnavailable):
        open_backend("neuron")


def test_not_installed(machine: Machine) -> None:
    if neuron_preflight.installed_version("torch-neuronx"):
        pytest.skip("torch-neuronx is installed here")
    refusal = machine.refusal()
    assert refusal.status is Status.UNSUPPORTED
    assert "torch-neuronx is not installed" in str(refusal)
    assert "--extra-index-url https://pip.repos.neuron.amazonaws.com" in str(refusal)


@pytest.mark.parametrize(
    "versions",
    [
        {"torch": "2.14.0", "torch_neuronx": "1.0"},
        {"torch": "2.14.0", "torch_neuronx": "2.14.3.0", "neuronx_cc": "1.0.post1"},
        {"torch": "2.14.0", "torch_neuronx": "2.14.3.0", "nki": "0.0.1"},
    ],
)
def test_placeholder(machine: Machine, versions: dict[str, str]) -> None:
    """The public index's empty packages count as absent, with the hint where the real ones are."""
    refusal = machine.install(**versions).chips().refusal()
    assert str(refusal).startswith("WRONG PACKAGE: ")
    assert "https://pip.repos.neuron.amazonaws.com" in str(refusal)


def test_xla_product(machine: Machine) -> None:
    refusal = machine.install(torch="2.9.1", torch_neuronx="2.9.0.2.13.26312").chips("Trainium1").refusal()
    assert refusal.status is Status.VERSION_MISMATCH
    assert "--backend xla" in str(refusal)


@pytest.mark.parametrize(
    ("versions", "quoted"),
    [
        ({"torch": "2.13.0+cpu", "torch_neuronx": "2.14.3.0"}, ("torch 2.13.0+cpu", "torch-neuronx 2.14.3.0")),
        (
            {"torch": "2.13.0", "torch_neuronx": "2.13.3.0", "neuronx_cc": "2.24.8799.0"},
            ("neuronx-cc 2.24.8799.0", "neuronx-cc 2.28.7631.0"),
        ),
    ],
)
def test_versions_of_different_releases(machine: Machine, versions: dict[str, str], quoted: tuple[str, str]) -> None:
    """G4: a set from different releases is found before the sweep, with both versions in the sentence."""
    refusal = machine.install(**versions).chips().refusal()
    assert refusal.status is Status.VERSION_MISMATCH
    for version in quoted:
        assert version in str(refusal)


def test_wrong_python(machine: Machine) -> None:
    refusal = machine.install(requires_python=">=3.99", torch="2.14.0", torch_neuronx="2.14.3.0").chips().refusal()
    assert refusal.status is Status.VERSION_MISMATCH
    assert ">=3.99" in str(refusal)


def test_no_compiler(machine: Machine) -> None:
    refusal = machine.install(torch="2.14.0", torch_neuronx="2.14.3.0").chips().refusal()
    assert "neuronx-cc is not installed" in str(refusal)


def test_no_device(machine: Machine) -> None:
    refusal = machine.native().refusal()
    assert refusal.status is Status.UNSUPPORTED
    assert "no Neuron device" in str(refusal)


def test_chip_of_the_other_product(machine: Machine) -> None:
    refusal = machine.native().chips("Trainium1").refusal()
    assert "Trainium1" in str(refusal)
    assert "--backend xla" in str(refusal)


@pytest.mark.parametrize(
    ("driver", "runtime", "quoted"),
    [
        ("2.27.4.0", "2.35.30.0", ("2.27.4.0", "2.31")),
        ("2.31.7.0", "2.31.24.0", ("2.31.7.0", "2.31.24.0")),
        ("2.31.7.0", "2.33.10.0", ("2.33.10.0", "2.35.30.0")),
    ],
    ids=["driver older than the package", "driver newer than the runtime", "runtime older than the package"],
)
def test_driver_and_runtime(machine: Machine, driver: str, runtime: str, quoted: tuple[str, str]) -> None:
    """G4: driver and runtime of different releases are a version mismatch in preflight, both versions quoted."""
    refusal = machine.native().chips(driver=driver).runtime(runtime).refusal()
    assert refusal.status is Status.VERSION_MISMATCH
    for version in quoted:
        assert version in str(refusal)


def test_busy(machine: Machine) -> None:
    """G3: another process has the device open; its command line and number stay private."""
    refusal = machine.native().chips().owner().refusal()
    assert refusal.status is Status.BUSY
    assert "neuron-ls" in str(refusal)
    assert "4242" not in str(refusal)
    assert "python3" not in str(refusal)


def test_monitors_and_chosen_cores_are_not_busy(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.native().chips().runtime("2.35.30.0").owner(command="neuron-monitor")
    NeuronBackend.preflight()
    machine.owner(pid=4343)
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "2-3")
    NeuronBackend.preflight()


def test_everything_right(machine: Machine) -> None:
    machine.native().chips(count=16).runtime("2.35.30.0")
    NeuronBackend.preflight()


def test_unknown_newer_release_passes(machine: Machine) -> None:
    """A release that the catalog does not hold yet is judged by its pairing with torch alone."""
    machine.install(torch="2.15.0", torch_neuronx="2.15.1.0", neuronx_cc="2.30.1.0").chips()
    NeuronBackend.preflight()


def test_a_declared_stand_in_needs_no_device(machine: Machine) -> None:
    machine.install(keywords="simulated-device", torch="2.14.0", torch_neuronx="2.14.3.0")
    NeuronBackend.preflight()
    assert neuron_preflight.declared_simulated()


def test_preflight_imports_no_torch_and_is_quick() -> None:
    """Refusing costs the import of a few small modules; torch alone takes longer by an order of magnitude."""
    script = (
        "import sys, time; from trnbench.backends.neuron import NeuronBackend\n"
        "from trnbench.status import BackendUnavailable\n"
        "start = time.perf_counter()\n"
        "try: NeuronBackend.preflight()\n"
        "except BackendUnavailable: pass\n"
        "print(time.perf_counter() - start, 'torch' in sys.modules, 'torch_neuronx' in sys.modules)"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ)
    whole = time.perf_counter() - start
    seconds, torch, package = done.stdout.split()
    assert (torch, package) == ("False", "False")
    assert float(seconds) < whole / 2
