"""The record: one case in one run, as it is stored. JSON Schema: `trnbench schema`.

Format history (newest first; a change adds a line here, a fixture of the old form and a migration):

* 3 (2026-11): cases have `scenario` and `profile`; phases serving, scoring, pretrain and finetune_lora, whose runs are
  kept whole in `measurement.serving` and `measurement.training`. All are empty in older records.
* 2 (2026-11): conformance cases, which measure nothing: phases formats, operators, model, learning and generation,
  with status ok and a null measurement; checks have `tier`, `looks_like` and `deviation`, empty in older records.
* 1 (2026-11): first format.

Every `None` must be explained: `Record.unknown` maps the dotted path of each null to the reason it is not known.
Derived numbers (throughput, MFU, dollars) are never stored; they are computed when records are compared.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from trnbench.case import Case, Scenario
from trnbench.catalog.prices import PricePoint
from trnbench.device import Device, Scalar
from trnbench.status import Status

SCHEMA_VERSION = 3
MAX_ROUNDS = 500
"""So many rounds, laid out one field a line, take about half of `MAX_RECORD_BYTES`."""
MAX_RECORD_BYTES = 200_000

Verdict = Literal["pass", "fail", "non-finite", "not checked", "known deviation", "unexpected pass", "reported"]
FAILED: tuple[Verdict, ...] = ("fail", "non-finite")
"""Verdicts of checks that do not hold, listed ones apart."""

Level = Literal["formats", "operators", "model", "learning", "generation"]
CheckTier = Literal["", "T0", "T1", "T2", "T3"]


class Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything inside a record: immutable, named fields, unknown keys refused."""


class Round(Stored, frozen=True, kw_only=True):
    """One timed repetition. `items` counts what it processed, by unit: tokens, padded_tokens, sequences."""

    seconds: float
    items: dict[str, int]
    compiles: int | None
    fallbacks: int | None
    energy_joules: float | None


class WarmupStep(Stored, frozen=True, kw_only=True):
    """One untimed-for-the-result step before the rounds; the first one carries compilation."""

    seconds: float
    compiles: int | None


class Compile(Stored, frozen=True, kw_only=True):
    """Compilation before the rounds: how often, for how long, and whether a persistent cache could have helped."""

    count: int | None
    seconds: float | None
    first_step_seconds: float
    cache: Literal["cold", "warm", "none"] | None


class Memory(Stored, frozen=True, kw_only=True):
    """Peak device memory over the measured rounds, in bytes, and the counter it was read from."""

    peak_bytes: int | None
    source: str


class Flops(Stored, frozen=True, kw_only=True):
    """Floating-point operations of one round and the named convention that counted them."""

    value: int
    convention: str


class Latencies(Stored, frozen=True, kw_only=True):
    """How long something took, in seconds, over `count` of it.

    `percentiles` has keys "50", "90", "95", "99" and "99.9", of which only those are there that `count` carries (see
    `LEAST_COUNT`): a tail of too few samples is no tail.
    """

    count: int
    mean: float
    percentiles: dict[str, float]


LEAST_COUNT: dict[str, int] = {"50": 1, "90": 64, "95": 130, "99": 459, "99.9": 4603}
"""So many samples carry a percentile: what early stopping asks for at 99 % confidence, with one miss up to the 95th and
with none above (`serving.early_stopping.queries_needed`)."""

LENGTH_BAND = 0.10
"""Share by which mean lengths of answers may differ and still be alike: TEST09 of the MLPerf(R) Inference compliance
tests, and the token bands of its accuracy targets (90 % to 110 %)."""

Purpose = Literal["probe", "calibration", "accuracy", "search", "point", "round", "audit"]


class LoadGenRun(Stored, frozen=True, kw_only=True):
    """One test that LoadGen drove. `verdict` is LoadGen's own ("none" where its mode gives none), `valid` is ours.

    `errors` counts those in LoadGen's detail log. `seconds` reaches from the first query issued to the last sample
    complete. `rates` are per second: "target" (what was asked for, where a rate is), "samples", "tokens". `tokens` are
    totals: "produced" and "asked". `latencies` has "latency" and, where tokens are timed, "ttft" and "tpot". What a
    scenario has not is absent.
    """

    purpose: Purpose
    scenario: Scenario
    verdict: Literal["VALID", "INVALID", "none"]
    valid: bool
    reasons: list[str]
    queries: int
    samples: int
    errors: int
    seconds: float
    rates: dict[str, float]
    tokens: dict[str, int]
    latencies: dict[str, Latencies]
    settings: dict[str, Scalar]


class Evaluation(Stored, frozen=True, kw_only=True):
    """The loss on held-out data after training on so many `samples`, `seconds` after the clock started."""

    samples: int
    seconds: float
    loss: float


class TrainingRun(Stored, frozen=True, kw_only=True):
    """One training from one seed until `target` or the end of its budget. Losses are nats per token, means.

    `seconds` is the timed part, evaluations included; `init_seconds` what came before it. `scored` says whether the
    time may count: never where the run was resumed, at `resumed_at` samples. `losses` are training losses, one every
    `loss_every` steps. `floor` is the loss of the best possible predictor on the evaluation data, null where nobody
    can know it. `learning` holds the hyperparameters.
    """

    seed: int
    converged: bool
    scored: bool
    resumed_at: list[int]
    samples: int
    tokens: int
    seconds: float
    init_seconds: float
    target: float
    floor: float | None
    evaluations: list[Evaluation]
    losses: list[float]
    loss_every: int
    learning: dict[str, Scalar]


class Measurement(Stored, frozen=True, kw_only=True):
    """Raw values of one case. `clock` names the timer, `sync` how the backend waited for its device.

    `timings` holds further raw series in seconds by name, such as `ttft_seconds`. `serving` holds every LoadGen test
    behind the rounds of a served case, `training` every run of a case that trains to a quality.
    """

    clock: str
    sync: str
    warmup: list[WarmupStep]
    rounds: list[Round]
    compile: Compile
    memory: Memory
    flops: Flops | None
    energy_source: str | None
    timings: dict[str, list[float]] = {}
    serving: list[LoadGenRun] = []
    training: list[TrainingRun] = []


class Check(Stored, frozen=True, kw_only=True):
    """One conformance verdict: the error `value` against its `limit` in the metric's own unit.

    A non-finite result has verdict "non-finite", a null value and, in `where`, the first bad position and layer.
    `check` is unique within a record. `tier` says how an operator was judged (DESIGN, section 7), empty for other
    levels; `looks_like` names the fault that a failure resembles, empty where nothing failed. `deviation` is the id of
    the listed deviation that covers the check: its verdict is then "known deviation", or "unexpected pass" where the
    check passes in spite of it. A "reported" value is shown beside the others and never judged.
    """

    check: str
    level: Level
    metric: str
    value: float | None
    limit: float | None
    verdict: Verdict
    reference: str
    where: str
    tier: CheckTier = ""
    looks_like: str = ""
    deviation: str = ""


class Git(Stored, frozen=True, kw_only=True):
    """State of the checkout; `dirty` counts staged, unstaged and untracked files, and is null when unknown."""

    commit: str | None
    dirty: bool | None
    diff_hash: str | None


class Environment(Stored, frozen=True, kw_only=True):
    """Software and host. `fingerprint` keys everything that makes two runs the same machine and stack."""

    versions: dict[str, str]
    flags: dict[str, Scalar]
    cpu: dict[str, Scalar]
    git: Git
    fingerprint: str
    fingerprint_version: int


class Artifact(Stored, frozen=True, kw_only=True):
    """A file beside the record, by path relative to the record and SHA-256."""

    name: str
    path: str
    sha256: str


class Record(Stored, frozen=True, kw_only=True):
    """One case in one run."""

    schema_version: int
    record_id: str
    run_id: str
    started_at: str
    finished_at: str
    case: Case
    device: Device
    environment: Environment
    status: Status
    reason: str
    measurement: Measurement | None
    conformance: list[Check]
    simulated: bool
    price: PricePoint | None
    artifacts: list[Artifact] = []
    unknown: dict[str, str] = {}
