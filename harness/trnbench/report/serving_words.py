"""What one LoadGen run says, in words: whether it counts, how much was produced of what was asked, and its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.compare.serving_notes import unlike_lengths
from trnbench.report.format import number
from trnbench.report.views import Tag

if TYPE_CHECKING:
    from trnbench.case import Case, Profile
    from trnbench.records.schema import LoadGenRun, Purpose

PURPOSES: dict[Purpose, str] = {
    "probe": "probe of issue delay",
    "calibration": "calibration",
    "accuracy": "accuracy",
    "search": "search",
    "point": "load point",
    "round": "round",
    "audit": "audit",
}
PROFILES: dict[Profile, str] = {
    "quick": (
        "Quick profile: a few seconds and the fewest queries that a percentile needs. It shows that serving works and "
        "about how fast; it is not the full profile, and is never compared with it."
    ),
    "full": "Full profile: as long, and with as many queries, as the rules ask for.",
}
_LIMITED = 99.0
"""The percentile that limits are about."""

LATENCY_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "latency": "Latency"}
LATENCIES_IN_FULL = {
    "ttft": "TTFT, time to first token",
    "tpot": "TPOT, time per output token",
    "latency": "Latency of a request",
}
PERCENTILES: dict[str, tuple[str, ...]] = {
    "ttft": ("50", "90", "99"),
    "tpot": ("50", "99"),
    "latency": ("50", "90", "99"),
}
"""Percentiles that the tables show, by latency."""


def run_tag(run: LoadGenRun) -> Tag:
    """Whether the run counts: "degraded" where some requests failed, "failed" where none was answered (B13)."""
    if not run.samples:
        return Tag("bad", "\u2715", "failed")
    if run.errors:
        return Tag("bad", "\u2715", "degraded")
    if not run.valid:
        return Tag("bad", "\u2715", "not valid")
    if run.verdict == "INVALID":
        return Tag("", "?", "measured")
    return Tag("good", "\u2713", "valid")


def missed(run: LoadGenRun) -> bool:
    """Whether a plot crosses the run out: it failed, or was late.

    LoadGen calls most load points INVALID, for they ask too few queries to be judged; such a point is late where any
    percentile that it carries lies beyond the limit.
    """
    if not run.valid or run.errors or not run.samples:
        return True
    return _late(run) if run.purpose == "point" else run.verdict == "INVALID"


def _late(run: LoadGenRun) -> bool:
    limits = {name: limit_of(run, name) for name in run.latencies}
    return any(
        value > limit and float(key) <= _LIMITED
        for name, limit in limits.items()
        if limit is not None
        for key, value in run.latencies[name].percentiles.items()
    )


def why_not(run: LoadGenRun) -> str:
    """Why the run does not count, or what LoadGen objects to."""
    if run.reasons:
        return "; ".join(run.reasons)
    if run.verdict == "INVALID":
        return (
            "beyond the limit"
            if _late(run)
            else "LoadGen says INVALID: too few queries to judge a limit by; its latencies are sound"
        )
    return ""


def answer_length(run: LoadGenRun) -> float | None:
    """Mean tokens of an answer; None where tokens are not produced or nothing was answered."""
    produced = run.tokens.get("produced")
    return None if produced is None or not run.samples else produced / run.samples


def produced_words(run: LoadGenRun) -> str:
    """`produced 7 of 32 (mean)`; `32 (mean)` where all that was asked for was produced (B12)."""
    mean, asked = answer_length(run), run.tokens.get("asked")
    if mean is None:
        return "n/a"
    if asked is None or asked == run.tokens["produced"]:
        return f"{length(mean)} (mean)"
    return f"produced {length(mean)} of {length(asked / run.samples)} (mean)"


def length(mean: float) -> str:
    """A mean number of tokens: whole numbers stay whole."""
    return f"{mean:,.0f}" if mean == round(mean) else number(mean, digits=3)


def length_note(run: LoadGenRun, usual: float | None) -> str:
    """That the run's answers are unlike those of the rounds in length, or nothing."""
    mean = answer_length(run)
    if mean is None or usual is None or not unlike_lengths(mean, usual):
        return ""
    return f"unlike the rounds' {length(usual)}"


def limit_of(run: LoadGenRun, latency: str) -> float | None:
    """The limit in seconds that the p99 of a latency had to keep; None where it had none."""
    found = run.settings.get(f"{latency}_limit_seconds")
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and found > 0 else None


def throughput_words(case: Case) -> str:
    """What the horizontal scale of a latency-throughput curve is."""
    return "prompts per second" if case.phase == "scoring" else "tokens per second"


def throughput(run: LoadGenRun, case: Case) -> float | None:
    """What the run completed a second, on that scale; None where nothing was answered: no point (B13)."""
    return run.rates.get("samples" if case.phase == "scoring" else "tokens") if run.samples else None
