"""What a comparison is: the values that pages and tables show, computed from records and never stored in them."""

from __future__ import annotations

from typing import Literal

import msgspec

from trnbench.case import Case
from trnbench.catalog.prices import PricePoint
from trnbench.records.drift import Drift
from trnbench.records.schema import Record

Axis = Literal["device", "precision", "mode", "stack"]
Verdict = Literal[
    "a faster",
    "b faster",
    "not distinguishable",
    "not enough runs",
    "not conformant",
    "not checked",
    "unlike numerics",
    "no common metric",
    "inconsistent timing",
]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A derived number's name, unit and direction; `definition` is the sentence printed beside it.

    A page never draws two metrics with different `definition_version` on one axis.
    """

    name: str
    unit: str
    higher_is_better: bool
    definition: str
    definition_version: int = 1


class Mfu(msgspec.Struct, frozen=True, kw_only=True):
    """Model FLOP/s utilisation: `value` in 0..1, with everything that it was computed from.

    Both sides of the division cover the same `chips` (a fraction where a case used only some cores of a chip).
    `peak_per_second` is the dense peak of one chip in `precision` and number `format`.
    """

    value: float
    convention: str
    peak_per_second: int
    precision: str
    format: str
    chips: float
    peak_source: str
    peak_as_of: str


class RunValue(msgspec.Struct, frozen=True, kw_only=True):
    """One run's value of the metric, with the record it came from and the attempts that run made of the case.

    `value` is all items over all seconds of the run. `low` and `high` bound `median`, the run's own median round
    (bootstrap over its rounds), in the unit of the metric; all three are None with too few rounds. `metrics` holds
    every metric of the run by name (see `compare.metrics.METRICS`). `mfu` is None with the reason in `mfu_reason`.
    `drift` is set only where the halves of the run differ by more than the limit: then no single figure is clean.
    """

    record: Record
    value: float
    low: float | None
    high: float | None
    attempts: int
    median: float | None = None
    metrics: dict[str, float] = {}
    mfu: Mfu | None = None
    mfu_reason: str = ""
    drift: Drift | None = None


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a comparison: what distinguishes it (`label`), and its runs in time order.

    `left_out` lists records of this side that carry no speed into the comparison, with the reason.
    """

    label: str
    case: Case
    runs: list[RunValue]
    left_out: list[tuple[Record, str]]
    run_to_run_spread: float | None
    """Standard deviation of ln(run value): about the relative spread; None below two runs."""
    value: float | None = None
    """Geometric mean of the runs' values: what the throughput ratio divides and dollars are computed from."""
    chips_used: float | None = None
    """Chips that the case occupied; a fraction where it used only some cores of a chip."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """`value` with its two-sided interval; `method` names the statistic, with its source."""

    value: float
    low: float
    high: float
    confidence: float
    method: str


class SideCost(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars of one side in one scenario: whole instances billed first, pro rata second; null with a reason."""

    price: PricePoint | None
    billed_usd: float | None
    pro_rata_usd: float | None
    unit: str
    reason: str
    warning: str = ""
    instances: int | None = None
    """Whole instances billed."""


class CostScenario(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides under the same purchase term; never blended with another."""

    name: str
    a: SideCost
    b: SideCost
    cost_ratio: Ratio | None
    """Cost of `a` per unit of work over that of `b`, whole instances; None where a price or the ratio is missing."""
    note: str = ""
    """What a reader must know about this scenario, such as prices from two regions."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two sets of records with equal identity save for `axis`. Ratios are a over b."""

    id: str
    """Stable, safe in a file name, derived from axis, case and the two labels."""
    axis: Axis
    title: str
    a: Side
    b: Side
    metric: Metric | None
    throughput_ratio: Ratio | None
    break_even_price_ratio: float | None
    """Price of a over price of b at which a unit of work costs the same: equals the throughput ratio."""
    verdict: Verdict
    explanation: str
    """One sentence in plain words that says what the verdict rests on."""
    notes: list[str]
    """What differs and may matter: threads, CPU, versions, drift, unlike conventions."""
    costs: list[CostScenario]
