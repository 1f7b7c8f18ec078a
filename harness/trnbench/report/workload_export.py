"""Serving and training as data: CSV with one line a run, JSON with everything. Raw SI values, as everywhere."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import msgspec

from trnbench import wording
from trnbench.case import QUALITY_PHASES, SERVING_PHASES
from trnbench.compare.metrics import METRICS, metric_values
from trnbench.records.quality_score import SCORE_RULE, quality_score
from trnbench.records.schema import LEAST_COUNT
from trnbench.report.export import inert
from trnbench.report.newest_cases import newest_cases
from trnbench.report.serving_words import PROFILES
from trnbench.report.training_words import training_runs
from trnbench.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trnbench.records.schema import LoadGenRun, Record, TrainingRun
    from trnbench.report.material import Material

_RECORD = ("backend", "chip", "chips", "instance_type", "fingerprint", "suite", "case", "newest", "status", "reason")
_RUN = ("run_id", "record_id", "started_at", "simulated")
_LATENCIES = [f"{name}_p{key}_seconds" for name in ("latency", "ttft", "tpot") for key in LEAST_COUNT]
_SERVING = (
    *_RECORD,
    *("phase", "scenario", "profile", "place", "purpose", "loadgen_verdict", "valid", "reasons", "queries", "samples"),
    *("errors", "seconds", "target_per_second", "samples_per_second", "tokens_per_second"),
    *("tokens_produced", "tokens_asked", *_LATENCIES, *_RUN),
)
_TRAINING = (
    *_RECORD,
    *("phase", "seed", "converged", "scored", "role", "resumed_at", "samples", "tokens", "seconds", "init_seconds"),
    *("target", "floor", "last_loss", "evaluations", *_RUN),
)


def serving_csv(material: Material) -> bytes:
    """One line a LoadGen run of every served record, the newest and the older ones."""
    newest = _newest(material, SERVING_PHASES)
    lines = [
        _served_line(record, run, place, newest)
        for record in _records(material, SERVING_PHASES)
        for place, run in enumerate(record.measurement.serving if record.measurement else [], 1)
    ]
    return _csv(material, _SERVING, lines)


def training_csv(material: Material) -> bytes:
    """One line a run of every record that trains to a quality."""
    newest = _newest(material, QUALITY_PHASES)
    lines = [
        _trained_line(record, run, newest)
        for record in _records(material, QUALITY_PHASES)
        for run in training_runs(record)
    ]
    return _csv(material, _TRAINING, lines)


def serving_json(material: Material) -> bytes:
    """Every served record with its values and all its LoadGen runs; also those without a run, with the reason."""
    newest = _newest(material, SERVING_PHASES)
    records = [
        {**_record(record, newest), "loadgen_runs": record.measurement.serving if record.measurement else []}
        for record in _records(material, SERVING_PHASES)
    ]
    return _json(material, {"profiles": PROFILES, "records": records})


def training_json(material: Material) -> bytes:
    """Every record that trains to a quality with its score and all its runs, evaluations included."""
    newest = _newest(material, QUALITY_PHASES)
    records = [
        {**_record(record, newest), "score": quality_score(training_runs(record)), "runs": training_runs(record)}
        for record in _records(material, QUALITY_PHASES)
    ]
    return _json(material, {"score_rule": SCORE_RULE, "records": records})


def _records(material: Material, phases: tuple[str, ...]) -> list[Record]:
    return [entry.record for entry in material.entries if entry.record.case.phase in phases]


def _newest(material: Material, phases: tuple[str, ...]) -> frozenset[str]:
    return frozenset(one.record.record_id for case in newest_cases(material, phases) for one in case.newest)


def _record(record: Record, newest: frozenset[str]) -> dict[str, object]:
    values = metric_values(record) if record.status is Status.OK else {}
    return {
        "record": record.record_id,
        "run": record.run_id,
        "started_at": record.started_at,
        "newest": record.record_id in newest,
        "device": record.device,
        "case": record.case,
        "status": record.status,
        "reason": record.reason,
        "values": {name: {"value": value, "unit": METRICS[name].unit} for name, value in values.items()},
        "simulated": record.simulated,
    }


def _line(record: Record, newest: frozenset[str]) -> dict[str, object]:
    device, case = record.device, record.case
    return {
        "backend": device.backend,
        "chip": device.chip,
        "chips": device.chips,
        "instance_type": device.instance_type,
        "fingerprint": record.environment.fingerprint,
        "suite": case.suite,
        "case": case.id,
        "phase": case.phase,
        "newest": record.record_id in newest,
        "status": record.status.value,
        "reason": record.reason,
        "run_id": record.run_id,
        "record_id": record.record_id,
        "started_at": record.started_at,
        "simulated": record.simulated,
    }


def _served_line(record: Record, run: LoadGenRun, place: int, newest: frozenset[str]) -> dict[str, object]:
    latencies = {
        f"{name}_p{key}_seconds": value
        for name, found in run.latencies.items()
        for key, value in found.percentiles.items()
    }
    return {
        **_line(record, newest),
        "scenario": run.scenario,
        "profile": record.case.profile,
        "place": place,
        "purpose": run.purpose,
        "loadgen_verdict": run.verdict,
        "valid": run.valid,
        "reasons": "; ".join(run.reasons),
        "queries": run.queries,
        "samples": run.samples,
        "errors": run.errors,
        "seconds": run.seconds,
        "target_per_second": run.rates.get("target"),
        "samples_per_second": run.rates.get("samples"),
        "tokens_per_second": run.rates.get("tokens"),
        "tokens_produced": run.tokens.get("produced"),
        "tokens_asked": run.tokens.get("asked"),
        **{name: latencies.get(name) for name in _LATENCIES},
    }


def _trained_line(record: Record, run: TrainingRun, newest: frozenset[str]) -> dict[str, object]:
    score = quality_score(training_runs(record))
    dropped = {score.fastest: "fastest", score.slowest: "slowest"}
    return {
        **_line(record, newest),
        "seed": run.seed,
        "converged": run.converged,
        "scored": run.scored,
        "role": "no score" if score.seconds is None else dropped.get(run.seed, "kept"),
        "resumed_at": " ".join(map(str, run.resumed_at)),
        "samples": run.samples,
        "tokens": run.tokens,
        "seconds": run.seconds,
        "init_seconds": run.init_seconds,
        "target": run.target,
        "floor": run.floor,
        "last_loss": run.evaluations[-1].loss if run.evaluations else None,
        "evaluations": len(run.evaluations),
    }


def _csv(material: Material, columns: tuple[str, ...], lines: Iterable[dict[str, object]]) -> bytes:
    """The lines under the disclaimer; yes and no for booleans, nothing for what is unknown."""
    text = io.StringIO()
    text.write(f"# {wording.DISCLAIMER}\n")
    if material.shows_simulated:
        text.write(f"# {wording.SIMULATED_NOTICE}\n")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: _plain(value) for name, value in line.items()})
    return text.getvalue().encode("utf-8")


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    return inert(value) if isinstance(value, str) else value


def _json(material: Material, content: dict[str, Any]) -> bytes:
    whole = {"disclaimer": wording.DISCLAIMER, **content}
    if material.shows_simulated:
        whole["simulated"] = wording.SIMULATED_NOTICE
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"
