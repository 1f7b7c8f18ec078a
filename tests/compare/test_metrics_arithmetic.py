"""Every derived metric against a value calculated by hand, and the laws that any rate must obey."""

from __future__ import annotations

import math

import msgspec
import pytest
from factory import H100, TRAINIUM, make_case, make_device, make_measurement, make_record
from hypothesis import given
from hypothesis import strategies as st

from trnbench.catalog.chips import dense_peak
from trnbench.compare import metrics
from trnbench.compare.admission import refusal
from trnbench.compare.model import Mfu
from trnbench.compare.units import UNITS, bandwidth, binary_size, decimal_size
from trnbench.records.schema import Flops
from trnbench.status import UsageError


def items(tokens: int, padded: int | None = None, sequences: int = 8) -> dict[str, int]:
    return {"tokens": tokens, "padded_tokens": tokens if padded is None else padded, "sequences": sequences}


def with_flops(per_round: int, convention: str, seconds: tuple[float, ...] = (1.0,) * 5, **fields):
    measured = make_measurement(seconds, flops=Flops(value=per_round, convention=convention))
    return make_record(measurement=measured, **fields)


def test_padding_is_not_throughput() -> None:
    """B7: 4 sequences of 128 with 128, 64, 32 and 32 real tokens in 1.0 s are 256 real and 512 padded tokens/s."""
    record = make_record(case=make_case(batch=4), seconds=[1.0] * 5, items=items(128 + 64 + 32 + 32, 4 * 128, 4))
    values = metrics.metric_values(record)
    assert values["tokens_per_second"] == 256
    assert values["padded_tokens_per_second"] == 512
    assert metrics.headline_metric(record.case).name == "tokens_per_second"
    assert "padding left out" in metrics.headline_metric(record.case).definition


@pytest.mark.parametrize(("micro", "chips"), [(2, 1), (4, 1), (8, 1), (16, 1), (2, 2), (16, 4)])
def test_accumulation_does_not_change_throughput(micro: int, chips: int) -> None:
    """B8: micro 2 x accumulation 4 x data-parallel 2 in 1.0 s is 16 sequences/s, however the 16 are split."""
    record = make_record(
        case=make_case(batch=16, micro_batch=micro), device=make_device(chips=chips), items=items(1600, sequences=16)
    )
    assert metrics.metric_values(record)["sequences_per_second"] == 16


def test_items_are_those_of_the_actual_batch() -> None:
    """B9: 10 samples as 4, 4 and 2 in three steps of 1.0 s are 3.33 sequences/s, not the configured 4."""
    counted = [items(400, sequences=4), items(400, sequences=4), items(200, sequences=2)]
    record = make_record(case=make_case(batch=4), seconds=[1.0, 1.0, 1.0], items=counted)
    assert metrics.metric_values(record)["sequences_per_second"] == pytest.approx(10 / 3)
    assert metrics.batch_mismatch(record) is None


def test_another_batch_than_asked_for_carries_no_speed() -> None:
    """B9: a batch of 8 was asked for and every round processed 1: said, and left out."""
    record = make_record(case=make_case(batch=8), items=items(100, sequences=1))
    refused = refusal(record)
    assert refused is not None
    assert refused.reason == "processed 1 sequences a round, but the case says batch 8"


def test_prompts_and_prompt_tokens_are_told_apart() -> None:
    """B11: 4 prompts of 128 tokens in 0.5 s are 1024 prompt tokens/s and 8 prompts/s, each with its own unit."""
    case = make_case(phase="prefill", batch=4)
    values = metrics.metric_values(make_record(case=case, seconds=[0.5] * 5, items=items(512, sequences=4)))
    assert values["prompt_tokens_per_second"] == 1024
    assert values["prompts_per_second"] == 8
    assert metrics.METRICS["prompt_tokens_per_second"].unit == "token/s"
    assert metrics.METRICS["prompts_per_second"].unit == "prompt/s"


def test_a_unit_must_be_on_the_list() -> None:
    """B11: a unit is data, checked against the list."""
    with pytest.raises(UsageError, match="'tok/s' is not one of"):
        metrics.make_metric("speed", "tok/s", "no such unit", higher_is_better=True)
    assert {metric.unit for metric in metrics.METRICS.values()} <= set(UNITS)


def test_a_rate_is_total_over_total() -> None:
    """B15: 30 rounds of one sequence in 900 s together are 1/30 a second; a batch of 30 a round is 1.0."""
    seconds = [29.0, 31.0] * 15
    single = make_record(case=make_case(batch=1), seconds=seconds, items=items(1, sequences=1))
    assert metrics.metric_values(single)["sequences_per_second"] == pytest.approx(1 / 30)
    whole = make_record(case=make_case(batch=30), seconds=seconds, items=items(30, sequences=30))
    assert metrics.metric_values(whole)["sequences_per_second"] == pytest.approx(1.0)


def test_a_rate_is_not_the_mean_of_rates() -> None:
    """B15: 100 tokens in 1 s and 100 in 4 s are 40 a second; the mean of the rates would say 62.5."""
    record = make_record(seconds=[1.0, 4.0], items=items(100))
    assert metrics.metric_values(record)["tokens_per_second"] == 40


def test_decode_metrics_by_hand() -> None:
    """B15: 8 sequences, a token each, in rounds of 0.02 s: 400 tokens/s, 0.02 s a token; median of first tokens."""
    case = make_case(phase="decode", new_tokens=16)
    measured = make_measurement([0.01, 0.03], items(8), timings={"ttft_seconds": [0.5, 0.3, 0.4]})
    values = metrics.metric_values(make_record(case=case, measurement=measured))
    assert values["output_tokens_per_second"] == pytest.approx(400)
    assert values["tpot_seconds"] == pytest.approx(0.02)
    assert values["ttft_seconds"] == pytest.approx(0.4)


def test_training_and_prefill_latencies_by_hand() -> None:
    """B15 and D15: latencies are medians in seconds, whatever their size."""
    assert metrics.metric_values(make_record(seconds=[1.5, 0.5, 0.7]))["step_seconds"] == 0.7
    prefill = make_record(case=make_case(phase="prefill"), seconds=[1.5, 0.5, 0.7])
    assert metrics.metric_values(prefill)["ttft_seconds"] == 0.7
    assert all(metric.unit == "s" for name, metric in metrics.METRICS.items() if name.endswith("_seconds"))


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (
            {"timings": {"total_seconds": [0.90], "prefill_seconds": [1.00]}},
            "total of 0.9 s is not longer than its prefill_seconds of 1.0 s",
        ),
        (
            {"timings": {"total_seconds": [2.0, 1.0], "ttft_seconds": [1.0, 1.0]}},
            "total of 1.0 s is not longer than its ttft_seconds of 1.0 s",
        ),
        ({"timings": {"ttft_seconds": [0.1, -0.1]}}, "ttft_seconds holds -0.1 s"),
        ({"seconds": (1.0, 0.0)}, "round 1 took 0.0 s"),
        ({"seconds": (-1.0,)}, "round 0 took -1.0 s"),
        ({"seconds": (math.inf,)}, "round 0 took inf s"),
        ({"seconds": (math.nan,)}, "round 0 took nan s"),
        ({"seconds": ()}, "no round was kept"),
        ({"items": {"tokens": -8, "sequences": 8}}, "round 0 counts -8 tokens"),
    ],
)
def test_times_that_contradict_each_other_give_no_value(measured: dict, why: str) -> None:
    """B14: inconsistent timing has a reason and no metric; nothing negative, infinite or clipped."""
    record = make_record(measurement=make_measurement(**measured))
    assert metrics.inconsistency(record) == why
    assert metrics.metric_values(record) == {}
    assert metrics.mfu(record) == "no consistent rounds"
    refused = refusal(record)
    assert refused is not None
    assert refused.verdict == "inconsistent timing"


def test_mfu_names_its_convention_and_differs_by_it() -> None:
    """B1: 100 k tokens/s of 2.556 and of 1.650 GFLOP/token on 312 TFLOP/s are 81.9 % and 52.9 %."""
    layers, width, parameters, length = 12, 768, 124_000_000, 16_384
    device = make_device(**{**H100, "chip": "a100-40gb-sxm"})
    for factor, expected in ((12, 0.819), (6, 0.529)):
        per_token = 6 * parameters + factor * layers * width * length
        record = with_flops(per_token * 100_000, f"6N+{factor}LdT", device=device)
        found = metrics.mfu(record)
        assert isinstance(found, Mfu)
        assert found.value == pytest.approx(expected, abs=5e-4)
        assert found.convention == f"6N+{factor}LdT"
        assert found.peak_per_second == 312 * 10**12
        assert found.precision == "bf16"


def test_more_than_the_peak_is_an_error() -> None:
    """B1: MFU above 100 % is an error that names both sides of the division, not a figure."""
    record = with_flops(400 * 10**12, "6N+12LdT", device=make_device(**{**H100, "chip": "a100-40gb-sxm"}))
    with pytest.raises(metrics.ImpossibleValueError, match=r"MFU of 128\.2% is above 100 %.*6N\+12LdT.*3\.12e\+14"):
        metrics.mfu(record)


def test_tokens_of_all_chips_meet_the_peak_of_all_chips() -> None:
    """B3: 16 chips are divided by 16 peaks, and both the total and the per-chip rate are given and labelled."""
    peak = dense_peak("trainium2", "bf16")
    assert not isinstance(peak, str)
    whole = make_device(**{**TRAINIUM, "chips": 16, "cores": 64})
    case = make_case(batch=64, parallel={"dp": 64}, tier="node")
    measured = make_measurement(
        [1.0] * 5, items(16_000, sequences=64), flops=Flops(value=16 * peak.dense_per_second // 4, convention="c")
    )
    record = make_record(case=case, device=whole, measurement=measured)
    found = metrics.mfu(record)
    assert isinstance(found, Mfu)
    assert found.value == pytest.approx(0.25)
    assert found.chips == 16
    values = metrics.metric_values(record)
    assert values["tokens_per_second"] == 16_000
    assert values["tokens_per_second_per_chip"] == 1_000
    assert metrics.METRICS["tokens_per_second"].definition.endswith("the whole system")
    assert metrics.METRICS["tokens_per_second_per_chip"].unit == "token/s/chip"


@pytest.mark.parametrize(
    ("device", "plan", "chips"),
    [
        ({**TRAINIUM}, {}, 0.25),
        ({**TRAINIUM}, {"dp": 4}, 1.0),
        ({**TRAINIUM, "chips": 16, "cores": 64}, {"dp": 8}, 2.0),
        ({**H100, "chips": 8, "cores": 8}, {}, 1.0),
        ({**H100, "chips": 8, "cores": 8}, {"dp": 4, "tp": 2}, 8.0),
        ({"chips": 1, "cores": 64}, {}, 1.0),
        ({"chips": 2, "cores": 64}, {}, 2.0),
    ],
)
def test_only_the_cores_that_ran_count(device: dict, plan: dict[str, int], chips: float) -> None:
    """B3: the chips below the line are those above it, not all that the machine holds."""
    record = make_record(case=make_case(parallel=plan), device=make_device(**device))
    assert metrics.chips_used(record) == chips


@pytest.mark.parametrize("name", ["MI350X", "NoSuchChip 9000", "cpu", "AMD Instinct MI350X"])
def test_an_unknown_chip_has_no_mfu(name: str) -> None:
    """B4: no default peak; the reason names the chip."""
    assert metrics.mfu(with_flops(10**12, "c", device=make_device(chip=name))) == f"peak unknown for {name}"


def test_a_chip_without_a_peak_in_the_precision_has_no_mfu() -> None:
    """B4: a T4 has no bf16 peak."""
    record = with_flops(10**12, "c", device=make_device(**{**H100, "chip": "t4"}))
    assert metrics.mfu(record) == "peak unknown for t4 in bf16"


def test_sizes_name_their_base() -> None:
    """B16: 83 000 000 000 bytes are 77.3 GiB or 83.0 GB, never 83 GiB; bandwidth is decimal."""
    assert binary_size(83_000_000_000) == "77.3 GiB"
    assert decimal_size(83_000_000_000) == "83.0 GB"
    assert bandwidth(3.35e12) == "3.35 TB/s"
    assert binary_size(512) == "512 B"


seconds_lists = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=20)


@given(seconds=seconds_lists, tokens=st.integers(1, 10**9))
def test_doubling_tokens_doubles_throughput(seconds: list[float], tokens: int) -> None:
    """Scaling laws: twice the tokens is twice the rate; twice the time is half of it."""

    def rate(durations: list[float], count: int) -> float:
        return metrics.metric_values(make_record(seconds=durations, items=items(count)))["tokens_per_second"]

    once = rate(seconds, tokens)
    assert rate(seconds, 2 * tokens) == pytest.approx(2 * once)
    assert rate([2 * value for value in seconds], tokens) == pytest.approx(once / 2)
    assert rate(list(reversed(seconds)), tokens) == pytest.approx(once)


@given(seconds=seconds_lists)
def test_a_rate_lies_between_its_slowest_and_fastest_round(seconds: list[float]) -> None:
    """A total over a total is a weighted mean, so it can never leave the range of the rounds."""
    record = make_record(seconds=seconds, items=items(1000))
    rates = metrics.round_rates(record, "tokens_per_second")
    value = metrics.metric_values(record)["tokens_per_second"]
    assert min(rates) * (1 - 1e-9) <= value <= max(rates) * (1 + 1e-9)


def test_every_offered_metric_is_defined() -> None:
    """D15: every metric that a record can have carries a unit and a definition."""
    for phase, extra in (("train_step", {}), ("prefill", {}), ("decode", {"new_tokens": 4})):
        measured = msgspec.structs.replace(make_measurement(), timings={"ttft_seconds": [0.1]})
        values = metrics.metric_values(make_record(case=make_case(phase=phase, **extra), measurement=measured))
        assert set(values) <= set(metrics.METRICS)
        assert metrics.headline_metric(make_case(phase=phase, **extra)).name in values
