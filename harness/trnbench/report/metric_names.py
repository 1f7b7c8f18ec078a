"""How metrics and phases are spelt for readers, and their values in a unit that keeps them readable.

Pages only: exports keep the names of the fields and raw SI values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.case import QUALITY_PHASES, SERVING_PHASES
from trnbench.report.format import flops, number, seconds

if TYPE_CHECKING:
    from trnbench.case import Case, Phase, Scenario
    from trnbench.compare.model import Metric

_SPELLINGS = {
    "step_seconds": "step time",
    "ttft_seconds": "TTFT",
    "tpot_seconds": "TPOT",
    "flops_per_second": "model FLOP/s",
    "ttft_p50_seconds": "TTFT p50",
    "ttft_p90_seconds": "TTFT p90",
    "ttft_p99_seconds": "TTFT p99",
    "tpot_p50_seconds": "TPOT p50",
    "tpot_p99_seconds": "TPOT p99",
    "latency_p90_seconds": "latency p90",
    "latency_p99_seconds": "latency p99",
    "seconds_to_quality": "time to quality",
}
_IN_FULL = {"ttft_seconds": "time to first token", "tpot_seconds": "time per output token"} | {
    f"{short}_{percentile}_seconds": words
    for short, words in (("ttft", "time to first token"), ("tpot", "time per output token"))
    for percentile in ("p50", "p90", "p99")
}
PHASE_WORDS: dict[Phase, str] = {
    "train_step": "training step",
    "prefill": "prefill",
    "decode": "decode",
    "serving": "serving",
    "scoring": "scoring",
    "pretrain": "training to quality",
    "finetune_lora": "LoRA fine-tuning to quality",
}
SCENARIO_WORDS: dict[Scenario, str] = {
    "single_stream": "Single stream: each query comes when the one before is answered",
    "multi_stream": "Multi-stream: as single stream, with several samples a query",
    "offline": "Offline: everything is asked at once",
    "server": "Server: requests arrive at random, at a rate that is searched for",
    "interactive": "Interactive: as server, with tighter limits on every token",
}
"""Scenarios in the order in which they are listed, each with what it asks."""

_ROUNDS: dict[Scenario, str] = {
    "single_stream": "p90 latency of a query",
    "multi_stream": "p99 latency of a query",
    "offline": "time a sample",
    "server": "time a completed sample",
    "interactive": "time a completed sample",
}


def round_words(case: Case) -> str:
    """What the seconds of a round are: a duration, or for served cases LoadGen's own metric."""
    if case.phase in SERVING_PHASES:
        return _ROUNDS[case.scenario]
    return "time of one training" if case.phase in QUALITY_PHASES else "duration"


def metric_words(metric: Metric) -> str:
    """A metric's name as the field spells it: `TTFT`, `model FLOP/s`; else the name as words."""
    return _SPELLINGS.get(metric.name, metric.name.replace("_", " "))


def in_full(metric: Metric) -> str:
    """What an abbreviated name stands for; empty for the others."""
    return _IN_FULL.get(metric.name, "")


def capitalised(words: str) -> str:
    """`words` as the start of a sentence; unlike `str.capitalize` it leaves abbreviations as they are."""
    return words[:1].upper() + words[1:]


def readable(value: float | None, unit: str) -> tuple[str, str]:
    """A value and its unit, scaled where the unit has prefixes: 0.0123 s is ("12.30", "ms")."""
    if unit == "s" and value is not None:
        text = seconds(value)
    elif unit == "FLOP/s" and value is not None:
        text = f"{flops(value)}/s"
    else:
        return number(value), unit
    shown, _, scaled = text.rpartition(" ")
    return shown, scaled
