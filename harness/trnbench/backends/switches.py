"""Every numerics switch of PyTorch: set for a precision, reported, and restored whatever happens in between.

PyTorch 2.9 brought a second interface to the TF32 switches (`fp32_precision`) beside the first (`allow_tf32`,
`set_float32_matmul_precision`). Reading through the first raises once the second has been used; so this module sets
through the first, which moves both, and saves and restores each value through the second, which can always be read.
"""

from __future__ import annotations

import contextlib
import operator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from trnbench.backends.settings import refuse_deprecated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trnbench.device import Scalar

FP32_PATHS: tuple[str, ...] = (
    "fp32_precision",
    "cuda.matmul.fp32_precision",
    "cudnn.fp32_precision",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "mkldnn.fp32_precision",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
)
"""Below torch.backends: "none" (inherit), "ieee", "tf32" or "bf16"."""

BOOLEAN_PATHS: tuple[str, ...] = (
    "cuda.matmul.allow_fp16_accumulation",
    "cudnn.deterministic",
    "cudnn.benchmark",
    "mkldnn.deterministic",
)
"""Below torch.backends; all are off while a case runs: fp32 accumulation, and no search for kernels in its rounds."""

REDUCTIONS: tuple[str, ...] = ("fp16", "bf16")
"""Types whose split matmul sums cuBLAS may round to 16 bits; off while a case runs, as Trainium sums in fp32."""


class Switch(NamedTuple):
    """One global setting: how to read it and how to set it to a value that was read."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], Any]


def switches() -> list[Switch]:
    """All switches that this PyTorch has, in the order in which they must be restored. Imports torch."""
    import torch

    found = [
        Switch("float32_matmul_precision", _matmul_precision, _restore_matmul_precision),
        Switch("cudnn.allow_tf32", _cudnn_tf32, _restore_cudnn_tf32),
        *(_attribute(path) for path in (*FP32_PATHS, *BOOLEAN_PATHS)),
        *(_reduction(dtype) for dtype in REDUCTIONS),
        Switch(
            "cuda.allow_fp16_bf16_reduction_math_sdp",
            torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed,
            torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp,
        ),
        Switch("deterministic_algorithms", _determinism, _set_determinism),
        Switch("flush_denormal", flushes_denormals, torch.set_flush_denormal),
        Switch("num_threads", torch.get_num_threads, _set_threads),
    ]
    return [switch for switch in found if _readable(switch)]


@contextmanager
def numerics_switches(precision: str) -> Iterator[dict[str, Scalar]]:
    """Set every switch for `precision` ("fp32", "tf32", "bf16" or "fp16"), yield what is in force, then restore.

    Restores also when the body raises, and the number of threads even where the body changed it. Raises
    `UsageError` where a variable that changes dtypes behind Python's back is set.
    """
    refuse_deprecated()
    table = switches()
    before = {switch.name: switch.get() for switch in table}
    try:
        _apply(precision)
        yield {switch.name: _scalar(switch.get()) for switch in table}
    finally:
        for switch in table:
            if switch.get() != before[switch.name]:
                switch.put(before[switch.name])


def _apply(precision: str) -> None:
    import torch

    _attribute("fp32_precision").put("none")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    for path in BOOLEAN_PATHS:
        with contextlib.suppress(AttributeError):
            _attribute(path).put(False)
    for dtype in REDUCTIONS:
        with contextlib.suppress(AttributeError):
            setattr(torch.backends.cuda.matmul, f"allow_{dtype}_reduced_precision_reduction", False)
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)
    torch.use_deterministic_algorithms(False)
    torch.set_flush_denormal(False)


def flushes_denormals() -> bool:
    """True where this thread's CPU arithmetic turns subnormals into zero; PyTorch cannot say, so it is computed."""
    import torch

    return bool((torch.tensor([1e-40], dtype=torch.float32) * 1.0).item() == 0.0)


def _attribute(path: str) -> Switch:
    import torch

    holder_path, _, name = path.rpartition(".")

    def holder() -> Any:
        return operator.attrgetter(holder_path)(torch.backends) if holder_path else torch.backends

    return Switch(path, lambda: getattr(holder(), name), lambda value: setattr(holder(), name, value))


def _reduction(dtype: str) -> Switch:
    """Since torch 2.10 the setting has a second half, whether the sum may be split at all; both are kept."""
    import torch

    name = f"allow_{dtype}_reduced_precision_reduction"
    matmul = torch.backends.cuda.matmul

    def get() -> tuple[bool, ...]:
        values = [getattr(matmul, name)]
        with contextlib.suppress(AttributeError):
            values.append(getattr(matmul, f"{name}_split_k"))
        return tuple(values)

    return Switch(
        f"cuda.matmul.{name}", get, lambda value: setattr(matmul, name, value if len(value) > 1 else value[0])
    )


_MIXED = "mixed"
"""Stands for what PyTorch refuses to say once both interfaces were used; the values behind it are kept by path."""


def _matmul_precision() -> str:
    import torch

    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:
        return _MIXED


def _restore_matmul_precision(value: str) -> None:
    import torch

    if value != _MIXED:
        torch.set_float32_matmul_precision(value)


def _cudnn_tf32() -> bool | str:
    import torch

    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return _MIXED


def _restore_cudnn_tf32(value: bool | str) -> None:
    import torch

    if not isinstance(value, str):
        torch.backends.cudnn.allow_tf32 = value


def _determinism() -> tuple[bool, bool]:
    import torch

    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_determinism(value: tuple[bool, bool]) -> None:
    import torch

    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _set_threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)


def _readable(switch: Switch) -> bool:
    try:
        switch.get()
    except (AttributeError, RuntimeError):
        return False
    return True


def _scalar(value: Any) -> Scalar:
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return value if isinstance(value, str | int | float | bool) else str(value)
