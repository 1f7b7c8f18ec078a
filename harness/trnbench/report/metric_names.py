"""How metrics and phases are spelt for readers, and their values in a unit that keeps them readable.

Pages only: exports keep the names of the fields and raw SI values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.report.format import flops, number, seconds

if TYPE_CHECKING:
    from trnbench.case import Phase
    from trnbench.compare.model import Metric

_SPELLINGS = {
    "step_seconds": "step time",
    "ttft_seconds": "TTFT",
    "tpot_seconds": "TPOT",
    "flops_per_second": "model FLOP/s",
}
_IN_FULL = {"ttft_seconds": "time to first token", "tpot_seconds": "time per output token"}
PHASE_WORDS: dict[Phase, str] = {"train_step": "training step", "prefill": "prefill", "decode": "decode"}


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
