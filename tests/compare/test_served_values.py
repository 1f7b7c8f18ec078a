"""Numbers of served cases against values calculated by hand, and that nothing but a valid LoadGen run gives one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from factory import (
    H100,
    TRAINIUM,
    make_case,
    make_device,
    make_latencies,
    make_loadgen_run,
    make_measurement,
    make_record,
    make_served_case,
)
from hypothesis import given
from hypothesis import strategies as st

from trnbench.compare import metrics
from trnbench.compare.admission import refusal
from trnbench.compare.engine import compare_records
from trnbench.compare.gate import gate
from trnbench.compare.units import UNITS
from trnbench.status import ExitCode

if TYPE_CHECKING:
    from trnbench.records.schema import LoadGenRun, Record


def served(
    runs: list[LoadGenRun], *, seconds: list[float] | None = None, scenario: str = "server", **fields: Any
) -> Record:
    """A record with one round for every LoadGen run of a round; the rounds' seconds are LoadGen's own metric."""
    phase = fields.pop("phase", "serving")
    rounds = [run for run in runs if run.purpose == "round"]
    measured = make_measurement(
        seconds or [0.125] * len(rounds), {"tokens": 999, "samples": 999}, serving=runs, flops=None
    )
    case = fields.pop("case", None) or make_served_case(scenario, phase)
    return make_record(case=case, measurement=measured, **fields)


def run(**changes: Any) -> LoadGenRun:
    return make_loadgen_run(**changes)


def test_only_produced_tokens_count() -> None:
    """B12: 10 requests end after 7 of 32 asked tokens in 1.0 s: 70 tokens/s, not 320; nor items over round seconds."""
    values = metrics.metric_values(served([run()], scenario="offline"))
    assert values["output_tokens_per_second"] == 70
    assert values["output_tokens_per_second_per_chip"] == 70
    assert not any(value in (320, 999, 999 / 0.125) for value in values.values())
    assert "flops_per_second" not in values


def test_offline_rate_is_all_tokens_over_all_seconds() -> None:
    """B15: 100 tokens in 1 s and 100 in 4 s are 40 a second, not the mean of 100 and 25."""
    runs = [run(seconds=seconds, tokens={"produced": 100, "asked": 100}) for seconds in (1.0, 4.0)]
    values = metrics.metric_values(served(runs, scenario="offline"))
    assert values["output_tokens_per_second"] == 40
    assert metrics.METRICS["output_tokens_per_second"].unit == "token/s"


def test_scored_prompts_are_prompts_and_no_tokens() -> None:
    """B11: 24 prompts in 3 s are 8 prompts/s, with a unit of their own, and no token rate."""
    record = served([run(samples=24, queries=1, seconds=3.0, tokens={})], scenario="offline", phase="scoring")
    assert metrics.metric_values(record) == {"prompts_per_second": 8.0}
    assert metrics.METRICS["prompts_per_second"].unit == "prompt/s"


def test_a_rate_per_chip_names_the_chip() -> None:
    """B10: 400 tokens/s on 4 of 16 cores of 4 chips are 400 for the system and 100 a chip; each says so."""
    device = make_device(**{**TRAINIUM, "chips": 4, "cores": 16})
    case = make_served_case("server", parallel={"tp": 16}, tier="node")
    tokens = {"produced": 400, "asked": 400}
    values = metrics.metric_values(served([run(tokens=tokens)], case=case, device=device))
    assert values["served_tokens_per_second"] == 400
    assert values["served_tokens_per_second_per_chip"] == 100
    assert metrics.METRICS["served_tokens_per_second"].definition.endswith("the whole system")
    assert metrics.METRICS["served_tokens_per_second_per_chip"].unit == "token/s/chip"


def test_server_values_by_hand() -> None:
    """Two valid rounds at the highest rate: 60 + 90 tokens and 20 + 30 requests in 2 + 3 s are 30 and 10 a second."""
    runs = [
        run(purpose="search", rates={"target": 40.0}, valid=False, seconds=9.0),
        run(purpose="point", rates={"target": 5.0}, seconds=9.0),
        run(rates={"target": 12.0}, seconds=2.0, samples=20, tokens={"produced": 60, "asked": 80}),
        run(rates={"target": 12.0}, seconds=3.0, samples=30, tokens={"produced": 90, "asked": 120}),
    ]
    values = metrics.metric_values(served(runs))
    assert values["served_tokens_per_second"] == 30
    assert values["served_samples_per_second"] == 10
    assert metrics.METRICS["served_samples_per_second"].unit == "sample/s"
    assert metrics.headline_metric(make_served_case("interactive")).name == "served_tokens_per_second"


def test_only_valid_rounds_at_the_highest_rate_count() -> None:
    """A round that missed its limits gives no rate, and one at a lower rate does not lower the highest."""
    runs = [
        run(rates={"target": 12.0}, seconds=2.0),
        run(rates={"target": 12.0}, valid=False, verdict="INVALID", reasons=["TTFT"], seconds=0.5),
        run(rates={"target": 6.0}, seconds=4.0),
    ]
    assert metrics.metric_values(served(runs))["served_tokens_per_second"] == 35


def test_single_stream_is_one_over_the_p90_latency() -> None:
    """Rounds of 0.1 and 0.3 s, LoadGen's p90: 2 queries in 0.4 s are 5 a second, named as what it is."""
    runs = [run(scenario="single_stream", latencies={"latency": make_latencies(p50=0.01, p90=0.02)})] * 2
    values = metrics.metric_values(served(runs, seconds=[0.1, 0.3], scenario="single_stream"))
    assert values["one_over_p90_latency"] == pytest.approx(5.0)
    assert values["latency_p90_seconds"] == 0.02
    assert metrics.METRICS["one_over_p90_latency"].unit == "query/s"
    assert "one over LoadGen's 90th percentile" in metrics.METRICS["one_over_p90_latency"].definition
    assert "served_tokens_per_second" not in values


def test_multi_stream_is_eight_samples_over_the_p99_latency() -> None:
    """662 queries of 8 samples with a p99 of 0.5 s: 16 samples a second."""
    runs = [run(scenario="multi_stream", queries=662, samples=8 * 662, tokens={})]
    record = served(runs, seconds=[0.5], scenario="multi_stream", phase="scoring")
    assert metrics.metric_values(record) == {"query_samples_over_p99_latency": 16.0}
    assert metrics.METRICS["query_samples_over_p99_latency"].unit == "sample/s"


def test_latencies_stand_beside_the_rate() -> None:
    """TTFT and TPOT percentiles are the median over the rounds; one that a round does not carry is left out."""
    runs = [
        run(
            latencies={
                "ttft": make_latencies(p50=0.1 + extra, p90=0.2 + extra, p99=0.4 + extra),
                "tpot": make_latencies(p50=0.01, **({"p99": 0.02} if extra else {})),
            }
        )
        for extra in (0.0, 0.1, 0.5)
    ]
    values = metrics.metric_values(served(runs))
    assert values["ttft_p50_seconds"] == pytest.approx(0.2)
    assert values["ttft_p90_seconds"] == pytest.approx(0.3)
    assert values["ttft_p99_seconds"] == pytest.approx(0.5)
    assert values["tpot_p50_seconds"] == 0.01
    assert "tpot_p99_seconds" not in values
    assert all(metrics.METRICS[name].unit == "s" for name in values if name.endswith("_seconds"))


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([run(), run(purpose="point")], "2 rounds, but 1 LoadGen runs of rounds"),
        ([run(seconds=0.0), run()], "the LoadGen run of round 0 took 0.0 s"),
        ([run(), run(samples=-1)], "the LoadGen run of round 1 counts -1 samples"),
        (
            [run(tokens={"produced": 33, "asked": 32}), run()],
            "the LoadGen run of round 0 produced 33 tokens, but asked for 32",
        ),
        (
            [run(latencies={"tpot": make_latencies(p50=-1.0188e-5)}), run()],
            "the LoadGen run of round 0 has a tpot of -1.0188e-05 s at percentile 50",
        ),
    ],
)
def test_runs_that_contradict_their_rounds_give_no_value(runs: list[LoadGenRun], why: str) -> None:
    """B14: a negative TPOT, as LoadGen prints it without counts of tokens, is no value but a contradiction."""
    record = served(runs, seconds=[0.1, 0.1])
    assert metrics.inconsistency(record) == why
    assert metrics.metric_values(record) == {}
    refused = refusal(record)
    assert refused is not None
    assert refused.verdict == "inconsistent timing"


def test_without_a_valid_run_there_is_no_rate_but_a_reason() -> None:
    """B13: no request succeeded, so there is no rate of 0 either; the refusal says why."""
    runs = [run(valid=False, samples=0, errors=14, tokens={"produced": 0, "asked": 0}, reasons=["14 of 14 failed"])]
    record = served(runs)
    assert metrics.metric_values(record) == {}
    refused = refusal(record)
    assert refused is not None
    assert refused.reason == "no LoadGen run of its 1 rounds is valid: 14 of 14 failed"


def test_no_mfu_and_no_batch_for_served_requests() -> None:
    """FLOPs are null, and rounds of requests are no batches."""
    record = served([run()])
    assert metrics.mfu(record).startswith("not defined for served requests")
    assert metrics.batch_mismatch(record) is None
    assert refusal(record) is None


def test_every_scenario_decides_by_a_metric_that_is_defined() -> None:
    """D15, B11: each pair of phase and scenario has one headline, higher is better, with a unit of the list."""
    for scenario, phase in [
        *((scenario, "serving") for scenario in ("offline", "server", "interactive", "single_stream")),
        *((scenario, "scoring") for scenario in ("offline", "server", "single_stream", "multi_stream")),
    ]:
        metric = metrics.headline_metric(make_served_case(scenario, phase))
        assert metric.higher_is_better
        assert metric.unit in UNITS
        runs = [run(tokens={"produced": 70, "asked": 320} if phase == "serving" else {})]
        values = metrics.metric_values(served(runs, scenario=scenario, phase=phase))
        assert metric.name in values, (scenario, phase)
        assert set(values) <= set(metrics.METRICS)
        rates = metrics.round_rates(served(runs, scenario=scenario, phase=phase), metric.name)
        assert rates == [pytest.approx(values[metric.name])]


def invocations(produced: list[int], prefix: str, **fields: Any) -> list[Record]:
    runs = [run(tokens={"produced": tokens, "asked": max(320, tokens)}) for tokens in produced]
    return [
        served([one], run=f"{prefix}-{place}", started_at=f"2026-11-{place + 1:02d}T09:00:00Z", **fields)
        for place, one in enumerate(runs)
    ]


def test_comparisons_show_scenario_and_profile_and_never_mix_them() -> None:
    """The title names both; another scenario or profile is another case, whatever device it ran on."""
    here, there = invocations([70, 71, 69], "c"), invocations([140, 141, 139], "h", device=make_device(**H100))
    (found,) = compare_records([*here, *there], "device")
    assert "nano serving server bf16 compiled" in found.title
    assert "quick profile" in found.title
    assert found.metric is not None
    assert found.metric.name == "served_tokens_per_second"
    assert found.throughput_ratio is not None
    assert found.throughput_ratio.value == pytest.approx(2.0, rel=0.01)
    for change in ({"profile": "full"}, {"scenario": "interactive"}):
        case = msgspec.structs.replace(make_served_case(), **change)
        others = invocations([140, 141, 139], "h", device=make_device(**H100), case=case)
        assert compare_records([*here, *others], "device") == []


def test_answers_of_unlike_length_are_named() -> None:
    """B12: sides whose mean answers differ by more than 10 % are marked; within it they are not."""
    short = invocations([70, 70, 70], "c")
    for produced, marked in ((120, True), (73, False)):
        longer = invocations([produced] * 3, "h", device=make_device(**H100))
        (found,) = compare_records([*short, *longer], "device")
        assert any(note.startswith("unlike answers") for note in found.notes) == marked


def test_the_gate_judges_served_cases() -> None:
    """Half the tokens a second is a regression; the metric and its unit are named."""
    before, now = invocations([140, 141, 139], "old"), invocations([70, 71, 69], "new")
    report = gate(before, now)
    (entry,) = report.entries
    assert (entry.outcome, entry.metric, entry.unit) == ("regressed", "served_tokens_per_second", "token/s")
    assert report.exit_code is ExitCode.FAILED


def test_a_served_speed_needs_conformance_as_any_other() -> None:
    """Not checked is not compared."""
    refused = refusal(served([run()], conformance=[]))
    assert refused is not None
    assert refused.verdict == "not checked"


@given(
    seconds=st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=6),
    produced=st.integers(1, 10**9),
    scenario=st.sampled_from(["offline", "server"]),
)
def test_rounds_in_another_unit_change_no_rate(seconds: list[float], produced: int, scenario: str) -> None:
    """The rounds' seconds are LoadGen's metric: whatever they are, tokens per second come from the LoadGen runs."""
    runs = [run(seconds=each, tokens={"produced": produced, "asked": produced}) for each in seconds]
    name = metrics.headline_metric(make_served_case(scenario)).name
    values = {
        metrics.metric_values(served(runs, seconds=[own] * len(runs), scenario=scenario))[name] for own in (1e-6, 7.0)
    }
    assert len(values) == 1
    assert values.pop() == pytest.approx(produced * len(runs) / sum(seconds))
    assert metrics.metric_values(make_record(case=make_case()))["tokens_per_second"] == 800
