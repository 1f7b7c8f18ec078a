"""Records for the tests of storing: one plain good record, and hypothesis strategies for records of every shape."""

from __future__ import annotations

import datetime

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from trnbench.case import MODES, PRECISIONS, TIERS, Case, case_from
from trnbench.catalog.prices import PricePoint
from trnbench.device import Device
from trnbench.records.build import assemble, explain
from trnbench.records.ids import new_id, utc_now
from trnbench.records.schema import (
    SCHEMA_VERSION,
    Artifact,
    Check,
    Compile,
    Environment,
    Evaluation,
    Flops,
    Git,
    Latencies,
    LoadGenRun,
    Measurement,
    Memory,
    Record,
    Round,
    TrainingRun,
    WarmupStep,
)
from trnbench.status import Status

RUN = "0193a1b2c3d4e5f6a7b8c9"

relaxed = settings(deadline=None, max_examples=50)
"""For properties of whole records and of files: slow to draw, and a busy disk is no failure."""


def case(**changes: object) -> Case:
    fields = {
        "suite": "decoder",
        "workload": "nano",
        "phase": "train_step",
        "precision": "bf16",
        "batch": 4,
        "sequence": 64,
        "tier": "smoke",
        "mode": "eager",
        "version": "0123456789abcdef",
    }
    return case_from({**fields, **changes})


def device(**changes: object) -> Device:
    plain = Device(backend="cpu", platform="linux", chip="cpu", chips=1, cores=2, memory_bytes=83_000_000_000)
    return msgspec.structs.replace(plain, **changes)


def environment(**changes: object) -> Environment:
    plain = Environment(
        versions={"torch": "2.13.0", "python": "3.11.7"},
        flags={"float32_matmul_precision": "highest", "tf32": False, "threads": 2},
        cpu={"model": "A CPU", "isa": "avx2 fma"},
        git=Git(commit="0" * 40, dirty=True, diff_hash="0123456789abcdef"),
        fingerprint="fedcba9876543210",
        fingerprint_version=1,
    )
    return msgspec.structs.replace(plain, **changes)


def timed(seconds: float = 0.01, **changes: object) -> Round:
    plain = Round(
        seconds=seconds,
        items={"tokens": 250, "padded_tokens": 256, "sequences": 4},
        compiles=0,
        fallbacks=0,
        energy_joules=None,
    )
    return msgspec.structs.replace(plain, **changes)


def measurement(rounds: list[Round] | None = None, **changes: object) -> Measurement:
    plain = Measurement(
        clock="perf_counter",
        sync="read one element of every output",
        warmup=[WarmupStep(seconds=1.5, compiles=1), WarmupStep(seconds=0.02, compiles=0)],
        rounds=[timed(), timed(0.011), timed(0.0105)] if rounds is None else rounds,
        compile=Compile(count=1, seconds=1.2, first_step_seconds=1.5, cache="cold"),
        memory=Memory(peak_bytes=83_000_000_000, source="resident set"),
        flops=Flops(value=123_456_789_012, convention="model"),
        energy_source=None,
    )
    return msgspec.structs.replace(plain, **changes)


def served(**changes: object) -> LoadGenRun:
    plain = LoadGenRun(
        purpose="round",
        scenario="server",
        verdict="VALID",
        valid=True,
        reasons=[],
        queries=459,
        samples=459,
        errors=0,
        seconds=4.6,
        rates={"target": 100.0, "samples": 99.8, "tokens": 900.5},
        tokens={"produced": 4142, "asked": 4300},
        latencies={"ttft": Latencies(count=459, mean=0.006, percentiles={"50": 0.005, "90": 0.01, "99": 0.02})},
        settings={"schedule_rng_seed": 7, "loadgen_version": "6.0.17"},
    )
    return msgspec.structs.replace(plain, **changes)


def trained(**changes: object) -> TrainingRun:
    plain = TrainingRun(
        seed=12345,
        converged=True,
        scored=True,
        resumed_at=[],
        samples=1280,
        tokens=81_920,
        seconds=21.5,
        init_seconds=0.8,
        target=2.1,
        floor=1.46,
        evaluations=[Evaluation(samples=640, seconds=10.5, loss=2.7), Evaluation(samples=1280, seconds=21.5, loss=2.0)],
        losses=[8.4, 2.9, 2.1],
        loss_every=32,
        learning={"opt_base_learning_rate": 1e-3},
    )
    return msgspec.structs.replace(plain, **changes)


def check(**changes: object) -> Check:
    plain = Check(
        check="logits",
        level="model",
        metric="error over bound",
        value=0.25,
        limit=1.0,
        verdict="pass",
        reference="fp64 oracle",
        where="",
    )
    return msgspec.structs.replace(plain, **changes)


def record(**changes: object) -> Record:
    """A good record, built the way the product builds it; fields of `assemble` may be changed."""
    parts: dict[str, object] = {
        "case": case(),
        "device": device(),
        "environment": environment(),
        "run_id": RUN,
        "started_at": utc_now(),
        "status": Status.OK,
        "measurement": measurement(),
        "conformance": [check()],
    }
    return assemble(**{**parts, **changes})


finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=1e-9, max_value=1e9)
counts = st.integers(0, 2**63)
words = st.text(st.characters(codec="utf-8"), max_size=20)
keys = st.text("abcdefgh_-", min_size=1, max_size=12)
scalars = st.one_of(words, st.integers(-(2**63), 2**63), finite, st.booleans())
reasons = words.filter(str.strip)

cases = st.builds(
    case,
    suite=words.filter(bool),
    workload=words,
    precision=st.sampled_from(PRECISIONS),
    mode=st.sampled_from(MODES),
    tier=st.sampled_from(TIERS),
    sequence=st.integers(1, 10**6),
    parallel=st.dictionaries(keys, st.integers(1, 64), max_size=3),
)
rounds = st.builds(
    Round,
    seconds=positive,
    items=st.dictionaries(keys, counts, max_size=3),
    compiles=st.sampled_from([0, None]),
    fallbacks=st.sampled_from([0, None]),
    energy_joules=st.none() | finite,
)
latencies = st.builds(
    Latencies, count=counts, mean=finite, percentiles=st.dictionaries(st.sampled_from(["50", "99"]), finite, max_size=2)
)
loadgen_runs = st.builds(
    LoadGenRun,
    scenario=st.sampled_from(["single_stream", "server"]),
    reasons=st.lists(words, max_size=2),
    queries=counts,
    samples=counts,
    errors=counts,
    seconds=finite,
    rates=st.dictionaries(keys, finite, max_size=2),
    tokens=st.dictionaries(keys, counts, max_size=2),
    latencies=st.dictionaries(keys, latencies, max_size=2),
    settings=st.dictionaries(keys, scalars, max_size=2),
)
training_runs = st.builds(
    TrainingRun,
    seed=counts,
    resumed_at=st.lists(counts, max_size=1),
    samples=counts,
    tokens=counts,
    seconds=finite,
    init_seconds=finite,
    target=finite,
    floor=st.none() | finite,
    evaluations=st.lists(st.builds(Evaluation, samples=counts, seconds=finite, loss=finite), max_size=2),
    losses=st.lists(finite, max_size=3),
    loss_every=counts,
    learning=st.dictionaries(keys, scalars, max_size=2),
)
measurements = st.builds(
    Measurement,
    clock=words,
    sync=words,
    warmup=st.lists(st.builds(WarmupStep, seconds=finite, compiles=st.none() | counts), max_size=3),
    rounds=st.lists(rounds, min_size=1, max_size=4),
    compile=st.builds(
        Compile,
        count=st.none() | counts,
        seconds=st.none() | finite,
        first_step_seconds=finite,
        cache=st.sampled_from(["cold", "warm", "none", None]),
    ),
    memory=st.builds(Memory, peak_bytes=st.none() | counts, source=words),
    flops=st.none() | st.builds(Flops, value=counts, convention=words),
    energy_source=st.none() | words,
    timings=st.dictionaries(keys, st.lists(finite, max_size=4), max_size=2),
    serving=st.lists(loadgen_runs, max_size=2),
    training=st.lists(training_runs, max_size=2),
)
checks = st.builds(
    Check,
    check=words,
    level=st.sampled_from(["formats", "operators", "model", "learning", "generation"]),
    metric=words,
    value=st.none() | finite,
    limit=st.none() | finite,
    verdict=st.sampled_from(["pass", "fail", "non-finite", "not checked"]),
    reference=words,
    where=words,
)
devices = st.builds(
    Device,
    backend=words,
    platform=words,
    chip=words,
    chips=counts,
    cores=counts,
    memory_bytes=st.none() | counts,
    instance_type=st.none() | words,
    region=st.none() | words,
    read_back=st.dictionaries(keys, scalars, max_size=3),
)
environments = st.builds(
    Environment,
    versions=st.dictionaries(keys, words, max_size=3),
    flags=st.dictionaries(keys, scalars, max_size=3),
    cpu=st.dictionaries(keys, scalars, max_size=3),
    git=st.builds(Git, commit=st.none() | words, dirty=st.none() | st.booleans(), diff_hash=st.none() | words),
    fingerprint=words,
    fingerprint_version=counts,
)
prices = st.builds(
    PricePoint,
    instance_type=words,
    region=words,
    term=words,
    usd_per_hour=finite,
    currency=words,
    as_of=words,
    source=words,
    note=words,
)
moments = st.datetimes(datetime.datetime(1970, 1, 2), datetime.datetime(2200, 1, 1), timezones=st.timezones())  # noqa: DTZ001
instants = moments.map(datetime.datetime.isoformat)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Records that follow every rule, with nulls anywhere a null may be."""
    status = draw(st.sampled_from(list(Status)))
    measured = draw(measurements if status is Status.OK else st.none() | measurements)
    plain = Record(
        schema_version=SCHEMA_VERSION,
        record_id=new_id(),
        run_id=draw(words),
        started_at=draw(instants),
        finished_at=draw(instants),
        case=draw(cases),
        device=draw(devices),
        environment=draw(environments),
        status=status,
        reason=draw(words if status is Status.OK else reasons),
        measurement=measured,
        conformance=draw(st.lists(checks, max_size=3)),
        simulated=False,
        price=draw(st.none() | prices),
        artifacts=draw(st.lists(st.builds(Artifact, name=words, path=words, sha256=words), max_size=2)),
    )
    return explain(plain)
