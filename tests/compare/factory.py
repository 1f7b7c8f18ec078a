"""Records for tests of comparing and reporting: complete, valid, and different only where a test says so."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from trnbench.case import Case, case_from
from trnbench.device import Device
from trnbench.records.schema import (
    SCHEMA_VERSION,
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
)
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trnbench.catalog.prices import PricePoint

_serial = itertools.count(1)

TRAINIUM = {"backend": "neuron", "platform": "neuron", "chip": "trainium2", "chips": 1, "cores": 4}
H100 = {"backend": "cuda", "platform": "cuda", "chip": "h100-sxm", "chips": 1, "cores": 1}
CPU = {"backend": "cpu", "platform": "cpu", "chip": "cpu", "chips": 1, "cores": 2}


def make_case(**changes: Any) -> Case:
    """A small training case; any field can be given."""
    fields: dict[str, Any] = {
        "suite": "decoder",
        "workload": "nano",
        "phase": "train_step",
        "precision": "bf16",
        "mode": "compiled",
        "batch": 8,
        "sequence": 128,
        "tier": "smoke",
        "version": "0123456789abcdef",
    }
    return case_from({**fields, **changes})


def make_device(**changes: Any) -> Device:
    """A device; a CPU with two threads unless changed (see `TRAINIUM`, `H100`)."""
    fields: dict[str, Any] = {**CPU, "memory_bytes": 8 * 2**30, "instance_type": None, "region": None, **changes}
    return Device(**fields)


def make_environment(**changes: Any) -> Environment:
    """A host and software stack; any field can be given."""
    fields: dict[str, Any] = {
        "versions": {"torch": "2.13.0", "python": "3.11.9"},
        "flags": {},
        "cpu": {"model": "Example CPU 1", "isa": "avx2 avx512f", "threads": 2},
        "git": Git(commit="a" * 40, dirty=False, diff_hash=""),
        "fingerprint": "f" * 16,
        "fingerprint_version": 1,
        **changes,
    }
    return Environment(**fields)


def make_rounds(seconds: Sequence[float], items: dict[str, int] | Sequence[dict[str, int]]) -> list[Round]:
    """One round per duration; `items` is the same for all, or one mapping per round."""
    each = [items] * len(seconds) if isinstance(items, dict) else list(items)
    return [
        Round(seconds=duration, items=counted, compiles=0, fallbacks=0, energy_joules=None)
        for duration, counted in zip(seconds, each, strict=True)
    ]


def make_measurement(
    seconds: Sequence[float] = (1.0, 1.0, 1.0, 1.0, 1.0),
    items: dict[str, int] | Sequence[dict[str, int]] | None = None,
    **changes: Any,
) -> Measurement:
    """Rounds of the given seconds; by default each processes 800 real of 1024 padded tokens in 8 sequences."""
    counted = {"tokens": 800, "padded_tokens": 1024, "sequences": 8} if items is None else items
    fields: dict[str, Any] = {
        "clock": "time.perf_counter",
        "sync": "reads one element back",
        "warmup": [],
        "rounds": make_rounds(seconds, counted),
        "compile": Compile(count=1, seconds=2.0, first_step_seconds=2.5, cache="cold"),
        "memory": Memory(peak_bytes=2**30, source="allocator"),
        "flops": Flops(value=10**12, convention="matmul-real-causal"),
        "energy_source": None,
        "timings": {},
        "serving": [],
        "training": [],
        **changes,
    }
    return Measurement(**fields)


def make_served_case(scenario: str = "server", phase: str = "serving", **changes: Any) -> Case:
    """A small served case; any field can be given."""
    answers = {"new_tokens": 32} if phase == "serving" else {}
    return make_case(phase=phase, scenario=scenario, profile="quick", **answers, **changes)


def make_latencies(**percentiles: float) -> Latencies:
    """Latencies of 1000 requests by percentile: `p50=0.1` and so on."""
    named = {name.removeprefix("p"): value for name, value in percentiles.items()}
    return Latencies(count=1000, mean=next(iter(named.values()), 1.0), percentiles=named)


def make_loadgen_run(**changes: Any) -> LoadGenRun:
    """A valid LoadGen run of a round: 10 requests in 1 s that produced 70 of 320 tokens asked for."""
    fields: dict[str, Any] = {
        "purpose": "round",
        "scenario": "server",
        "verdict": "VALID",
        "valid": True,
        "reasons": [],
        "queries": 10,
        "samples": 10,
        "errors": 0,
        "seconds": 1.0,
        "rates": {},
        "tokens": {"produced": 70, "asked": 320},
        "latencies": {},
        "settings": {},
        **changes,
    }
    return LoadGenRun(**fields)


def make_training_run(seed: int = 1, seconds: float = 100.0, **changes: Any) -> TrainingRun:
    """A run that converged after 512 samples in `seconds`."""
    fields: dict[str, Any] = {
        "seed": seed,
        "converged": True,
        "scored": True,
        "resumed_at": [],
        "samples": 512,
        "tokens": 512 * 128,
        "seconds": seconds,
        "init_seconds": 3.0,
        "target": 2.0,
        "floor": 1.5,
        "evaluations": [
            Evaluation(samples=256, seconds=seconds / 2, loss=2.5),
            Evaluation(samples=512, seconds=seconds, loss=1.9),
        ],
        "losses": [4.0, 2.0],
        "loss_every": 32,
        "learning": {"learning_rate": 1e-3},
        **changes,
    }
    return TrainingRun(**fields)


def make_check(verdict: str = "pass", **changes: Any) -> Check:
    """One conformance verdict."""
    fields: dict[str, Any] = {
        "check": "logits",
        "level": "model",
        "metric": "error over bound",
        "value": 0.5,
        "limit": 1.0,
        "verdict": verdict,
        "reference": "float64 on the device's rounded inputs",
        "where": "",
        **changes,
    }
    return Check(**fields)


def make_record(
    run: str = "run-1",
    *,
    case: Case | None = None,
    device: Device | None = None,
    environment: Environment | None = None,
    seconds: Sequence[float] = (1.0, 1.0, 1.0, 1.0, 1.0),
    items: dict[str, int] | Sequence[dict[str, int]] | None = None,
    measurement: Measurement | None = None,
    status: Status = Status.OK,
    reason: str = "",
    conformance: Sequence[Check] | None = None,
    simulated: bool = False,
    price: PricePoint | None = None,
    started_at: str = "2026-11-30T09:00:00.000000Z",
) -> Record:
    """One record of one run; `seconds` and `items` shape its rounds unless `measurement` is given whole."""
    number = next(_serial)
    measured = make_measurement(seconds, items) if measurement is None else measurement
    unknown = {
        "measurement.energy_source": "no energy counter",
        "measurement.rounds[*].energy_joules": "no energy counter",
    }
    used_device = make_device() if device is None else device
    for name in ("instance_type", "region", "memory_bytes"):
        if getattr(used_device, name) is None:
            unknown[f"device.{name}"] = "not on a cloud instance"
    if price is None:
        unknown["price"] = "no instance type"
    return Record(
        schema_version=SCHEMA_VERSION,
        record_id=f"{number:022x}",
        run_id=run,
        started_at=started_at,
        finished_at=started_at,
        case=make_case() if case is None else case,
        device=used_device,
        environment=make_environment() if environment is None else environment,
        status=status,
        reason=reason or ("" if status is Status.OK else "for a test"),
        measurement=measured,
        conformance=[make_check()] if conformance is None else list(conformance),
        simulated=simulated,
        price=price,
        unknown=unknown,
    )


def make_runs(rates: Sequence[float], prefix: str = "run", tokens: int = 1000, **fields: Any) -> list[Record]:
    """One record per run at the given rate in real tokens per second, in time order."""
    return [
        make_record(
            f"{prefix}-{index}",
            seconds=(tokens / rate,) * 5,
            items={"tokens": tokens, "padded_tokens": 2 * tokens, "sequences": 8},
            started_at=f"2026-11-{1 + index:02d}T09:00:00.000000Z",
            **fields,
        )
        for index, rate in enumerate(rates)
    ]
