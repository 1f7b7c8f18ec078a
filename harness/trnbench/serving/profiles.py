"""Profiles and latency limits as data: how long a test lasts, how much it counts, and how late an answer may be.

Modelled on the rules of the MLPerf(R) Inference benchmarks; what is ours is said to be ours in `source`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from trnbench.status import UsageError
from trnbench.wording import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


class Seeds(msgspec.Struct, frozen=True, kw_only=True):
    """LoadGen's three random seeds: samples loaded, their order, and the arrival times of the server scenarios."""

    library: int
    order: int
    schedule: int


SEEDS = Seeds(library=2085463073848966840, order=2747215439041700203, schedule=16159082839903944936)
"""Those of rounds v6.0 and v6.1: `mlperf.conf` as compiled into LoadGen 6.0.17 (`*.*.qsl_rng_seed` and so on)."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What one profile asks of every measured test.

    `least_queries` holds the fewest queries by scenario (samples for offline, which asks them all in one query);
    `library` is how many different samples there are, `search_precision` the relative width at which the search for
    the highest rate stops.
    """

    name: str
    least_seconds: float
    least_queries: dict[str, int]
    library: int
    search_precision: float
    source: str


_FEWEST = {"single_stream": 64, "multi_stream": 662, "server": 459, "interactive": 459}
"""What early stopping asks for: p90 with one miss, p99 with one miss, p99 with none (inference_rules.adoc, appendix
"Early Stopping Criterion": confidence 0.99, tolerance 0; `early_stopping.queries_needed` recomputes them)."""

_PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "quick": Profile(
            name="quick",
            least_seconds=1.0,
            least_queries={**_FEWEST, "offline": 256},
            library=46,
            search_precision=0.10,
            source="ours: the fewest queries that early stopping accepts, and a second instead of ten minutes",
        ),
        "full": Profile(
            name="full",
            least_seconds=600.0,
            least_queries={**_FEWEST, "offline": 24_576},
            library=4096,
            search_precision=0.02,
            source=(
                'mlcommons/inference_policies inference_rules.adoc, "Scenarios", commit ac93e89: 600 s, offline at'
                " least 24576 samples; library and precision of the search: ours"
            ),
        ),
    }
)


def profile(name: str) -> Profile:
    """The profile of that name; `UsageError` where there is none."""
    try:
        return _PROFILES[name]
    except KeyError:
        hint = nearest(name, _PROFILES, f"the profiles are {', '.join(_PROFILES)}")
        raise UsageError(f"there is no profile {name!r}; {hint}") from None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Latest p99 in seconds: of the first token (TTFT), per further token (TPOT), and of a whole scoring answer."""

    ttft: float
    tpot: float
    answer: float
    source: str


def _limits(ttft: float, tpot: float, source: str) -> Limits:
    # A scoring answer is what prefill ends with, as the first token is.
    return Limits(ttft=ttft, tpot=tpot, answer=ttft, source=f"{source}; scoring answers: ours, as late as the TTFT")


_CONF = "mlperf.conf as compiled into LoadGen 6.0.17"
_OURS = "ours, chosen so that two CPU cores can meet them"
_LLAMA_8B = {
    "server": _limits(2.0, 0.1, f"{_CONF}, llama3_1-8b.Server"),
    "interactive": _limits(0.5, 0.03, f"{_CONF}, llama3_1-8b-interactive.Server"),
}
_LLAMA_70B = {
    "server": _limits(2.0, 0.2, f"none published for Llama 3.1 70B; those of {_CONF}, llama2-70b.Server"),
    "interactive": _limits(
        0.45, 0.04, f"none published for Llama 3.1 70B; those of {_CONF}, llama2-70b-interactive.Server"
    ),
}
_SMALL = {"server": _limits(2.0, 0.2, _OURS), "interactive": _limits(1.0, 0.1, _OURS)}

_LIMITS: Mapping[str, Mapping[str, Limits]] = MappingProxyType(
    {
        "nano": {"server": _limits(0.3, 0.1, _OURS), "interactive": _limits(0.2, 0.04, _OURS)},
        "smollm2-135m": _SMALL,
        "llama3.2-1b": {
            scenario: msgspec.structs.replace(
                found, source=f"none published for Llama 3.2 1B; those of Llama 3.1 8B: {found.source}"
            )
            for scenario, found in _LLAMA_8B.items()
        },
        "llama3.1-8b": _LLAMA_8B,
        "llama3.1-70b": _LLAMA_70B,
    }
)


def limits(preset: str, scenario: str) -> Limits | None:
    """The limits of a preset in `server` or `interactive`; None in a scenario that sets none.

    Raises `UsageError` for a preset without limits.
    """
    if scenario not in ("server", "interactive"):
        return None
    try:
        return _LIMITS[preset][scenario]
    except KeyError:
        raise UsageError(
            f"no latency limits are known for preset {preset!r}; add them with their source to serving/profiles.py"
            f" (there are some for {', '.join(_LIMITS)})"
        ) from None
