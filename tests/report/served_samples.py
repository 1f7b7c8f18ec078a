"""Served cases and trainings to quality for tests of the site: figures made up, shapes and outcomes as they come."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from site_samples import START, sample_case, sample_check, sample_device, sample_environment, sample_record

from trnbench.records.schema import (
    LEAST_COUNT,
    Compile,
    Evaluation,
    Latencies,
    LoadGenRun,
    Measurement,
    Memory,
    Round,
    TrainingRun,
)
from trnbench.status import Status

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.records.schema import Record

LIMITS = {"ttft_limit_seconds": 0.2, "tpot_limit_seconds": 0.05}
ASKED, PRODUCED = 32, 21


def served_case(scenario: str = "server", phase: str = "serving", **changes: Any) -> Case:
    """A served case of the smallest preset; any field can be given."""
    fields: dict[str, Any] = {
        "suite": "serving",
        "workload": "nano",
        "phase": phase,
        "scenario": scenario,
        "profile": "quick",
        "precision": "fp32",
        "batch": 8,
        "sequence": 64,
        "tier": "smoke",
        **({"new_tokens": ASKED} if phase == "serving" else {}),
    }
    return sample_case(**{**fields, **changes})


def latencies(middle: float, count: int, tail: float = 3.0) -> Latencies:
    """Latencies around `middle` seconds, the p99 `tail` times as late; only what `count` carries."""
    stretch = {"50": 1.0, "90": 1 + (tail - 1) * 0.45, "95": 1 + (tail - 1) * 0.7, "99": tail, "99.9": tail * 1.3}
    found = {key: middle * stretch[key] for key, least in LEAST_COUNT.items() if count >= least}
    return Latencies(count=count, mean=middle * 1.2, percentiles=found)


def loadgen_run(
    purpose: str, scenario: str, *, target: float | None = None, capacity: float = 120.0, **changes: Any
) -> LoadGenRun:
    """A run of a system that completes `capacity` samples a second at most; beyond it the queue grows."""
    requests = changes.pop("samples", 480)
    tokens = changes.pop("with_tokens", True)
    load = (target or 0.0) / capacity
    done = min(target or capacity, capacity * 0.98)
    late = 0.008 * (1 + 0.7 * load / max(1 - load, 0.03)) if load < 1 else 0.008 + 2.5 * (load - 0.9)
    missed = scenario in ("server", "interactive") and late * 3 > LIMITS["ttft_limit_seconds"]
    found = {"latency": latencies(late + PRODUCED * 0.004, requests)}
    if tokens:
        found |= {"ttft": latencies(late, requests), "tpot": latencies(0.003 * (1 + load), requests, tail=2.2)}
    judged = purpose in ("search", "round")
    fields: dict[str, Any] = {
        "purpose": purpose,
        "scenario": scenario,
        "verdict": "INVALID" if missed else "VALID",
        "valid": not (missed and judged),
        "reasons": ["LoadGen: p99 TTFT above its limit"] if missed and judged else [],
        "queries": 1 if scenario == "offline" else requests // (8 if scenario == "multi_stream" else 1),
        "samples": requests,
        "errors": 0,
        "seconds": requests / done,
        "rates": {
            "samples": done,
            **({"tokens": done * PRODUCED} if tokens else {}),
            **({"target": target} if target else {}),
        },
        "tokens": {"produced": requests * PRODUCED, "asked": requests * ASKED} if tokens else {},
        "latencies": found,
        "settings": {"loadgen_version": "6.0.17", **(LIMITS if target else {})},
    }
    return LoadGenRun(**{**fields, **changes})


def rated_runs(scenario: str, capacity: float, *, with_tokens: bool = True) -> list[LoadGenRun]:
    """What the measurement of a rated scenario does: calibrate, search, measure the curve, and three rounds."""
    options: dict[str, Any] = {"capacity": capacity, "with_tokens": with_tokens}
    runs = [
        loadgen_run("calibration", "offline", **options, samples=64),
        loadgen_run("accuracy", "offline", **options, samples=64, verdict="none", latencies={}),
    ]
    runs += [loadgen_run("search", scenario, target=capacity * share, **options) for share in (0.75, 1.1, 0.9, 0.98)]
    runs += [
        loadgen_run("point", scenario, target=capacity * share, **options, samples=requests)
        for share, requests in ((0.1, 90), (0.25, 200), (0.4, 480), (0.6, 480), (0.8, 480), (0.9, 480), (1.2, 480))
    ]
    return runs + [loadgen_run("round", scenario, target=capacity * 0.9, **options) for _ in range(3)]


def measured(rounds: list[Round], **runs: Any) -> Measurement:
    """A measurement of rounds that are no steps."""
    return Measurement(
        clock="loadgen_clock",
        sync="one element of every output read back",
        warmup=[],
        rounds=rounds,
        compile=Compile(count=6, seconds=11.5, first_step_seconds=2.0, cache="cold"),
        memory=Memory(peak_bytes=400_000_000, source="resident set"),
        flops=None,
        energy_source=None,
        **runs,
    )


def _round(seconds: float, items: dict[str, int]) -> Round:
    return Round(seconds=seconds, items=items, compiles=0, fallbacks=0, energy_joules=None)


def served_measurement(case: Case, capacity: float) -> Measurement:
    """A served measurement in the scenario of the case."""
    scenario, tokens = case.scenario, case.phase == "serving"
    if scenario in ("server", "interactive"):
        runs = rated_runs(scenario, capacity, with_tokens=tokens)
    else:
        runs = [loadgen_run("calibration", scenario, capacity=capacity, with_tokens=tokens, samples=64)]
        runs += [loadgen_run("round", scenario, capacity=capacity, with_tokens=tokens, samples=664) for _ in range(3)]
    per_round = {
        "single_stream": lambda run: run.latencies["latency"].percentiles["90"],
        "multi_stream": lambda run: run.latencies["latency"].percentiles["99"],
    }.get(scenario, lambda run: 1 / run.rates["samples"])
    rounds = [
        _round(per_round(run), {"samples": run.samples, **({"tokens": run.tokens["produced"]} if tokens else {})})
        for run in runs
        if run.purpose == "round"
    ]
    return measured(rounds, serving=runs)


def training_run(seed: int, pace: float, **changes: Any) -> TrainingRun:
    """A run at `pace` samples a second whose loss falls from 5 towards the floor of 1.52."""
    chance = random.Random(seed)
    ends = 1024 + 128 * chance.randrange(-2, 3)
    needed = changes.pop("needed", ends)
    evaluations = [
        Evaluation(
            samples=samples,
            seconds=samples / pace,
            loss=1.52 + 3.4 * 0.5 ** (samples / (ends * 0.24)) + 0.01 * chance.random(),
        )
        for samples in range(128, needed + 1, 128)
    ]
    fields: dict[str, Any] = {
        "seed": seed,
        "converged": True,
        "scored": True,
        "resumed_at": [],
        "samples": needed,
        "tokens": needed * 128,
        "seconds": needed / pace + 0.2,
        "init_seconds": 4.5,
        "target": 1.75,
        "floor": 1.52,
        "evaluations": evaluations,
        "losses": [one.loss * 1.02 for one in evaluations],
        "loss_every": 16,
        "learning": {"learning_rate": 3e-3, "warmup_steps": 20, "batch": 8},
    }
    return TrainingRun(**{**fields, **changes})


def trained_measurement(runs: list[TrainingRun]) -> Measurement:
    """One round a run."""
    return measured(
        [_round(run.seconds, {"tokens": run.tokens, "samples": run.samples}) for run in runs], training=runs
    )


def workload_record(case: Case, measurement: Measurement | None, *, backend: str = "cpu", **changes: Any) -> Record:
    """A record of a served or trained case on the CPU, through `backend`."""
    device = sample_device("cpu", backend=backend, platform=backend)
    environment = sample_environment(f"cpu {backend}", cpu={"model": "Example CPU of cpu", "threads": 2})
    fields = {
        "run": f"{backend}-serving",
        "case": case,
        "device": device,
        "environment": environment,
        "measurement": measurement,
        "conformance": [sample_check()] if measurement else [],
        **changes,
    }
    return sample_record("cpu", **fields)


def text_training(**changes: Any) -> Record:
    """A fine-tuning on a text, whose floor nobody knows; one of its runs was resumed, so that it has no score."""
    case = served_case("", "finetune_lora", workload="smollm2-135m", suite="training", profile="")
    runs = [training_run(seed, 9.0, floor=None) for seed in (11, 12)]
    runs.append(training_run(13, 9.0, floor=None, resumed_at=[512], scored=False))
    return workload_record(case, trained_measurement(runs), run="text", **changes)


def quality_case(**changes: Any) -> Case:
    """A training from scratch to quality."""
    fields = {"suite": "training", "profile": "", "new_tokens": 0, "batch": 16, "micro_batch": 8}
    return served_case("", "pretrain", **{**fields, **changes})


def workload_outcomes() -> list[Record]:
    """Two backends of one CPU over three nights in every scenario, trainings, and the ways in which they go wrong."""
    records = []
    for backend, capacity, pace in (("cpu", 120.0, 40.0), ("xla", 80.0, 55.0)):
        for night in range(3):
            changes = {"backend": backend, "run": f"2026111{night}-{backend}"}
            started = START + timedelta(days=8 + night, hours=backend == "xla")
            cases = [served_case(), quality_case()]
            if night == 2 and backend == "cpu":
                cases += [served_case("offline"), served_case("single_stream"), served_case("interactive")]
                cases += [served_case(one, "scoring") for one in ("multi_stream", "server")]
            for minute, case in enumerate(cases):
                speed = capacity * (1 + 0.01 * night)
                made = (
                    trained_measurement([training_run(seed, pace + night / 10) for seed in (3 + night, 14, 159)])
                    if case.phase == "pretrain"
                    else served_measurement(case, speed)
                )
                moment = started + timedelta(minutes=5 * minute)
                records.append(workload_record(case, made, started=moment, **changes))
    return [*records, *_gone_wrong()]


def _gone_wrong() -> list[Record]:
    night = START + timedelta(days=12)
    rated = served_case(profile="full", batch=4)
    degraded = loadgen_run(
        "search", "server", target=50.0, errors=3, samples=7, valid=False, reasons=["3 errors in LoadGen's detail log"]
    )
    silent = loadgen_run("point", "server", target=90.0, samples=0, valid=False, reasons=["0 of 14 succeeded"])
    silent = msgspec.structs.replace(silent, rates={"target": 90.0}, tokens={}, latencies={})
    lost = {"status": Status.INVALID, "reason": "lost sample: none was valid", "run": "invalid"}
    missed = [training_run(1, 20.0), training_run(2, 20.0), training_run(4, 20.0, needed=512, converged=False)]
    crashed = {"status": Status.CRASHED, "reason": "LoadGen's process was killed by SIGKILL", "rate": None}
    return [
        workload_record(rated, measured([], serving=[degraded, silent]), started=night, **lost),
        workload_record(served_case("offline", batch=2), None, started=night, **{**crashed, "run": "crashed"}),
        workload_record(quality_case(batch=8), trained_measurement(missed), started=night, run="missed"),
        text_training(started=night),
    ]


def sample_files(record: Record) -> dict[str, bytes]:
    """Logs beside a record of a served or trained case."""
    if record.measurement is None:
        return {}
    if record.measurement.serving:
        return {"mlperf_log_summary.txt": b"Result is : VALID\n", "mlperf_log_detail.txt": b':::MLLOG {"key": "a"}\n'}
    runs = range(len(record.measurement.training))
    return {f"result_{place}.txt": f':::MLLOG {{"key": "seed", "value": {place}}}\n'.encode() for place in runs}
