"""Energy counters: wraparound, boundaries, and a reason wherever there are no joules."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.device import Device
from trnbench.measure.energy import NoMeter, NvmlMeter, RaplMeter, open_meter

RANGE = 1_000_000


def device(platform: str, chip: str) -> Device:
    return Device(backend="b", platform=platform, chip=chip, chips=1, cores=1)


def zone(root: Path, folder: str, name: str, microjoules: int, most: int = RANGE) -> Path:
    path = root / folder
    path.mkdir(parents=True, exist_ok=True)
    (path / "name").write_text(f"{name}\n")
    (path / "energy_uj").write_text(f"{microjoules}\n")
    (path / "max_energy_range_uj").write_text(f"{most}\n")
    return path / "energy_uj"


def test_packages_and_memory_add_up_and_nothing_counts_twice(tmp_path: Path) -> None:
    """Two packages and their memory count; psys covers them and core lies inside, so neither does."""
    counters = {
        folder: zone(tmp_path, folder, name, 100)
        for folder, name in {
            "intel-rapl:0": "package-0",
            "intel-rapl:0:0": "core",
            "intel-rapl:0:1": "dram",
            "intel-rapl:1": "package-1",
            "intel-rapl:2": "psys",
        }.items()
    }
    meter = RaplMeter(tmp_path)
    for counter in counters.values():
        counter.write_text("500100\n")
    assert meter.read() == pytest.approx(1.5)
    assert meter.source is not None
    assert "package-0, dram, package-1" in meter.source


@given(start=st.integers(0, RANGE - 1), steps=st.lists(st.integers(0, RANGE - 1), min_size=1, max_size=20))
def test_wraparound_is_undone(tmp_path_factory: pytest.TempPathFactory, start: int, steps: list[int]) -> None:
    """Whatever the start, readings closer than one range add up to the true energy."""
    root = tmp_path_factory.mktemp("powercap")
    counter = zone(root, "intel-rapl:0", "package-0", start)
    meter = RaplMeter(root)
    true = 0
    for step in steps:
        true += step
        counter.write_text(str((start + true) % RANGE))
        assert meter.read() == pytest.approx(true / 1e6)


def test_a_host_without_counters_says_so(tmp_path: Path) -> None:
    meter = open_meter(device("cpu", "cpu"), tmp_path)
    assert (meter.read(), meter.source) == (None, None)
    assert "no RAPL package zone" in meter.reason


def test_a_counter_for_root_only_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels since 5.10 let only root read the counter; the reason names it."""
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    read_text = Path.read_text

    def refused(path: Path, *args: object, **keywords: object) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read_text(path, *args, **keywords)

    monkeypatch.setattr(Path, "read_text", refused)
    meter = open_meter(device("cpu", "cpu"), tmp_path)
    assert meter.read() is None
    assert "root only" in meter.reason


def test_a_counter_that_vanishes_becomes_null_with_a_reason(tmp_path: Path) -> None:
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    meter = RaplMeter(tmp_path)
    counter.unlink()
    assert meter.read() is None
    assert "FileNotFoundError" in meter.reason


@pytest.mark.parametrize(
    ("platform", "reason"), [("neuron", "percentage of rated power"), ("tpu", "no energy counter")]
)
def test_accelerators_without_a_counter_have_no_joules(platform: str, reason: str) -> None:
    """Neuron publishes a percentage and no watts: null with that reason, never a derived figure."""
    meter = open_meter(device(platform, "trn2"))
    assert isinstance(meter, NoMeter)
    assert meter.read() is None
    assert reason in meter.reason


class FakeNvml(SimpleNamespace):
    """The calls of nvidia-ml-py that the meter makes, over counters in millijoules by UUID."""

    NVMLError = type("NVMLError", (Exception,), {})

    def __init__(self, counters: dict[str, int]) -> None:
        super().__init__(counters=counters, nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uuid: uuid)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802 (NVML's own name)
        if handle not in self.counters:
            raise self.NVMLError("Not Supported")
        return self.counters[handle]


def test_the_gpu_is_read_by_uuid_in_joules() -> None:
    """G9: the second GPU's counter is read by its UUID, from the reading at opening, in joules."""
    nvml = FakeNvml({"GPU-a": 5_000, "GPU-b": 7_000})
    meter = NvmlMeter(nvml, "GPU-b")
    nvml.counters.update({"GPU-a": 99_000, "GPU-b": 9_500})
    assert meter.read() == pytest.approx(2.5)
    assert "board" in (meter.source or "")
    del nvml.counters["GPU-b"]
    assert meter.read() is None
    assert "Not Supported" in meter.reason
