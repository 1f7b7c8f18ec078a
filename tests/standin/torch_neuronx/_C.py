# ruff: noqa: N999 - the real package's own name
"""The private bindings that a benchmark reads, with the field names of the real ones."""

from __future__ import annotations

from torch_neuronx._tracking import tracking


def _neuron_set_metrics_enabled(enabled: bool) -> None:
    tracking.metrics_enabled = enabled


def _get_compilation_cache_stats() -> dict[str, float]:
    """Counters of the compilation cache; all zero unless metrics are enabled, as in the real package."""
    on = int(tracking.metrics_enabled)
    total = tracking.hits + tracking.compiles
    return {
        "total_entries": tracking.compiles,
        "cache_hits": tracking.hits * on,
        "cache_misses": tracking.compiles * on,
        "hit_rate": tracking.hits / total * on if total else 0.0,
        "total_compilations": tracking.compiles * on,
        "total_compilation_time_ms": tracking.compile_seconds * 1000 * on,
    }


def _get_platform_target() -> str:
    return "trn2"


def _get_instance_type() -> str:
    return "trn2.48xlarge"


def _get_logical_neuron_cores() -> str:
    return "2"
