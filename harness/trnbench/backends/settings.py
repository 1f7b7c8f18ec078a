"""Environment variables that can change what is computed or how fast, by allow-list, without paths or names.

Records are published: a value may keep its switches but never a directory, a host or a user.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trnbench.device import Scalar

COMMON_VARIABLES: tuple[str, ...] = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "GOMP_CPU_AFFINITY",
    "ONEDNN_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ATEN_CPU_CAPABILITY",
    "MALLOC_ARENA_MAX",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "TORCHINDUCTOR_*",
    "TORCHDYNAMO_*",
)
"""Read on every backend; a trailing * stands for any ending."""

SET_BY_TORCH: frozenset[str] = frozenset({"TORCHINDUCTOR_CACHE_DIR"})
"""Left out: inductor sets it when it first compiles, so it would tell eager from compiled cases of one machine."""

CUDA_VARIABLES: tuple[str, ...] = (
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "HIP_LAUNCH_BLOCKING",
    "HSA_OVERRIDE_GFX_VERSION",
)

XLA_VARIABLES: tuple[str, ...] = (
    "PJRT_DEVICE",
    "XLA_FLAGS",
    "XLA_USE_BF16",
    "XLA_DOWNCAST_BF16",
    "XLA_DISABLE_FUNCTIONALIZATION",
    "XLA_HANDLE_SPECIAL_SCALAR",
    "LIBTPU_INIT_ARGS",
    "NEURON_CC_FLAGS",
    "NEURON_RT_NUM_CORES",
    "NEURON_RT_VISIBLE_CORES",
    "NEURON_RT_STOCHASTIC_ROUNDING_EN",
    "NEURON_RT_STOCHASTIC_ROUNDING_SEED",
    "NEURON_RT_EXEC_TIMEOUT",
    "NEURON_LOGICAL_NC_CONFIG",
    "NEURON_FUSE_SOFTMAX",
)

DEPRECATED: dict[str, str] = {
    "XLA_USE_BF16": "it turns float32 into bfloat16 and stochastic rounding on behind Python's back",
    "XLA_DOWNCAST_BF16": "it turns float32 into bfloat16 and stochastic rounding on behind Python's back",
    "NVIDIA_TF32_OVERRIDE": "it overrides PyTorch's own TF32 switches inside NVIDIA's libraries",
}
"""Variables that change dtypes where Python cannot see it: a case that runs under one is refused."""

_OFF = {"", "0", "false"}


def refuse_deprecated(environment: Mapping[str, str] | None = None) -> None:
    """Raise `UsageError` where a variable of `DEPRECATED` is set, naming it and what to do instead.

    `NVIDIA_TF32_OVERRIDE=0` is refused as well: it would make a tf32 case run in fp32.
    """
    present = os.environ if environment is None else environment
    for name, why in DEPRECATED.items():
        value = present.get(name)
        if value is not None and (name == "NVIDIA_TF32_OVERRIDE" or value.strip().lower() not in _OFF):
            raise UsageError(f"{name}={value!r} is set and {why}; unset it and choose the case's precision instead")


def environment_flags(names: Iterable[str], environment: Mapping[str, str] | None = None) -> dict[str, Scalar]:
    """The allow-listed variables that are set, each value reduced to what may be published."""
    present = os.environ if environment is None else environment
    exact = {name for name in names if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return {
        name: publishable(value)
        for name, value in sorted(present.items())
        if name not in SET_BY_TORCH and (name in exact or (prefixes and name.startswith(prefixes)))
    }


def publishable(value: str) -> str:
    """`value` with every part that is a path, or contains this machine's or user's name, replaced by `<left out>`.

    Parts are separated by spaces, commas and semicolons; of `--option=/some/path` the option's name stays.
    """
    return re.sub(r"[^\s,;]+", lambda part: _publishable_part(part[0]), value)


def _publishable_part(part: str) -> str:
    name, equals, argument = part.partition("=")
    if equals and not _is_private(name):
        return part if not _is_private(argument) else f"{name}=<left out>"
    return "<left out>" if _is_private(part) else part


def _is_private(text: str) -> bool:
    lowered = text.lower()
    if any(character in text for character in "/\\~@"):
        return True
    return any(name in lowered for name in _private_names())


def _private_names() -> set[str]:
    """Names of this machine and of its user, long enough not to be part of an ordinary word."""
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], Path.home().name}
    with contextlib.suppress(OSError, KeyError):
        names.add(getpass.getuser())
    return {name.lower() for name in names if len(name) >= 4}
