"""What the words on the pages mean, where they hold figures: tiers of checks, scenarios, percentiles, and scores."""

from __future__ import annotations

import msgspec

from trnbench.records.quality_score import LEAST_SCORED_RUNS, SCORE_RULE
from trnbench.records.schema import LEAST_COUNT
from trnbench.report.check_counts import TIER_WORDS
from trnbench.report.format import joined
from trnbench.report.metric_names import SCENARIO_WORDS
from trnbench.report.serving_words import PROFILES


class ReadingPage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page takes from the code."""

    tiers: dict[str, str]
    scenarios: dict[str, str]
    profiles: list[str]
    percentiles: str
    score: str


def build_reading() -> ReadingPage:
    """The words, from where they are defined."""
    least = joined([f"p{key} at least {needed:,}" for key, needed in LEAST_COUNT.items() if needed > 1])
    return ReadingPage(
        tiers=dict(TIER_WORDS),
        scenarios=dict(words.split(": ", 1) for words in SCENARIO_WORDS.values()),
        profiles=list(PROFILES.values()),
        percentiles=f"A percentile is shown only where enough requests carry it: {least}.",
        score=f"{SCORE_RULE[:1].upper()}{SCORE_RULE[1:]}. A score needs at least {LEAST_SCORED_RUNS} runs.",
    )
