"""Settings of the Neuron compiler and runtime: set before torch is imported, stored with every record.

They are read when the runtime starts, so they hold for the whole process; a backend is opened in a fresh one.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from trnbench.status import UsageError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

DEFAULTS: dict[str, str] = {
    "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "1",
    "TORCH_NEURONX_METRICS_ENABLED": "1",
    "NEURON_RT_STOCHASTIC_ROUNDING_EN": "0",
    "NEURON_RT_STOCHASTIC_ROUNDING_SEED": "0",
    "NEURON_RT_EXEC_TIMEOUT": "600",
}
"""Set where the user has not: a failed compile raises, compiles are counted, rounding is to nearest."""

VARIABLES: tuple[str, ...] = (
    *DEFAULTS,
    "NEURON_CC_FLAGS",
    "NEURON_COMPILER_OPT_LEVEL",
    "NEURON_FALLBACK_ENABLED",
    "NEURON_LAUNCH_BLOCKING",
    "NEURON_LOGICAL_NC_CONFIG",
    "NEURON_RT_NUM_CORES",
    "NEURON_RT_VIRTUAL_CORE_SIZE",
    "NEURON_RT_VISIBLE_CORES",
    "TORCH_NEURONX_COMPLEX_DECOMPOSE",
    "TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY",
    "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS",
    "TORCH_NEURONX_NEFF_DISABLE_CACHE",
    "SIMULATED_NEURON_*",
)
"""What a record reports of the environment; a trailing * stands for any ending. No variable here holds a path."""

CACHE_VARIABLE = "TORCH_NEURONX_NEFF_CACHE_DIR"
DEFAULT_CACHE = "/tmp/neff_cache"


def set_flags(environment: MutableMapping[str, str] | None = None) -> None:
    """Put the settings in force: the defaults where nothing is set, and `--auto-cast=none` for the compiler.

    Raises `UsageError` where NEURON_CC_FLAGS asks for automatic casts: "fp32" would then be computed in another type.
    """
    present: MutableMapping[str, str] = os.environ if environment is None else environment
    flags = present.get("NEURON_CC_FLAGS", "")
    casts = _auto_casts(flags)
    if casts and casts[-1] != "none":
        raise UsageError(
            f"NEURON_CC_FLAGS asks for --auto-cast={casts[-1]}, which computes float32 in another type; leave it out "
            "and choose the case's precision instead"
        )
    if not casts:
        present["NEURON_CC_FLAGS"] = f"{flags} --auto-cast=none".strip()
    for name, value in DEFAULTS.items():
        present.setdefault(name, value)


def _auto_casts(flags: str) -> list[str]:
    """Values of every --auto-cast in order; the compiler takes the last."""
    try:
        words = shlex.split(flags)
    except ValueError as error:
        raise UsageError(f"NEURON_CC_FLAGS={flags!r} cannot be split into options: {error}") from None
    values = []
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--auto-cast":
            values.append(value if equals else " ".join(words[index + 1 : index + 2]))
    return values
