"""GPUs: NVIDIA, and through the same device-neutral interface of PyTorch those of AMD (ROCm) and Intel (XPU).

What it is called is one thing, what ran another: platform and chip are read back from the runtime.
"""

from __future__ import annotations

import os
import re
import sys
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trnbench.backends.failures import classify_error, failure_reason
from trnbench.backends.packages import installed_version
from trnbench.backends.settings import COMMON_VARIABLES, CUDA_VARIABLES
from trnbench.backends.torch_device import AcceleratorBackend
from trnbench.status import BackendUnavailable, Status

if TYPE_CHECKING:
    from trnbench.device import Scalar

DRIVER_FILES: dict[str, tuple[str, ...]] = {
    "NVIDIA": ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu", "/dev/dxg"),
    "AMD": ("/dev/kfd", "/dev/dxg"),
    "Intel": ("/dev/dri", "/dev/dxg"),
}
"""Files that exist where a vendor's driver is loaded (Linux; /dev/dxg is Windows' GPU seen from inside WSL)."""

_NVIDIA_VERSION = Path("/proc/driver/nvidia/version")


class CudaBackend(AcceleratorBackend):
    """A GPU that torch.accelerator reaches."""

    name: ClassVar[str] = "cuda"
    device_types: ClassVar[tuple[str, ...]] = ("cuda", "xpu")
    distributions: ClassVar[tuple[str, ...]] = ("torch", "triton", "pytorch-triton-rocm", "pytorch-triton-xpu")
    variables: ClassVar[tuple[str, ...]] = (*COMMON_VARIABLES, *CUDA_VARIABLES)

    @classmethod
    def preflight(cls) -> None:
        """A PyTorch built for GPUs, a loaded driver and a visible device. Raises `BackendUnavailable`."""
        version = installed_version("torch")
        if version is None:
            raise BackendUnavailable(
                "backend cuda needs PyTorch, which is not installed here; see pytorch.org for GPUs"
            )
        if version.endswith("+cpu"):
            raise BackendUnavailable(f"torch {version} is built without GPU support; install a CUDA, ROCm or XPU build")
        vendor = vendor_of_build(version)
        if sys.platform == "linux" and not any(Path(file).exists() for file in DRIVER_FILES[vendor]):
            raise BackendUnavailable(f"torch {version} wants an {vendor} GPU, but no {vendor} driver is loaded here")
        if os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
            raise BackendUnavailable("CUDA_VISIBLE_DEVICES hides every GPU; unset it or name one")

    def open(self) -> None:
        """Take the first visible GPU. Raises `BackendUnavailable`: absent, busy, or its driver too old for PyTorch."""
        import torch

        if not torch.accelerator.is_available():
            raise self._absent()
        super().open()

    def list_owners(self) -> str:
        """Each vendor's own tool."""
        tools = {"cuda": "nvidia-smi --query-compute-apps=pid,name --format=csv", "rocm": "rocm-smi --showpids"}
        return tools.get(self._platform(), "xpu-smi ps")

    def _absent(self) -> BackendUnavailable:
        """PyTorch hides why a GPU is not available behind a warning; using it says why."""
        import torch

        try:
            torch.ones(1, device="cuda")
        except (RuntimeError, AssertionError) as error:
            status = classify_error(error) or Status.UNSUPPORTED
            return BackendUnavailable(f"backend cuda cannot start: {failure_reason(str(error))}", status)
        return BackendUnavailable("backend cuda finds no GPU that PyTorch can use")

    def unsupported(self, precision: str, mode: str) -> str | None:
        """As everywhere, found by trying, save that bf16 also runs, emulated, on GPUs that have none."""
        import torch

        if precision == "bf16" and self._device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
            return "this GPU has no bf16 arithmetic; PyTorch would emulate it"
        return super().unsupported(precision, mode)

    def _cannot_compile(self, mode: str) -> str | None:
        """Inductor writes Triton for GPUs."""
        if mode == "eager":
            return None
        from torch.utils._triton import has_triton

        return (
            None if has_triton() else "compiled mode on this GPU needs Triton, which is not installed or too old for it"
        )

    def _read_back(self, properties: Any) -> dict[str, Scalar]:
        facts: dict[str, Scalar] = {}
        if hasattr(properties, "major"):
            facts["capability"] = f"{properties.major}.{properties.minor}"
        for name in ("gcnArchName", "multi_processor_count", "gpu_subslice_count"):
            if isinstance(value := getattr(properties, name, None), str | int):
                facts[name] = value
        return facts

    def versions(self) -> dict[str, str]:
        """Packages, and the CUDA, HIP, cuDNN and driver versions below them."""
        import torch

        below = {
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            "cudnn": methodcaller("version")(torch.backends.cudnn),
            "nvidia-driver": nvidia_driver_version(),
        }
        return super().versions() | {name: str(version) for name, version in below.items() if version is not None}

    def flags(self) -> dict[str, Scalar]:
        """Also which GPUs are visible; those named by their serial ids only by number."""
        flags = super().flags()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            plain = re.fullmatch(r"\d+(,\d+)*", visible)
            flags["CUDA_VISIBLE_DEVICES"] = visible if plain else f"{len(visible.split(','))} by id"
        return flags


def vendor_of_build(torch_version: str) -> str:
    """Whose GPUs a PyTorch build is for, from its version's local label; the public index's Linux build is NVIDIA's."""
    label = torch_version.partition("+")[2]
    if label.startswith("rocm"):
        return "AMD"
    return "Intel" if label.startswith("xpu") else "NVIDIA"


def nvidia_driver_version() -> str | None:
    """Version of the loaded NVIDIA kernel driver, None without one."""
    try:
        text = _NVIDIA_VERSION.read_text("ascii", "replace")
    except OSError:
        return None
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else None
