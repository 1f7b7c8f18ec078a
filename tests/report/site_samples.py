"""Records for tests of the site: valid ones, written through the real store, that show every kind of outcome."""

from __future__ import annotations

import hashlib
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from trnbench.case import Case, case_from
from trnbench.catalog.prices import PricePoint
from trnbench.device import Device
from trnbench.records.schema import (
    SCHEMA_VERSION,
    Check,
    Compile,
    Environment,
    Flops,
    Git,
    Measurement,
    Memory,
    Record,
    Round,
    WarmupStep,
)
from trnbench.records.store import Store
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

START = datetime(2026, 11, 2, 3, 0, tzinfo=UTC)


def sample_case(**changes: Any) -> Case:
    """A training case; any field can be given."""
    fields: dict[str, Any] = {
        "suite": "decoder",
        "workload": "llama3.2-1b",
        "phase": "train_step",
        "precision": "bf16",
        "mode": "compiled",
        "batch": 8,
        "sequence": 2048,
        "tier": "single",
        "version": "0123456789abcdef",
    }
    return case_from({**fields, **changes})


def sample_device(kind: str, **changes: Any) -> Device:
    """`trn2`, `h100` or `cpu`; any field can be given."""
    kinds: dict[str, dict[str, Any]] = {
        "trn2": {
            "backend": "neuron",
            "platform": "neuron",
            "chip": "trainium2",
            "chips": 16,
            "cores": 64,
            "memory_bytes": 96 * 2**30,
            "instance_type": "trn2.48xlarge",
            "region": "us-east-2",
        },
        "h100": {
            "backend": "cuda",
            "platform": "cuda",
            "chip": "h100-sxm",
            "chips": 8,
            "cores": 8,
            "memory_bytes": 80 * 2**30,
            "instance_type": "p5.48xlarge",
            "region": "us-east-2",
        },
        "cpu": {"backend": "cpu", "platform": "cpu", "chip": "cpu", "chips": 1, "cores": 2},
    }
    return Device(**{**kinds[kind], **changes})


def sample_environment(kind: str, **changes: Any) -> Environment:
    """The stack of a device kind; any field can be given."""
    versions = {"torch": "2.13.0", "python": "3.12.4"}
    flags: dict[str, Any] = {"float32_matmul_precision": "highest"}
    if kind == "trn2":
        versions |= {"torch": "2.9.1", "torch-neuronx": "2.9.0.2.10"}
        flags["NEURON_CC_FLAGS"] = "--auto-cast none"
    fields: dict[str, Any] = {
        "versions": versions,
        "flags": flags,
        "cpu": {"model": f"Example CPU of {kind}", "threads": 192 if kind != "cpu" else 2},
        "git": Git(commit="a" * 40, dirty=False, diff_hash=None),
        "fingerprint": hashlib.sha256(kind.encode()).hexdigest()[:16],
        "fingerprint_version": 1,
    }
    return Environment(**{**fields, **changes})


def sample_check(check: str = "logits", value: float | None = 0.42, **changes: Any) -> Check:
    """A check that passes unless changed."""
    fields: dict[str, Any] = {
        "check": check,
        "level": "model",
        "metric": "largest error over its bound",
        "value": value,
        "limit": 1.0,
        "verdict": "pass",
        "reference": "float64 on the device's rounded inputs",
        "where": "",
    }
    return Check(**{**fields, **changes})


def sample_measurement(case: Case, rate: float, rounds: int = 12, seed: int = 0) -> Measurement:
    """`rounds` rounds at about `rate` real tokens a second."""
    chance = random.Random(f"{case.id} {rate} {seed}")
    tokens = case.batch * (1 if case.phase == "decode" else case.sequence)
    return Measurement(
        clock="time.perf_counter",
        sync="one element of every output read back",
        warmup=[WarmupStep(seconds=41.0, compiles=2), *[WarmupStep(seconds=tokens / rate, compiles=0)] * 2],
        rounds=[
            Round(
                seconds=tokens / rate * chance.gauss(1.0, 0.01),
                items={"tokens": tokens, "padded_tokens": tokens, "sequences": case.batch},
                compiles=0,
                fallbacks=0,
                energy_joules=None,
            )
            for _ in range(rounds)
        ],
        compile=Compile(count=2, seconds=38.5, first_step_seconds=41.0, cache="cold"),
        memory=Memory(peak_bytes=83_000_000_000, source="allocator"),
        flops=Flops(value=10**9, convention="matmul-real-causal"),
        energy_source=None,
    )


def sample_record(kind: str = "h100", *, run: str = "run-1", rate: float | None = 1000.0, **changes: Any) -> Record:
    """A record; without a `rate` nothing was measured and a status other than ok should be given."""
    case = changes.pop("case", None) or sample_case()
    started = changes.pop("started", START)
    device = changes.pop("device", None) or sample_device(kind)
    measurement = sample_measurement(case, rate, seed=started.day) if rate else None
    price = PricePoint(
        instance_type=device.instance_type or "",
        region="us-east-2",
        term="on-demand",
        usd_per_hour={"trn2": 20.0, "h100": 55.0}.get(kind, 1.0),
        currency="USD",
        as_of="2026-11-01",
        source="https://aws.example/prices?a=1&b=2",
        note="for a test",
    )
    fields: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run,
        "started_at": started.isoformat().replace("+00:00", "Z"),
        "finished_at": (started + timedelta(minutes=2)).isoformat().replace("+00:00", "Z"),
        "case": case,
        "device": device,
        "environment": changes.pop("environment", None) or sample_environment(kind),
        "status": Status.OK,
        "reason": "",
        "measurement": measurement,
        "conformance": [sample_check(), sample_check("loss", 0.11)] if rate else [],
        "simulated": False,
        "price": price if device.instance_type else None,
        **changes,
    }
    label = f"{kind} {run} {case.id} {fields['started_at']}"
    fields.setdefault("record_id", hashlib.sha256(label.encode()).hexdigest()[:22])
    fields.setdefault("unknown", explain(fields))
    return Record(**fields)


def explain(fields: dict[str, Any]) -> dict[str, str]:
    """A reason for every null that a sample holds."""
    reasons = {
        f"device.{name}": "not on a cloud instance"
        for name in ("memory_bytes", "instance_type", "region")
        if getattr(fields["device"], name) is None
    }
    if fields["environment"].git.diff_hash is None:
        reasons["environment.git.diff_hash"] = "the checkout is clean"
    if fields["price"] is None:
        reasons["price"] = "no instance type"
    if fields["measurement"] is None:
        reasons["measurement"] = fields["reason"] or "the case is only checked"
    else:
        reasons["measurement.energy_source"] = "no energy counter"
        if fields["measurement"].rounds:
            reasons["measurement.rounds[*].energy_joules"] = "no energy counter"
        if fields["measurement"].flops is None:
            reasons["measurement.flops"] = "not counted in this phase"
        if any(run.floor is None for run in fields["measurement"].training):
            reasons["measurement.training[*].floor"] = "the data is a text: nobody knows the loss of its best predictor"
    for place, check in enumerate(fields["conformance"]):
        if check.value is None:
            reasons[f"conformance[{place}].value"] = "the result is not finite"
    return reasons


def write_all(root: Path, records: list[Record]) -> Path:
    """Write the records through the store, those of served and trained cases with logs beside them; return its root."""
    from served_samples import sample_files

    root.mkdir(parents=True, exist_ok=True)
    for record in records:
        Store(root).write(record, sample_files(record))
    return root


def many_outcomes() -> list[Record]:
    """Two devices, several cases, four nights each, and every way in which a case can go missing; and served ones."""
    from served_samples import workload_outcomes

    records = workload_outcomes()
    cases = [sample_case(batch=batch) for batch in (1, 2, 8, 16)]
    cases += [sample_case(phase="decode", batch=8, new_tokens=128), sample_case(phase="prefill", precision="fp32")]
    rates = {"trn2": (11_000, 20_500, 70_000, 101_000, 900, 30_000), "h100": (9_000, 20_000, 71_000, 120_000, 1000, 0)}
    for night in range(3):
        for kind, measured in rates.items():
            run = f"2026110{2 + night}-{kind}"
            for place, (case, rate) in enumerate(zip(cases, measured, strict=True)):
                started = START + timedelta(days=night, minutes=3 * place + (40 if kind == "trn2" else 0))
                if rate:
                    spread = random.Random(f"{run} {place}").gauss(1.0, 0.01)
                    records.append(sample_record(kind, run=run, rate=rate * spread, case=case, started=started))
                else:
                    reason = "out of memory: tried to allocate 12.0 GiB"
                    failed = {"rate": None, "status": Status.OOM, "reason": reason}
                    records.append(sample_record(kind, run=run, case=case, started=started, **failed))
    night = START + timedelta(days=5)
    for place, case in enumerate(cases[:3]):
        skipped = {"rate": None, "status": Status.SKIPPED, "reason": "no device of backend neuron on this machine"}
        started = night + timedelta(minutes=place)
        device = sample_device("cpu")
        records.append(sample_record("cpu", run="20261107-none", case=case, started=started, device=device, **skipped))
    return records
