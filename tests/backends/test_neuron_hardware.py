"""What sysfs and neuron-ls say about Neuron hardware, from fixtures in their documented layout; and the flags."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.backends import neuron_flags, neuron_hardware
from trnbench.backends.neuron import NeuronBackend
from trnbench.backends.neuron_hardware import ListedDevice, NeuronListError, parse_neuron_ls, read_hardware
from trnbench.catalog.chips import chip
from trnbench.status import UsageError

if TYPE_CHECKING:
    from pathlib import Path

LISTED = [
    {
        "neuron_device": 0,
        "bdf": "cc:00.0",
        "cpu_affinity": "0-95",
        "numa_node": "-1",
        "connected_to": None,
        "nc_count": 4,
        "logical_neuroncore_config": 2,
        "memory_size": 103079215104,
        "neuroncore_ids": [0, 1, 2, 3],
        "neuron_processes": [{"pid": 17, "command": "python secret.py --token abc", "neuron_runtime_version": "2.35"}],
        "serial_number": "private",
    }
]


def make_sysfs(root: Path, chips: int, name: str = "Trainium2", cores: int = 8) -> Path:
    """The layout of neuron-sysfs-user-guide.rst; `core_count` is in the public driver source."""
    for index in range(chips):
        device = root / f"devices/virtual/neuron_device/neuron{index}"
        (device / "info/architecture").mkdir(parents=True)
        (device / "info/architecture/device_name").write_text(f"{name}\n")
        (device / "info/architecture/arch_type").write_text("NDv3\n")
        (device / "info/architecture/instance_type").write_text("Trn2\n")
        (device / "info/serial_number").write_text("private\n")
        (device / "core_count").write_text(f"{cores}\n")
    for path, text in {"module/neuron/version": "2.31.7.0", "class/dmi/id/product_name": "trn2.48xlarge"}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")
    return root


def test_no_hardware(tmp_path: Path) -> None:
    assert read_hardware(tmp_path) is None
    (tmp_path / "devices/virtual/neuron_device/neuron0").mkdir(parents=True)
    assert read_hardware(tmp_path) is None, "a folder without a description is no device"


@pytest.mark.parametrize("name", ["Trainium1", "Trainium2", "Trainium3", "Inferentia2"])
def test_chip_names_are_the_catalogs(tmp_path: Path, name: str) -> None:
    hardware = read_hardware(make_sysfs(tmp_path, 16, name))
    assert hardware is not None
    assert hardware.chip == chip(name).chip
    assert hardware.device_name == name
    assert (hardware.chips, hardware.cores_per_chip, hardware.driver) == (16, 8, "2.31.7.0")
    assert hardware.instance_type == "trn2.48xlarge"
    assert "private" not in str(hardware)


def test_cores_without_a_count(tmp_path: Path) -> None:
    device = make_sysfs(tmp_path, 1) / "devices/virtual/neuron_device/neuron0"
    (device / "core_count").unlink()
    for core in range(4):
        (device / f"neuron_core{core}").mkdir()
    hardware = read_hardware(tmp_path)
    assert hardware is not None
    assert hardware.cores_per_chip == 4


@pytest.mark.parametrize("product", ["OptiPlex 7010", "m7i.large", "../../etc"])
def test_other_products_are_no_instance_type(tmp_path: Path, product: str) -> None:
    (make_sysfs(tmp_path, 1) / "class/dmi/id/product_name").write_text(product)
    hardware = read_hardware(tmp_path)
    assert hardware is not None
    assert hardware.instance_type is None


def test_neuron_ls() -> None:
    (device,) = parse_neuron_ls(json.dumps(LISTED).encode())
    assert (device.nc_count, device.memory_bytes, device.logical_core_config) == (4, 96 * 2**30, 2)
    assert device.processes == 1
    for private in ("secret", "token", "private", "cc:00.0", "17"):
        assert private not in str(device)


def test_neuron_ls_without_a_device() -> None:
    """It exits 1 and prints nothing."""
    assert parse_neuron_ls(b"") == []
    assert parse_neuron_ls(b"\n") == []


def test_neuron_ls_of_an_older_chip() -> None:
    older = {name: LISTED[0][name] for name in ("neuron_device", "nc_count", "memory_size")}
    (device,) = parse_neuron_ls(json.dumps([older]).encode())
    assert (device.logical_core_config, device.processes) == (None, 0)


@given(
    st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_neuron_ls_prints_anything(output: bytes) -> None:
    """Whatever is printed is a list of devices or one named error."""
    try:
        devices = parse_neuron_ls(output)
    except NeuronListError:
        return
    assert all(isinstance(device, ListedDevice) for device in devices)


def test_runtime_version(tmp_path: Path) -> None:
    assert neuron_hardware.runtime_version(tmp_path / "absent") is None
    status = tmp_path / "status"
    status.write_text("Package: aws-neuronx-runtime-lib-extra\nVersion: 9.9\n")
    assert neuron_hardware.runtime_version(status) is None
    status.write_text("Package: aws-neuronx-runtime-lib\nStatus: ok\nVersion: 2.35.30.0-1a2b3c\n")
    assert neuron_hardware.runtime_version(status) == "2.35.30.0"


def described(monkeypatch: pytest.MonkeyPatch, sysfs: Path, cores: int, logical: int | None) -> Any:
    """A description as on hardware, around a runtime that only counts its cores."""
    backend = NeuronBackend()
    backend._hardware = read_hardware(sysfs)
    backend._module = SimpleNamespace(device_count=lambda: cores)
    backend._device = SimpleNamespace(type="neuron")
    monkeypatch.setattr(backend, "_event_timer", lambda: "absent")
    monkeypatch.setattr(backend, "_logical_cores", lambda: logical)
    monkeypatch.setattr(neuron_hardware, "list_devices", lambda: parse_neuron_ls(json.dumps(LISTED).encode()))
    return backend.describe()


@pytest.mark.parametrize(
    ("cores", "logical", "chips"), [(64, 2, 16), (128, 1, 16), (4, 2, 1), (1, 2, 1), (5, 2, 2), (64, None, 16)]
)
def test_description_on_hardware(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, logical: int | None, chips: int
) -> None:
    """Chips are those that the visible logical cores need; memory is that of one chip."""
    device = described(monkeypatch, make_sysfs(tmp_path, 16), cores, logical)
    assert (device.chip, device.chips, device.cores) == ("trainium2", chips, cores)
    assert device.memory_bytes == 96 * 2**30
    assert device.instance_type == "trn2.48xlarge"


def counting(package: dict[str, Any], statistics: dict[str, float] | None, patch: pytest.MonkeyPatch) -> NeuronBackend:
    """A backend around a package with these functions, whose private statistics are there or not."""
    backend = NeuronBackend()
    backend._module = SimpleNamespace(synchronize=lambda: None)
    backend._package = SimpleNamespace(**package)
    backend._fallbacks = {}
    private = (
        SimpleNamespace() if statistics is None else SimpleNamespace(_get_compilation_cache_stats=lambda: statistics)
    )
    patch.setitem(sys.modules, "torch_neuronx", SimpleNamespace(_C=private))
    patch.setitem(sys.modules, "torch_neuronx._C", private)
    return backend


GRAPHS = [SimpleNamespace(torch_neuronx_compile_us=1_500_000), SimpleNamespace(torch_neuronx_compile_us=500_000)]


@pytest.mark.parametrize(
    ("package", "statistics", "expected"),
    [
        ({}, {"total_compilations": 7, "total_compilation_time_ms": 2500.0}, (7, 2.5)),
        ({"get_dynamo_metrics": lambda: GRAPHS}, {"renamed": 7}, (2, 2.0)),
        ({"get_dynamo_metrics": lambda: GRAPHS}, None, (2, 2.0)),
        ({"get_dynamo_metrics": lambda: [SimpleNamespace()]}, None, (1, None)),
        ({}, None, (None, None)),
    ],
    ids=["statistics", "statistics changed", "graphs only", "graphs without times", "nothing"],
)
def test_compiles_are_counted_or_unknown(
    package: dict[str, Any],
    statistics: dict[str, float] | None,
    expected: tuple[int | None, float | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Private functions may go: the count is then taken from elsewhere, or is None, never zero."""
    counters = counting(package, statistics, monkeypatch).counters()
    assert (counters.compiles, counters.compile_seconds) == expected


def test_fallbacks_without_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a result back ends on the host by its nature and is no fallback; each reading clears the list."""
    names = ["aten::_local_scalar_dense", "aten::nonzero"]
    cleared: list[int] = []
    package = {"get_fallback_ops": lambda: names, "clear_op_tracking": lambda: cleared.append(1)}
    backend = counting(package, None, monkeypatch)
    assert backend.counters().fallbacks == {"aten::nonzero": 1}
    assert backend.counters().fallbacks == {"aten::nonzero": 2}
    assert len(cleared) == 2


def test_flags_keep_what_the_user_chose() -> None:
    environment = {"NEURON_CC_FLAGS": "-O1", "NEURON_RT_STOCHASTIC_ROUNDING_EN": "1"}
    neuron_flags.set_flags(environment)
    assert environment["NEURON_CC_FLAGS"] == "-O1 --auto-cast=none"
    assert environment["NEURON_RT_STOCHASTIC_ROUNDING_EN"] == "1"
    assert environment["TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION"] == "1"
    again = dict(environment)
    neuron_flags.set_flags(again)
    assert again == environment


@pytest.mark.parametrize("flags", ["--auto-cast all", "--auto-cast=matmult", "--auto-cast=none --auto-cast=all"])
def test_automatic_casts_are_refused(flags: str) -> None:
    """The last one counts, as for the compiler."""
    with pytest.raises(UsageError, match="auto-cast"):
        neuron_flags.set_flags({"NEURON_CC_FLAGS": flags})


def test_a_cast_overridden_by_none_is_allowed() -> None:
    environment = {"NEURON_CC_FLAGS": "--auto-cast=all --auto-cast none"}
    neuron_flags.set_flags(environment)
    assert environment["NEURON_CC_FLAGS"] == "--auto-cast=all --auto-cast none"


def test_flags_with_an_open_quote_are_refused() -> None:
    with pytest.raises(UsageError, match="NEURON_CC_FLAGS"):
        neuron_flags.set_flags({"NEURON_CC_FLAGS": "--option='open"})
