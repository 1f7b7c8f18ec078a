"""The cuda backend: what it says where there is no GPU, and the contract where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import contract
import pytest
import torch

from trnbench.backends import cuda
from trnbench.backends.cuda import CudaBackend, nvidia_driver_version, vendor_of_build
from trnbench.backends.select import open_backend
from trnbench.status import BackendUnavailable, ExitCode, Status

if TYPE_CHECKING:
    from pathlib import Path

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available() and not torch.xpu.is_available(), reason="no GPU here")


@pytest.fixture(scope="module")
def subject() -> contract.Subject:
    return contract.matmul_subject(open_backend("cuda"))


@needs_gpu
@pytest.mark.parametrize("rule", contract.RULES, ids=lambda rule: rule.__name__)
def test_contract(rule: Any, subject: contract.Subject) -> None:
    rule(subject)


@needs_gpu
def test_read_back_names_the_gpu(subject: contract.Subject) -> None:
    device = subject.backend.describe()
    assert device.read_back["name"] == torch.cuda.get_device_name(0)
    assert device.memory_bytes == torch.cuda.get_device_properties(0).total_memory


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place where the driver's files are looked for; empty until a test creates one."""
    monkeypatch.setattr(cuda, "DRIVER_FILES", {name: (str(tmp_path / name),) for name in cuda.DRIVER_FILES})
    monkeypatch.setattr(cuda.sys, "platform", "linux")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (None, "PyTorch, which is not installed"),
        ("2.13.0+cpu", "built without GPU support"),
        ("2.13.0", "no NVIDIA driver is loaded"),
        ("2.13.0+cu130", "no NVIDIA driver is loaded"),
        ("2.13.0+rocm7.0", "no AMD driver is loaded"),
        ("2.13.0+xpu", "no Intel driver is loaded"),
    ],
)
def test_absence_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, driver: Path, version: str | None, words: str
) -> None:
    monkeypatch.setattr(cuda, "installed_version", lambda name: version)
    with pytest.raises(BackendUnavailable, match=words) as absent:
        CudaBackend.preflight()
    assert absent.value.exit_code is ExitCode.BACKEND_UNAVAILABLE
    assert "\n" not in str(absent.value)


def test_a_loaded_driver_passes_and_hidden_gpus_do_not(monkeypatch: pytest.MonkeyPatch, driver: Path) -> None:
    monkeypatch.setattr(cuda, "installed_version", lambda name: "2.13.0+cu130")
    (driver / "NVIDIA").touch()
    CudaBackend.preflight()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(BackendUnavailable, match="hides every GPU"):
        CudaBackend.preflight()


@pytest.mark.skipif(torch.cuda.is_available() or torch.xpu.is_available(), reason="a GPU is here")
def test_opening_without_a_gpu_says_why() -> None:
    """G2: never the CPU instead."""
    with pytest.raises(BackendUnavailable, match="backend cuda cannot start"):
        CudaBackend().open()


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("The NVIDIA driver on your system is too old (found version 11040).", Status.VERSION_MISMATCH),
        ("CUDA error: all CUDA-capable devices are busy or unavailable", Status.BUSY),
        ("Torch not compiled with CUDA enabled", Status.UNSUPPORTED),
    ],
)
def test_why_a_gpu_cannot_start(monkeypatch: pytest.MonkeyPatch, message: str, status: Status) -> None:
    """G3, G4: an old driver and a busy device are told apart from an absent one."""

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(torch, "ones", fails)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(BackendUnavailable) as refused:
        CudaBackend().open()
    assert refused.value.status is status


@pytest.mark.parametrize(
    ("version", "vendor"),
    [("2.13.0", "NVIDIA"), ("2.9.1+cu128", "NVIDIA"), ("2.13.0+rocm7.0", "AMD"), ("2.13.0+xpu", "Intel")],
)
def test_vendor_of_build(version: str, vendor: str) -> None:
    assert vendor_of_build(version) == vendor


def test_driver_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "version"
    monkeypatch.setattr(cuda, "_NVIDIA_VERSION", file)
    assert nvidia_driver_version() is None
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (builder)\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2)\n",
        "ascii",
    )
    assert nvidia_driver_version() == "570.133.20"


@pytest.mark.parametrize(("visible", "kept"), [("0,1", "0,1"), ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "1 by id")])
def test_serial_ids_of_gpus_are_not_published(monkeypatch: pytest.MonkeyPatch, visible: str, kept: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert CudaBackend().flags()["CUDA_VISIBLE_DEVICES"] == kept
