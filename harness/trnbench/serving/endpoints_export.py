"""A served record in the file layout of the MLPerf(R) Endpoints benchmark, so that its viewer can draw the curve.

Layout: mlcommons/endpoints_policies, endpoints_submission_rules.md, sections 8.1 to 8.3, as `mlperf-viz` 2.0.0 reads
it: `<organization>/<submission>/results/<system>/<model>/r<N>/` with a folder for every load. Times are nanoseconds,
percentile keys are like "90.0". What the record does not hold is left out, never filled in.

Only the layout is theirs. Their points are fixed concurrencies that a client keeps up; ours are arrival rates, and the
concurrency shown is the mean number of requests in flight that follows from them (Little's law: rate times latency).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import msgspec

from trnbench.status import UsageError
from trnbench.wording import DISCLAIMER, SIMULATED_NOTICE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trnbench.records.schema import Latencies, LoadGenRun, Measurement, Record

ORGANIZATION = "TrnBench"
SHOWN_AS = f"Unverified, no submission: {ORGANIZATION}"
"""In the legend and the footnote of what the viewer draws, which calls every result verified by MLCommons."""

VIEWER_NOTE = (
    "mlperf-viz prints that results are verified by MLCommons under whatever it draws, and no field of these files "
    "changes that. These results are not verified by anyone: do not publish its charts of them."
)
NANOSECONDS = 1e9


def export_endpoints(record: Record, out: Path) -> list[Path]:
    """Write one point folder for every load of the record's curve under `out` and return the files, in order.

    The loads are the curve's points or, where the scenario has no curve, the middle one of the rounds. Raises
    `UsageError` for a record without served tokens, and where `out` cannot be written.
    """
    loads = _loads(record)
    root = out / ORGANIZATION / _safe(record.record_id)
    model = root / "results" / _safe(_system_name(record)) / _safe(record.case.workload)
    files: dict[Path, bytes] = {root / "docs" / "README.md": f"{_notice(record)}\n\n{VIEWER_NOTE}\n".encode()}
    taken = 0
    for run in loads:
        # Two loads may share a whole number of requests in flight, two folders cannot share a name.
        taken = max(taken + 1, round(in_flight(run)))
        folder = model / f"r{taken}"
        files[folder / "point.yaml"] = _text(_point(record, run))  # JSON is YAML
        files[folder / "result_summary.json"] = _text(result_summary(record, run))
        files[folder / "system_desc.json"] = _text(_system(record))
    try:
        for path, data in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"cannot export to {out}: {error.strerror}") from None
    return list(files)


def in_flight(run: LoadGenRun) -> float:
    """Mean number of requests that were being answered: completed samples per second times their mean latency."""
    return run.rates["samples"] * run.latencies["latency"].mean


def result_summary(record: Record, run: LoadGenRun) -> dict[str, Any]:
    """One test in the layout of `result_summary.json`; stat blocks in nanoseconds, as far as the record has them.

    LoadGen ends a test only when every sample is answered, so that none of those issued has failed.
    """
    found: dict[str, Any] = {
        "disclaimer": _notice(record),
        "version": f"TrnBench record format {record.schema_version}",
        "n_samples_issued": run.samples,
        "n_samples_completed": run.samples,
        "n_samples_failed": 0,
        "duration_ns": round(run.seconds * NANOSECONDS),
        "state": "complete",
        "complete": True,
        "qps": run.rates["samples"],
        "tps": run.rates["tokens"],
    }
    if record.environment.git.commit is not None:
        found["git_sha"] = record.environment.git.commit
    for name in ("ttft", "tpot", "latency"):
        if name in run.latencies:
            found[name] = _block(run.latencies[name])
    produced = run.tokens["produced"]
    found["output_sequence_lengths"] = {"total": produced, "avg": produced / run.samples}
    found["run_config"] = {
        "type": f"{run.scenario}, LoadGen's verdict {run.verdict}",
        **({"target_qps": run.rates["target"]} if "target" in run.rates else {}),
        "settings": run.settings,
    }
    return found


def _loads(record: Record) -> list[LoadGenRun]:
    """What becomes a point, from light to heavy load."""
    measurement: Measurement | None = record.measurement
    runs = [] if measurement is None else [run for run in measurement.serving if run.tokens.get("produced")]
    points = [run for run in runs if run.purpose == "point"]
    if not points:
        rounds = sorted((run for run in runs if run.purpose == "round"), key=lambda run: run.rates["samples"])
        points = rounds[(len(rounds) - 1) // 2 :][:1]
    if not points:
        raise UsageError(
            f"record {record.record_id} holds no LoadGen test that generated tokens (its phase is {record.case.phase}, "
            f"its status {record.status.value}); the layout is for served text generation"
        )
    return sorted(points, key=in_flight)


def _block(latencies: Latencies) -> dict[str, Any]:
    percentiles = {f"{float(key):.1f}": round(value * NANOSECONDS) for key, value in latencies.percentiles.items()}
    block: dict[str, Any] = {
        "total": round(latencies.mean * latencies.count * NANOSECONDS),
        "avg": round(latencies.mean * NANOSECONDS),
        "percentiles": percentiles,
    }
    if "50.0" in percentiles:
        block["median"] = percentiles["50.0"]
    return block


def _point(record: Record, run: LoadGenRun) -> dict[str, Any]:
    case = record.case
    return {
        "disclaimer": _notice(record),
        "concurrency": round(in_flight(run), 3),
        "run_date": record.started_at,
        "model_name": case.workload,
        "model_precision": case.precision,
        "model_notes": _notice(record),
        "dataset_name": "TrnBench's seeded prompts",
        "output_token_average": round(run.tokens["produced"] / run.samples, 3),
    }


def _system(record: Record) -> dict[str, Any]:
    device = record.device
    on_host = device.chip == "cpu"
    accelerator: dict[str, Any] = {"accelerator_model_name": device.chip, "accelerators_per_node": device.chips}
    if device.memory_bytes is not None:
        accelerator["accelerator_memory_capacity"] = f"{math.floor(device.memory_bytes / 2**30)} GiB"
    node: dict[str, Any] = {
        "number_of_nodes": 1,
        "framework": ", ".join(f"{name} {version}" for name, version in sorted(record.environment.versions.items())),
        "serving_framework": "TrnBench, continuous batching",
        "sw_notes": _notice(record),
        **({} if on_host else {"accelerator_info": [accelerator]}),
    }
    if "model" in record.environment.cpu:
        node["host_processor_model_name"] = record.environment.cpu["model"]
    return {
        "disclaimer": _notice(record),
        "submitter_org_names": SHOWN_AS,
        "submission_id": record.record_id,
        "system_name": _system_name(record),
        "serving_framework": node["serving_framework"],
        "config_summary_notes": _notice(record),
        "node_types": [node],
    }


def _system_name(record: Record) -> str:
    device = record.device
    return f"{device.chips}x {device.instance_type or device.chip}, {device.backend} {record.case.mode}"


def _notice(record: Record) -> str:
    return f"{DISCLAIMER} Simulated: {SIMULATED_NOTICE}." if record.simulated else DISCLAIMER


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)


def _text(content: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
