"""Numbers and instants as the pages print them: one place, so a quantity reads the same everywhere.

Every function takes raw SI values and returns text with its unit; `None` becomes `ABSENT`, and the caller prints the
reason beside it. Sizes of memory are binary and say so (GiB), never mixed with decimal ones (field case B16).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from trnbench.compare.units import binary_size

ABSENT = "n/a"
NOT_FINITE = "not finite"


def number(value: float | None, digits: int = 4) -> str:
    """`value` with `digits` significant digits, all its integer digits, and commas between thousands."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return NOT_FINITE
    if value == 0:
        return "0"
    if isinstance(value, int):
        return f"{value:,}"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -4 or magnitude > 14:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def trimmed(value: float | None) -> str:
    """`number` without zeros at the end of its decimals: limits are often whole."""
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def ratio(value: float | None) -> str:
    """A ratio to three significant digits, one more near 1, where the third decimal decides."""
    if value is None:
        return ABSENT
    if math.isfinite(value) and 0.9 < value < 1.1:
        return f"{value:.3f}"
    return number(value, digits=3)


def interval(low: float | None, high: float | None) -> str:
    """The two ends of an interval on values, or `ABSENT` where either is unknown."""
    if low is None or high is None:
        return ABSENT
    return f"{number(low)} to {number(high)}"


def ratio_interval(low: float, high: float) -> str:
    """The two ends of an interval on a ratio."""
    return f"{ratio(low)} to {ratio(high)}"


def percent(fraction: float | None, digits: int = 3) -> str:
    """A fraction (0.028) as a percentage (2.80 %)."""
    if fraction is None:
        return ABSENT
    if not math.isfinite(fraction):
        return NOT_FINITE
    return f"{number(float(fraction) * 100, digits)} %"


def seconds(value: float | None) -> str:
    """A duration in the unit that keeps it readable: s, ms, or \u00b5s; minutes and hours stay seconds."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return NOT_FINITE
    if value == 0 or abs(value) >= 1:
        return f"{number(float(value))} s"
    if abs(value) >= 1e-3:
        return f"{number(value * 1e3)} ms"
    return f"{number(value * 1e6)} \u00b5s"


def minutes(value: float | None) -> str:
    """A duration in seconds as minutes: what trainings are told in."""
    return ABSENT if value is None else f"{number(float(value) / 60)} min"


def flops(value: float | None) -> str:
    """Floating-point operations with the decimal prefix that keeps them readable: 3.2e10 is 32.00 GFLOP."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return f"{NOT_FINITE} FLOP"
    scaled, prefixes = float(value), iter(("", "k", "M", "G", "T", "P", "E"))
    prefix = next(prefixes)
    while abs(scaled) >= 1000 and prefix != "E":
        scaled, prefix = scaled / 1000, next(prefixes)
    return f"{number(scaled)} {prefix}FLOP"


def byte_size(value: int | None) -> str:
    """Bytes in binary units: 83000000000 is 77.3 GiB, never 83 GiB."""
    return ABSENT if value is None else binary_size(value)


def usd(value: float | None) -> str:
    """Dollars: cents at least, more digits for small amounts."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return NOT_FINITE
    if abs(value) >= 1:
        return f"${value:,.2f}"
    return f"${number(float(value))}"


def instant(text: str) -> datetime | None:
    """An ISO 8601 time stamp as an instant, None where it cannot be read; without an offset it is UTC, as stored."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def utc(text: str) -> str:
    """A stored time stamp as the pages print it, always in UTC; unreadable text is shown as it stands."""
    parsed = instant(text)
    return text if parsed is None else parsed.strftime("%Y-%m-%d %H:%M:%S UTC")


def minute(text: str) -> str:
    """A stored time stamp to the minute, for names in plots."""
    parsed = instant(text)
    return text if parsed is None else parsed.strftime("%Y-%m-%d %H:%M UTC")


def count(value: int, singular: str, plural: str = "") -> str:
    """`1 run`, `2 runs`."""
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"


def joined(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""
