"""The units a metric may carry, and sizes in words whose base is never in doubt."""

from __future__ import annotations

from types import MappingProxyType

UNITS: MappingProxyType[str, str] = MappingProxyType(
    {
        "token/s": "tokens per second",
        "token/s/chip": "tokens per second and chip",
        "sequence/s": "sequences per second",
        "prompt/s": "prompts per second",
        "query/s": "queries per second",
        "sample/s": "samples per second: requests, or prompts of queries",
        "run/s": "training runs to the target per second",
        "s": "seconds",
        "FLOP/s": "floating-point operations per second",
        "USD/Mtoken": "US dollars per million tokens",
        "USD/Msequence": "US dollars per million sequences",
        "USD/Mprompt": "US dollars per million prompts",
    }
)
"""Every unit by symbol; a metric with any other unit cannot be made."""


def binary_size(size_bytes: int) -> str:
    """Bytes in units of 1024: 83 000 000 000 is "77.3 GiB"."""
    return _scaled(size_bytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"), 1)


def decimal_size(size_bytes: int) -> str:
    """Bytes in units of 1000: 83 000 000 000 is "83.0 GB"."""
    return _scaled(size_bytes, 1000, ("B", "kB", "MB", "GB", "TB", "PB"), 1)


def bandwidth(bytes_per_second: float) -> str:
    """Bytes per second in units of 1000, as vendors state bandwidth: 3.35e12 is "3.35 TB/s"."""
    return _scaled(bytes_per_second, 1000, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"), 2)


def _scaled(value: float, base: int, units: tuple[str, ...], digits: int) -> str:
    exponent = 0
    while abs(value) >= base and exponent < len(units) - 1:
        value /= base
        exponent += 1
    return f"{value:.{digits if exponent else 0}f} {units[exponent]}"
