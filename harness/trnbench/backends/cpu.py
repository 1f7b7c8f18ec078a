"""The host's processor: the backend that every machine has, eager and through inductor's C++."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from trnbench.backends.host import ResidentPeak, cpu_packages, total_memory, usable_cores
from trnbench.backends.packages import installed_version
from trnbench.backends.torch_device import TorchBackend
from trnbench.device import Device, MemoryUse
from trnbench.status import BackendUnavailable

if TYPE_CHECKING:
    import torch

_COMPILERS = ("g++", "clang++", "c++")


class CpuBackend(TorchBackend):
    """PyTorch on the CPU. Its operators return when they are done; waiting still reads the outputs."""

    name: ClassVar[str] = "cpu"
    modes: ClassVar[tuple[str, ...]] = ("eager", "compiled")
    sync_method: ClassVar[str] = "CPU operators return when done; one element of each output read"

    @classmethod
    def preflight(cls) -> None:
        """PyTorch must be installed. Raises `BackendUnavailable`."""
        if installed_version("torch") is None:
            raise BackendUnavailable("backend cpu needs PyTorch, which is not installed here: pip install torch")

    def open(self) -> None:
        """Nothing to take: the host is always there."""
        import torch

        self._device = torch.device("cpu")
        self._memory = ResidentPeak()
        self._note_compile_cache()

    @property
    def device(self) -> torch.device:
        """`torch.device("cpu")`."""
        return self._device

    def wait_for_device(self) -> None:
        """CPU operators return when they are done."""

    def _cannot_compile(self, mode: str) -> str | None:
        """Inductor writes C++ for the CPU: it needs a compiler and Python's headers."""
        if mode == "eager":
            return None
        if not any(shutil.which(name) for name in (os.environ.get("CXX") or "c++", *_COMPILERS)):
            return f"compiled mode on the CPU needs a C++ compiler; none of {', '.join(_COMPILERS)} is on the PATH"
        if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
            return "compiled mode on the CPU needs Python.h; install the headers of this Python"
        return None

    def describe(self) -> Device:
        """The processor as the operating system and PyTorch describe it."""
        import torch

        return Device(
            backend=self.name,
            platform="cpu",
            chip="cpu",
            chips=cpu_packages(),
            cores=usable_cores(),
            memory_bytes=total_memory(),
            read_back={
                "outputs_on": ",".join(sorted(self._outputs_on)),
                "capability": torch.backends.cpu.get_cpu_capability(),
                "threads": torch.get_num_threads(),
            },
        )

    def reset_memory_peak(self) -> None:
        """Start a new peak of resident memory."""
        self._memory.reset()

    def memory_peak(self) -> MemoryUse:
        """Peak resident memory of this process, weights and Python included."""
        return self._memory.read()
