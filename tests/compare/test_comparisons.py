"""Which records meet, what a comparison says, and what is left out of it and why."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from factory import (
    CPU,
    H100,
    TRAINIUM,
    make_case,
    make_check,
    make_device,
    make_environment,
    make_measurement,
    make_record,
    make_runs,
)

from trnbench import wording
from trnbench.compare.engine import compare_all, compare_records
from trnbench.compare.pairing import newest_attempts
from trnbench.records.build import explain
from trnbench.records.schema import Flops, Record
from trnbench.records.store import Store
from trnbench.status import Status

if TYPE_CHECKING:
    from pathlib import Path

    from trnbench.compare.model import Comparison

TRN = make_device(**TRAINIUM)
GPU = make_device(**H100)


def one(records: list[Record], axis: str = "device", **options: object) -> Comparison:
    (comparison,) = compare_records(records, axis, **options)
    return comparison


def sides(trn: list[float], gpu: list[float]) -> list[Record]:
    return make_runs(trn, "t", device=TRN) + make_runs(gpu, "g", device=GPU)


def test_the_faster_side_wins_and_break_even_is_the_ratio() -> None:
    """Three runs a side: Trainium is `a`, the ratio is of geometric means, break-even equals it."""
    comparison = one(sides([2000, 2020, 1980], [1000, 1010, 990]))
    assert comparison.verdict == "a faster"
    assert comparison.a.label == "Trainium2 (neuron)"
    assert comparison.b.label == "H100 SXM (cuda)"
    assert comparison.throughput_ratio is not None
    assert comparison.throughput_ratio.value == pytest.approx(2.0, rel=1e-3)
    assert comparison.break_even_price_ratio == comparison.throughput_ratio.value
    assert comparison.explanation.startswith("Side a has 2 times the throughput of b, 95% interval ")
    assert one(sides([1000, 1010, 990], [2000, 2020, 1980])).verdict == "b faster"
    assert one(sides([900, 1000, 1100], [950, 1000, 1050])).verdict == "not distinguishable"
    assert one(sides([900, 1000, 1300], [950, 1000, 1050])).verdict == "not distinguishable"
    assert one(sides([950, 1000, 1050], [900, 1000, 1300])).verdict == "not distinguishable"


def test_one_run_each_side_is_not_enough() -> None:
    """D12: no ratio, no break-even, and the sentence says what is needed."""
    comparison = one(sides([2000], [1000]))
    assert comparison.verdict == "not enough runs"
    assert comparison.throughput_ratio is None
    assert comparison.break_even_price_ratio is None
    assert "1 of a, 1 of b" in comparison.explanation
    assert [run.value for run in comparison.a.runs] == [pytest.approx(2000)]


def test_the_newest_attempt_of_a_run_counts() -> None:
    """D6: values 1 and 3 under one identity and run are 3 with two attempts, never 2; the other is listed."""
    first = make_record("r", device=TRN, items={"tokens": 1, "sequences": 8}, started_at="2026-11-30T09:00:00Z")
    second = make_record("r", device=TRN, items={"tokens": 3, "sequences": 8}, started_at="2026-11-30T10:00:00Z")
    for order in ([first, second], [second, first]):
        comparison = one([*order, make_record("g", device=GPU)])
        (run,) = comparison.a.runs
        assert (run.value, run.attempts) == (3, 2)
        assert [record.record_id for record, _ in comparison.a.left_out] == [first.record_id]
        assert "run r of a made 2 attempts; the newest counts" in comparison.notes


def test_the_newest_attempt_is_newest_by_instant() -> None:
    """D6: 08:00+09:00 is earlier than 00:30+00:00 though its text sorts after it."""
    early = make_record("r", device=TRN, items={"tokens": 1, "sequences": 8}, started_at="2026-11-30T08:00:00+09:00")
    late = make_record("r", device=TRN, items={"tokens": 3, "sequences": 8}, started_at="2026-11-30T00:30:00+00:00")
    assert one([late, early, make_record("g", device=GPU)]).a.runs[0].value == 3


def test_attempts_within_a_second_survive_the_store(tmp_path: Path) -> None:
    """D6: six reruns of one case in one run, a microsecond apart: all are kept, the last one counts, attempts are 6."""
    store = Store(tmp_path)
    for microsecond in (3, 0, 5, 1, 4, 2):
        store.write(explain(make_record("r", started_at=f"2026-11-30T09:15:00.00000{microsecond}Z")))
    (attempt,), superseded = newest_attempts(stored.record for stored in store.load().records)
    assert attempt.attempts == 6
    assert attempt.record.started_at.endswith("5Z")
    assert [record.started_at[-2] for record in superseded] == ["0", "1", "2", "3", "4"]


def test_a_failed_newest_attempt_is_not_papered_over() -> None:
    """D6: the newest attempt counts also when it failed; the older good one does not come back."""
    good = make_record("r", device=TRN, started_at="2026-11-30T09:00:00Z")
    bad = make_record("r", device=TRN, status=Status.OOM, reason="out of memory", started_at="2026-11-30T10:00:00Z")
    comparison = one([good, bad, make_record("g", device=GPU)])
    assert comparison.a.runs == []
    assert comparison.verdict == "not enough runs"
    assert "oom: out of memory" in comparison.explanation


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ({"conformance": [make_check("fail")]}, "not conformant", "not conformant: logits (fail)"),
        (
            {"conformance": [make_check(), make_check("non-finite", check="loss", value=None)]},
            "not conformant",
            "not conformant: loss (non-finite)",
        ),
        ({"conformance": []}, "not checked", "not checked: no conformance check was recorded"),
        ({"conformance": [make_check(), make_check("not checked", check="loss")]}, "not checked", "not checked: loss"),
        (
            {"status": Status.NONCONFORMANT, "reason": "logits off"},
            "not conformant",
            "nonconformant: logits off",
        ),
        ({"status": Status.FAILED, "reason": "assertion"}, "not enough runs", "failed: assertion"),
        ({"status": Status.FALLBACK, "reason": "2 operators"}, "not enough runs", "fallback: 2 operators"),
        (
            {"status": Status.INVALID, "reason": "inconsistent timing: -1 s"},
            "inconsistent timing",
            "invalid: inconsistent timing: -1 s",
        ),
        (
            {"measurement": make_measurement(timings={"total_seconds": [0.9], "prefill_seconds": [1.0]})},
            "inconsistent timing",
            "inconsistent timing: total of 0.9 s is not longer than its prefill_seconds of 1.0 s",
        ),
    ],
)
def test_what_is_not_proven_carries_no_speed(changes: dict, verdict: str, reason: str) -> None:
    """C14, D20, B14: such records are listed with the reason; no ratio and no dollars come from them."""
    broken = [make_record(f"t-{run}", device=TRN, **changes) for run in range(3)]
    comparison = one([*broken, *make_runs([1000, 1010, 990], "g", device=GPU)])
    assert comparison.verdict == verdict
    assert comparison.a.runs == []
    assert [why for _, why in comparison.a.left_out] == [reason] * 3
    assert comparison.throughput_ratio is None
    assert comparison.a.value is None
    assert all(scenario.a.billed_usd is None and scenario.cost_ratio is None for scenario in comparison.costs)
    assert len(comparison.b.runs) == 3


def test_simulated_records_are_refused_unless_allowed() -> None:
    """A stand-in is never a measurement of an accelerator; where a developer allows it, every run says so."""
    records = [*make_runs([10, 11, 12], "s", simulated=True), *make_runs([5, 6, 7], "g", device=GPU)]
    result = compare_all(records, "device")
    assert result.comparisons == []
    assert [why for record, why in result.not_compared if record.simulated] == [wording.SIMULATED_NOTICE] * 3
    allowed = one(records, allow_simulated=True)
    assert sum(wording.SIMULATED_NOTICE in note for note in allowed.notes) == 3


def test_unlike_clocks_have_no_common_metric() -> None:
    """D21: wall time against device time gives no percentage; both clocks are named."""
    wall = make_record("t", device=TRN)
    device_time = make_record("g", device=GPU, measurement=make_measurement(clock="device.events"))
    comparison = one([wall, device_time])
    assert comparison.verdict == "no common metric"
    assert comparison.metric is None
    assert comparison.throughput_ratio is None
    assert comparison.explanation == (
        "The sides have no common metric: a is timed by time.perf_counter, b by device.events."
    )
    assert comparison.costs == []


def test_the_shared_metric_is_used_and_named() -> None:
    """D21: one side counts tokens and sequences, the other only sequences: sequences are compared, and said so."""
    both = make_runs([1000, 1010, 990], "t", device=TRN)
    only = [make_record(f"g-{run}", device=GPU, items={"sequences": 8}) for run in range(3)]
    comparison = one([*both, *only])
    assert comparison.metric is not None
    assert comparison.metric.name == "sequences_per_second"
    assert comparison.throughput_ratio is not None
    assert comparison.throughput_ratio.value == pytest.approx(1.0, rel=0.02)


def test_records_that_count_nothing_shared_have_no_common_metric() -> None:
    """D21: only tokens on one side and only sequences on the other."""
    tokens = make_record("t", device=TRN, items={"tokens": 100})
    sequences = make_record("g", device=GPU, items={"sequences": 8})
    comparison = one([tokens, sequences])
    assert comparison.verdict == "no common metric"
    assert "a gives tokens_per_second; b gives sequences_per_second" in comparison.explanation


@pytest.mark.parametrize(
    "change",
    [
        {"batch": 16, "micro_batch": 16},
        {"sequence": 256},
        {"precision": "fp32"},
        {"mode": "eager"},
        {"tuning": "vendor"},
        {"parallel": {"dp": 2}},
        {"cache": "cold"},
        {"version": "fedcba9876543210"},
        {"workload": "smollm2-135m"},
    ],
)
def test_another_identity_never_meets(change: dict) -> None:
    """A8: every field of the case is identity, warm or cold caches too; a lone record is listed with the reason."""
    result = compare_all(
        [make_record("t", device=TRN), make_record("g", device=GPU, case=make_case(**change))], "device"
    )
    assert result.comparisons == []
    assert [why for _, why in result.not_compared] == ["no record of the same case on another device"] * 2


def test_precisions_meet_without_a_winner() -> None:
    """Across precisions the ratio is shown under "unlike numerics", with the difference named."""
    fast = make_runs([2000, 2020, 1980], "h")
    plain = make_runs([1000, 1010, 990], "f", case=make_case(precision="fp32"))
    comparison = one([*plain, *fast], "precision")
    assert comparison.verdict == "unlike numerics"
    assert (comparison.a.case.precision, comparison.b.case.precision) == ("bf16", "fp32")
    assert comparison.throughput_ratio is not None
    assert comparison.throughput_ratio.value == pytest.approx(2.0, rel=1e-3)
    assert "precision bf16 vs fp32" in comparison.explanation
    assert "no winner" in comparison.explanation


def test_a_rounding_switch_makes_numerics_unlike() -> None:
    """Same precision, but one side rounds stochastically: shown, labelled, no winner."""
    switched = make_environment(flags={"NEURON_RT_STOCHASTIC_ROUNDING_EN": "1"})
    plain = make_environment(flags={"NEURON_RT_STOCHASTIC_ROUNDING_EN": "0"})
    gpu = make_runs([1000, 1010, 990], "g", device=GPU)
    unlike = one([*make_runs([2000, 2020, 1980], "t", device=TRN, environment=switched), *gpu])
    assert unlike.verdict == "unlike numerics"
    assert "unlike numerics: NEURON_RT_STOCHASTIC_ROUNDING_EN 1 vs off" in unlike.notes
    alike = one([*make_runs([2000, 2020, 1980], "t", device=TRN, environment=plain), *gpu])
    assert alike.verdict == "a faster"


def test_modes_meet_on_the_same_device_only() -> None:
    """Compiled against eager needs the same machine and versions on both sides."""
    compiled = make_runs([2000, 2020, 1980], "c")
    eager = make_runs([1000, 1010, 990], "e", case=make_case(mode="eager"))
    comparison = one([*eager, *compiled], "mode")
    assert comparison.verdict == "a faster"
    assert (comparison.a.case.mode, comparison.b.case.mode) == ("compiled", "eager")
    elsewhere = make_runs([1000], "e", case=make_case(mode="eager"), device=GPU)
    assert compare_records([*compiled, *elsewhere], "mode") == []
    newer = make_environment(versions={"torch": "2.14.0"})
    other_stack = make_runs([1000], "e", case=make_case(mode="eager"), environment=newer)
    assert compare_records([*compiled, *other_stack], "mode") == []


def test_stacks_meet_in_time_order() -> None:
    """Each stack meets the one before it; labels name the versions that differ."""
    old = make_runs([1000, 1010, 990], "o")
    new = [
        make_record(
            f"n-{day}",
            environment=make_environment(versions={"torch": "2.14.0", "python": "3.11.9"}),
            started_at=f"2026-11-2{day}T09:00:00Z",
        )
        for day in range(3)
    ]
    comparison = one([*new, *old], "stack")
    assert (comparison.a.label, comparison.b.label) == ("torch 2.14.0", "torch 2.13.0")


def test_only_the_newest_stack_meets_another_device() -> None:
    """Records of an older stack are not blended into a side; they are listed with the reason."""
    old = make_runs([10], "o", device=TRN, environment=make_environment(versions={"torch": "2.9.0"}))
    new = [make_record("n", device=TRN, started_at="2026-11-29T09:00:00Z")]
    result = compare_all([*old, *new, make_record("g", device=GPU)], "device")
    (comparison,) = result.comparisons
    assert [run.record.run_id for run in comparison.a.runs] == ["n"]
    assert [(record.run_id, why.split(";")[0]) for record, why in result.not_compared] == [
        ("o-0", "an older software stack or older settings on the same device")
    ]


def test_threads_that_differ_are_named() -> None:
    """A9: the same CPU case with 2 threads and with 1 meets as two devices, and the note says which."""
    cpu = {"model": "Example CPU 1", "isa": "avx2"}
    two = make_record("plain", environment=make_environment(cpu={**cpu, "threads": 2}))
    single = make_record("torchrun", environment=make_environment(cpu={**cpu, "threads": 1}))
    comparison = one([two, single])
    assert {"threads differ 2 vs 1", "threads differ 1 vs 2"} & set(comparison.notes)
    assert comparison.a.label != comparison.b.label


def test_unlike_cpus_are_named() -> None:
    """C13: two CPUs, equal but for amx_bf16, meet under the note "unlike CPUs" with the instruction set."""
    with_amx = make_record("x", environment=make_environment(cpu={"model": "M", "isa": "avx2 amx_bf16", "threads": 2}))
    without = make_record("y", environment=make_environment(cpu={"model": "M", "isa": "avx2", "threads": 2}))
    comparison = one([with_amx, without])
    (note,) = [note for note in comparison.notes if note.startswith("unlike CPUs")]
    assert "amx_bf16" in note


def test_runs_of_two_machines_are_not_blended() -> None:
    """D11: a host with another CPU model is another side, not more runs of the same one."""
    first = make_runs([1000, 1010, 990], "x", device=TRN)
    second = make_runs(
        [10, 11, 12], "y", device=TRN, environment=make_environment(cpu={"model": "Other CPU", "threads": 2})
    )
    comparisons = compare_records([*first, *second, *make_runs([500, 505, 495], "g", device=GPU)], "device")
    assert len(comparisons) == 2
    assert {len(comparison.a.runs) for comparison in comparisons} == {3}


def test_unlike_flop_conventions_are_named() -> None:
    """B1: MFU by two conventions must not be compared, and the note says so."""
    first = make_record("t", device=TRN, measurement=make_measurement(flops=Flops(value=10**12, convention="6N+12LdT")))
    second = make_record("g", device=GPU, measurement=make_measurement(flops=Flops(value=10**12, convention="6N+6LdT")))
    assert any(
        note == "unlike FLOP conventions 6N+12LdT vs 6N+6LdT: their MFU must not be compared"
        for note in one([first, second]).notes
    )


def test_an_impossible_mfu_is_an_error_in_words_on_its_run() -> None:
    """B1: above 100 % no figure is shown, and the reason takes its place."""
    huge = make_record("t", device=TRN, measurement=make_measurement(flops=Flops(value=10**18, convention="c")))
    (run,) = one([huge, make_record("g", device=GPU)]).a.runs
    assert run.mfu is None
    assert "above 100 %" in run.mfu_reason


def test_a_crash_that_knew_little_joins_its_machine() -> None:
    """A record without a measurement knows neither threads nor versions; it is a left-out run, not a third machine."""
    crashed = make_record(
        "t-9",
        device=TRN,
        status=Status.CRASHED,
        reason="signal 9",
        environment=make_environment(cpu={"model": "Example CPU 1"}, versions={"python": "3.11.9"}),
        started_at="2026-11-29T09:00:00Z",
    )
    import msgspec

    crashed = msgspec.structs.replace(crashed, measurement=None)
    comparison = one([*sides([2000, 2020, 1980], [1000, 1010, 990]), crashed])
    assert len(comparison.a.runs) == 3
    assert [why for _, why in comparison.a.left_out] == ["crashed: signal 9"]
    assert comparison.verdict == "a faster"


def test_the_order_is_that_of_numbers_and_never_of_input() -> None:
    """Batches 2, 10 and 100 come in that order, and shuffled records give equal comparisons with equal ids."""
    records = [
        make_record(
            f"{name}-{batch}", device=device, case=make_case(batch=batch), items={"tokens": 9, "sequences": batch}
        )
        for batch in (100, 2, 10)
        for name, device in (("t", TRN), ("g", GPU), ("c", make_device(**CPU)))
    ]
    expected = compare_records(records, "device")
    assert [comparison.a.case.batch for comparison in expected] == [2, 2, 2, 10, 10, 10, 100, 100, 100]
    assert len({comparison.id for comparison in expected}) == len(expected)
    for seed in range(5):
        shuffled = random.Random(seed).sample(records, len(records))
        assert compare_records(shuffled, "device") == expected


def test_ids_are_safe_in_file_names() -> None:
    """Whatever a runtime calls its device, the id holds no separator."""
    odd = make_record("g", device=make_device(**{**H100, "chip": "../NoSuch Chip/9000"}))
    comparison = one([make_record("t", device=TRN), odd])
    assert not set(comparison.id) & set('/\\ :*?"<>|')
    assert len(comparison.id) < 150
