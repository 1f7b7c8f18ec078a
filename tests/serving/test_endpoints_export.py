"""The export in the layout of the MLPerf(R) Endpoints benchmark: its numbers, what is left out, and that it draws."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlperf_endpoints_visualizer import bundle

sys.path.insert(0, str(Path(__file__).parents[1] / "compare"))

from factory import H100, make_case, make_device, make_measurement, make_record

from trnbench.records.schema import LEAST_COUNT, Latencies, LoadGenRun, Record
from trnbench.serving.endpoints_export import export_endpoints, in_flight, result_summary
from trnbench.status import UsageError
from trnbench.wording import DISCLAIMER, SIMULATED_NOTICE


def latencies(mean: float, count: int) -> Latencies:
    return Latencies(
        count=count, mean=mean, percentiles={key: mean for key, least in LEAST_COUNT.items() if count >= least}
    )


def load(rate: float, mean: float, *, purpose: str = "point", samples: int = 128, **changes: Any) -> LoadGenRun:
    """A test at `rate` samples a second that took `mean` seconds an answer, 10 tokens each."""
    plain = LoadGenRun(
        purpose="point",
        scenario="server",
        verdict="VALID",
        valid=True,
        reasons=[],
        queries=samples,
        samples=samples,
        errors=0,
        seconds=samples / rate,
        rates={"target": rate, "samples": rate, "tokens": 10 * rate},
        tokens={"produced": 10 * samples, "asked": 12 * samples},
        latencies={
            "latency": latencies(mean, samples),
            "ttft": latencies(mean / 4, samples),
            "tpot": latencies(mean / 12, samples),
        },
        settings={"loadgen_version": "6.0.17"},
    )
    return msgspec.structs.replace(plain, purpose=purpose, **changes)


CURVE = [
    load(5.0, 0.05, purpose="search"),
    *(load(rate, mean) for rate, mean in [(80.0, 0.4), (10.0, 0.05), (20.0, 0.06), (40.0, 0.1), (60.0, 0.15)]),
    load(79.0, 0.38, purpose="round"),
]


def record(runs: list[LoadGenRun], **changes: Any) -> Record:
    case = make_case(
        suite="serving", phase="serving", scenario="server", profile="quick", batch=16, sequence=32, new_tokens=16
    )
    measured = make_measurement(seconds=[0.0125], items={"tokens": 1280, "samples": 128}, serving=runs)
    return make_record(case=case, measurement=measured, **changes)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_every_load_point_is_a_folder_from_light_to_heavy(tmp_path: Path) -> None:
    paths = export_endpoints(record(CURVE), tmp_path)
    assert all(path.is_file() and tmp_path in path.parents for path in paths)
    summaries = [path for path in paths if path.name == "result_summary.json"]
    assert [path.parent.name for path in summaries] == ["r1", "r2", "r4", "r9", "r32"]
    assert [read(path)["qps"] for path in summaries] == [10.0, 20.0, 40.0, 60.0, 80.0]
    first = read(summaries[0].with_name("point.yaml"))
    assert first["concurrency"] == pytest.approx(0.5)


def test_loads_of_the_same_concurrency_have_folders_of_their_own(tmp_path: Path) -> None:
    paths = export_endpoints(record([load(10.0, 0.05), load(11.0, 0.05), load(12.0, 0.05)]), tmp_path)
    assert [path.parent.name for path in paths if path.name == "point.yaml"] == ["r1", "r2", "r3"]


def test_without_a_curve_the_middle_round_is_the_point(tmp_path: Path) -> None:
    rounds = [load(rate, 0.1, purpose="round") for rate in (90.0, 70.0, 80.0)]
    paths = export_endpoints(record(rounds), tmp_path)
    (summary,) = [path for path in paths if path.name == "result_summary.json"]
    assert read(summary)["qps"] == 80.0


@given(st.floats(0.1, 1e4), st.floats(1e-4, 1e3), st.integers(1, 5000))
def test_blocks_are_nanoseconds_and_only_what_the_record_holds(rate: float, mean: float, samples: int) -> None:
    run = load(rate, mean, samples=samples)
    summary = result_summary(record([run]), run)
    assert summary["duration_ns"] == pytest.approx(run.seconds * 1e9, abs=1)
    assert (summary["n_samples_issued"], summary["n_samples_completed"]) == (samples, samples)
    for name in ("latency", "ttft", "tpot"):
        block, held = summary[name], run.latencies[name]
        assert block["avg"] == pytest.approx(held.mean * 1e9, abs=1)
        assert block["total"] == pytest.approx(held.mean * held.count * 1e9, rel=1e-9, abs=1)
        assert block["percentiles"]["50.0"] == pytest.approx(held.percentiles["50"] * 1e9, abs=1)
        assert set(block["percentiles"]) == {f"{float(key)}" for key in held.percentiles}
        assert not {"min", "max", "std_dev", "histogram"} & set(block)
    assert summary["output_sequence_lengths"] == {"total": 10 * samples, "avg": 10.0}
    assert in_flight(run) == pytest.approx(rate * mean)


def test_what_is_not_known_is_left_out() -> None:
    run = load(10.0, 0.05)
    offline = msgspec.structs.replace(run, latencies={"latency": run.latencies["latency"]}, rates={"samples": 9.0})
    summary = result_summary(record([run]), msgspec.structs.replace(offline, rates={"samples": 9.0, "tokens": 90.0}))
    assert not {"ttft", "tpot", "test_started_at"} & set(summary)
    assert "target_qps" not in summary["run_config"]


def test_every_file_carries_the_disclaimer(tmp_path: Path) -> None:
    for path in export_endpoints(record(CURVE), tmp_path):
        assert DISCLAIMER in path.read_text(), path.name


def test_a_simulated_record_says_so_in_every_file(tmp_path: Path) -> None:
    for path in export_endpoints(record(CURVE, simulated=True), tmp_path):
        assert SIMULATED_NOTICE in path.read_text(), path.name


def test_an_accelerator_is_described_and_a_host_is_none(tmp_path: Path) -> None:
    on_gpu = export_endpoints(record(CURVE, device=make_device(**H100)), tmp_path / "gpu")
    on_cpu = export_endpoints(record(CURVE), tmp_path / "cpu")
    (gpu_node,) = read(on_gpu[-1])["node_types"]
    (cpu_node,) = read(on_cpu[-1])["node_types"]
    assert gpu_node["accelerator_info"][0]["accelerator_model_name"] == "h100-sxm"
    assert "accelerator_info" not in cpu_node


@pytest.mark.parametrize("runs", [[], [load(5.0, 0.1, purpose="search")], [load(5.0, 0.1, tokens={})]])
def test_a_record_without_served_tokens_is_refused(tmp_path: Path, runs: list[LoadGenRun]) -> None:
    with pytest.raises(UsageError, match="holds no LoadGen test that generated tokens"):
        export_endpoints(record(runs), tmp_path)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UsageError, match="cannot export to"):
        export_endpoints(record(CURVE), tmp_path / "taken")


def test_their_viewer_draws_it(tmp_path: Path) -> None:
    """The viewer itself, where it is installed: no warning, every point, and numbers as they were measured."""
    export_endpoints(record(CURVE), tmp_path)
    built = bundle.build_bundle(tmp_path)
    assert built.warnings == []
    assert (built.submission_count, built.run_count) == (1, 5)
    heaviest = built.data["runs"][-1]["run"]
    assert heaviest["derived_fields"]["system_tps"] == pytest.approx(800.0)
    assert heaviest["derived_fields"]["qps"] == pytest.approx(80.0)
    assert heaviest["derived_fields"]["tps_per_user"] == pytest.approx(12 / 0.4)
    assert heaviest["direct_fields"]["concurrency"] == pytest.approx(32.0)
    assert heaviest["direct_fields"]["measured_latency_ttft_p90"] == pytest.approx(100.0)
    combined = built.data["submissions"][0]["combined_submission"]
    assert combined["model_metadata"]["model_notes"] == DISCLAIMER
    # It calls whatever it draws verified; what it prints beside that is all that can be set right.
    assert combined["submission_info"]["submitter_org_names"].startswith("Unverified, no submission: ")
