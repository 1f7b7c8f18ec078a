"""A served case from warm-up to record: the order of its tests, its rounds, and every way in which it is not valid."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from serving_world import FakeBackend, FakeLoadGen, Script, StepClock, script_of, served_case, spin

from trnbench.backends.cpu import CpuBackend
from trnbench.records.build import assemble
from trnbench.records.schema import MAX_RECORD_BYTES, Git
from trnbench.records.schema import Environment as Surroundings
from trnbench.records.serialise import encode
from trnbench.serving import measure, runs
from trnbench.serving.clock import advance, loadgen_clock
from trnbench.serving.curve import FRACTIONS, PointRules
from trnbench.serving.measure import measure_serving
from trnbench.serving.profiles import profile
from trnbench.serving.result import length_fault
from trnbench.serving.search import CONFIRMATIONS
from trnbench.serving.stages import MOST_TRIALS, PAIRS, STEPS_DOWN
from trnbench.serving.version import SOURCES, serving_version
from trnbench.status import CaseError, Status, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trnbench.case import Case
    from trnbench.records.measured import Measured

pytestmark = [
    pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all"),
    pytest.mark.benchmark(timer=loadgen_clock),
]


@pytest.fixture(autouse=True)
def fake_rounds_stay_out_of_the_table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Times of a fake LoadGen are no benchmark of anything."""
    yield
    request.config.pluginmanager.get_plugin("pytest-benchmark").benchmarks.clear()


class World:
    """A scripted system under a fake LoadGen, measured with the real benchmark fixture."""

    def __init__(self, benchmark, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.benchmark, self.patch, self.folder = benchmark, patch, folder
        self.backend = FakeBackend(StepClock())
        self.loadgen = FakeLoadGen()
        self.system: Script

    def __call__(self, case: Case, rounds: int = 3, kind: Callable[[World, Case], Script] | None = None) -> Measured:
        self.loadgen.install(self.patch)
        self.system = kind(self, case) if kind else script_of(case)
        self.patch.setattr(measure, "build_system", lambda *_: self.system)
        return measure_serving(
            self.backend, self.benchmark, case=case, rounds=rounds, clock=loadgen_clock, folder=self.folder
        )


@pytest.fixture
def world(benchmark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(benchmark, monkeypatch, tmp_path)


def purposes(measured: Measured) -> list[str]:
    """Purposes in order, repetitions once."""
    found: list[str] = []
    for run in measured.measurement.serving:
        if found[-1:] != [run.purpose]:
            found.append(run.purpose)
    return found


def test_an_offline_case_is_accuracy_calibration_rounds_and_the_audit(world: World) -> None:
    measured = world(served_case(), rounds=3)
    assert (measured.status, measured.reason) == (Status.OK, "")
    assert purposes(measured) == ["accuracy", "calibration", "round", "audit"]
    found = measured.measurement
    assert found.clock == "trnbench.serving.clock.loadgen_clock"
    assert [one.seconds for one in found.rounds] == [pytest.approx(1 / world.loadgen.capacity)] * 3
    last = [run for run in found.serving if run.purpose == "round"][-1]
    assert found.rounds[-1].items == {"samples": last.samples, "tokens": last.tokens["produced"]}
    assert last.samples == profile("quick").least_queries["offline"]
    assert last.tokens["produced"] == last.tokens["asked"]
    assert len(last.settings) <= 16
    assert {one.verdict for one in measured.checks} == {"pass"}
    assert len(measured.checks) == 4
    assert world.benchmark.stats.stats.data == pytest.approx([1 / world.loadgen.capacity] * 3)


@pytest.mark.parametrize("scenario", ["server", "interactive"])
def test_a_rated_case_is_searched_drawn_as_a_curve_and_repeated(world: World, scenario: str) -> None:
    world.loadgen.holds = lambda rate, _: rate <= 55
    measured = world(served_case(scenario=scenario), rounds=2)
    assert (measured.status, measured.reason) == (Status.OK, "")
    assert purposes(measured) == ["accuracy", "calibration", "probe", "search", "point", "round", "audit"]
    rates = [run.rates["target"] for run in measured.measurement.serving if run.purpose == "round"]
    assert len(set(rates)) == 1
    assert 55 / 1.1 <= rates[0] <= 55
    assert [one.seconds for one in measured.measurement.rounds] == pytest.approx([1 / rates[0]] * 2)
    counts = Counter(run.purpose for run in measured.measurement.serving)
    assert counts["point"] == len(FRACTIONS)
    assert CONFIRMATIONS < counts["search"] <= MOST_TRIALS


def test_a_scoring_case_has_samples_and_no_tokens(world: World) -> None:
    case = served_case(phase="scoring", scenario="multi_stream")
    measured = world(case, rounds=1, kind=lambda _, case: OneToken(script_of(case).samples, scoring=True))
    assert measured.status is Status.OK
    (timed,) = measured.measurement.rounds
    # The library passes in whole, eight samples a query.
    assert timed.items == {"samples": 8 * profile("quick").least_queries["multi_stream"]}
    assert all(run.tokens == {} and "tokens" not in run.rates for run in measured.measurement.serving)


class OneToken(Script):
    def tokens_of(self, index: int) -> list[int]:
        return super().tokens_of(index)[:1]


def test_a_system_that_never_holds_ends_invalid_with_its_trials_as_evidence(world: World) -> None:
    world.loadgen.holds = lambda _rate, _number: False
    measured = world(served_case(scenario="server"))
    assert measured.status is Status.INVALID
    assert measured.reason.startswith("no rate was valid: ")
    assert measured.reason.endswith("the last one: a latency limit is not met")
    assert measured.measurement.rounds == []
    assert measured.files == {}
    assert purposes(measured) == ["accuracy", "calibration", "probe", "search"]


def test_a_system_that_always_holds_says_that_its_limit_lies_above(world: World) -> None:
    measured = world(served_case(scenario="server"), rounds=1)
    assert measured.status is Status.OK
    assert "the highest rate offered: the limit lies above it" in measured.reason


def test_rounds_that_do_not_hold_are_repeated_at_a_lower_rate_and_told(world: World) -> None:
    """The limit of the search is 55; repetitions hold at 50 only, as on a system near its limit."""
    rounds_began = [False]

    def holds(rate: float, _number: int) -> bool:
        rounds_began[0] = rounds_began[0] or world.loadgen.tests[-1].logged_samples > 0
        return rate <= (47 if rounds_began[0] else 55)

    world.loadgen.holds = holds
    measured = world(served_case(scenario="server"), rounds=3)
    assert measured.status is Status.OK
    assert "were valid once but not in every repetition; the rounds are at" in measured.reason
    kept = [run for run in measured.measurement.serving if run.purpose == "round"]
    assert [run.valid for run in kept] == [True] * 3
    assert {run.rates["target"] <= 47 for run in kept} == {True}
    missed = [run for run in measured.measurement.serving if run.purpose == "search" and not run.valid]
    assert any(run.rates["target"] > 47 for run in missed)
    assert len(measured.measurement.rounds) == 3


def test_a_rate_that_only_a_short_test_withstood_goes_down_to_what_was_completed(world: World) -> None:
    """An overloaded system says by what it completes how much it can: no need to go there in small steps."""
    world.loadgen.capacity = 60.0
    world.loadgen.holds = lambda rate, _: rate <= 60 or (rate <= 100 and not world.loadgen.tests[-1].logged_samples)
    measured = world(served_case(scenario="server"), rounds=3)
    assert measured.status is Status.OK
    asked = [one.rate for one in world.loadgen.tests if one.logged_samples and one.rate is not None]
    assert asked[0] > 60 * 1.1**2
    assert asked[1:] == [60.0] * 3


def test_rounds_that_never_hold_end_after_a_stated_number_of_steps(world: World) -> None:
    world.loadgen.holds = lambda rate, _: rate <= 55 and not world.loadgen.tests[-1].logged_samples
    measured = world(served_case(scenario="server"), rounds=3)
    assert measured.status is Status.INVALID
    assert measured.reason.startswith("round 1 of 1: a latency limit is not met; 5")
    assert measured.measurement.rounds == []
    logged = [one for one in world.loadgen.tests if one.logged_samples]
    assert len(logged) == STEPS_DOWN + 1
    rates = [one.rate for one in logged if one.rate is not None]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] / rates[-1] == pytest.approx(1.1**STEPS_DOWN)


class Disturbed(Script):
    """Does something else beside, once a round has begun."""

    def __init__(self, world: World, case: Case, disturb: Callable[[], None]) -> None:
        super().__init__(script_of(case).samples)
        self._world, self._disturb = world, disturb

    def work(self, started) -> None:
        if self._world.loadgen.tests and self._world.loadgen.tests[-1].logged_samples:
            self._disturb()


def compiles_once_more(world: World) -> None:
    assert world.backend.compiles is not None
    world.backend.compiles += 1


def falls_back(world: World) -> None:
    world.backend.fallbacks["aten::sort"] = world.backend.fallbacks.get("aten::sort", 0) + 1


@pytest.mark.parametrize(
    ("disturb", "reason"),
    [
        (compiles_once_more, "compiled inside the run: "),
        (falls_back, "operators ran on the host inside the run: aten::sort x"),
    ],
)
def test_a_compile_or_fallback_inside_a_run_makes_it_invalid(
    world: World, disturb: Callable[[World], None], reason: str
) -> None:
    measured = world(served_case(), kind=lambda world, case: Disturbed(world, case, lambda: disturb(world)))
    assert measured.status is Status.INVALID
    assert reason in measured.reason
    (timed,) = measured.measurement.rounds
    assert (timed.compiles or 0) + (timed.fallbacks or 0) > 0
    (run,) = [run for run in measured.measurement.serving if run.purpose == "round"]
    assert (run.verdict, run.valid) == ("VALID", False)


class StillCompiling(Script):
    def __init__(self, world: World, case: Case) -> None:
        super().__init__(script_of(case).samples)
        self._world = world

    def work(self, started) -> None:
        compiles_once_more(self._world)


def test_a_system_that_compiles_in_every_warm_up_pass_is_refused(world: World) -> None:
    with pytest.raises(CaseError, match="still compiling after 5 warm-up passes") as refused:
        world(served_case(), kind=StillCompiling)
    assert refused.value.status is Status.INVALID
    assert world.loadgen.tests == []


class Shorter(Script):
    def tokens_of(self, index: int) -> list[int]:
        tokens = super().tokens_of(index)
        return tokens[: max(2, len(tokens) // 2)] if self.answered >= 3 * 64 else tokens


def test_shorter_answers_make_the_round_invalid_and_the_audits_fail(world: World) -> None:
    """B12: what is counted is what was produced."""
    measured = world(served_case(), kind=lambda _, case: Shorter(script_of(case).samples))
    assert measured.status is Status.INVALID
    assert "output length out of band" in measured.reason
    (run,) = [run for run in measured.measurement.serving if run.purpose == "round"]
    assert run.tokens["produced"] < run.tokens["asked"]
    assert measured.measurement.rounds[0].items["tokens"] == run.tokens["produced"]
    failed = {check.check for check in measured.checks if check.verdict == "fail"}
    assert "serving/output-length" in failed


@given(st.integers(1, 10**6), st.floats(0, 2))
def test_the_length_band_is_ten_percent_both_ways(expected: int, share: float) -> None:
    produced = round(expected * share)
    assert (length_fault(produced, expected) == "") == (abs(produced - expected) <= 0.1 * expected)


def test_no_metric_is_no_rate(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """B13: without a completed sample there is no rate, and no round."""
    monkeypatch.setattr(runs.Ran, "metric", property(lambda _: None))
    measured = world(served_case())
    assert measured.status is Status.INVALID
    assert "no rate" in measured.reason
    assert measured.measurement.rounds == []


@pytest.mark.parametrize(
    ("status", "reason"),
    [(Status.INVALID, "lost sample: 1 of 9"), (Status.CRASHED, "killed by SIGKILL"), (Status.TIMEOUT, "ended after")],
)
def test_what_ends_a_test_ends_the_case_with_the_runs_so_far_as_evidence(
    world: World, status: Status, reason: str
) -> None:
    world.loadgen.raises = {4: CaseError(status, reason)}
    measured = world(served_case(), rounds=3)
    assert (measured.status, measured.reason) == (status, reason)
    assert purposes(measured) == ["accuracy", "calibration", "round"]
    assert measured.measurement.rounds == []


def test_a_case_without_a_single_test_has_no_evidence(world: World) -> None:
    world.loadgen.raises = {1: CaseError(Status.UNSUPPORTED, "LoadGen is not installed")}
    with pytest.raises(CaseError, match="not installed") as raised:
        world(served_case())
    assert raised.value.status is Status.UNSUPPORTED


def test_what_the_system_raises_passes_on(world: World) -> None:
    def broken() -> None:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        world(served_case(), kind=lambda world, case: Disturbed(world, case, broken))


def test_a_late_host_is_refused_only_if_every_probe_is_late(world: World) -> None:
    world.loadgen.delay = 0.050
    measured = world(served_case(scenario="server"))
    assert measured.status is Status.INVALID
    assert "this host issues queries too late" in measured.reason
    assert Counter(run.purpose for run in measured.measurement.serving)["probe"] == 3


def test_another_clock_is_refused(benchmark, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"timer=loadgen_clock"):
        measure_serving(
            FakeBackend(StepClock()), benchmark, case=served_case(), rounds=1, clock=lambda: 0.0, folder=tmp_path
        )


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_the_clock_moves_by_durations_only(seconds: float) -> None:
    before = loadgen_clock()
    with pytest.raises(CaseError, match="no duration"):
        advance(seconds)
    advance(0.5)
    assert loadgen_clock() == pytest.approx(before + 0.5)


def test_logs_of_the_rounds_are_kept_without_local_paths(world: World) -> None:
    measured = world(served_case(), rounds=2)
    assert sorted(measured.files) == [f"round-{n}-{log}.txt" for n in (1, 2) for log in ("detail", "summary")]
    assert not [name for name, data in measured.files.items() if str(world.folder).encode() in data]
    assert measured.files["round-1-summary.txt"] == b"summary of .\n"


def test_a_detail_log_that_is_too_large_is_left_out_and_told(world: World) -> None:
    world.loadgen.detail = b"x" * (runs.MOST_LOG_BYTES + 1)
    measured = world(served_case(), rounds=1)
    assert measured.status is Status.OK
    assert sorted(measured.files) == ["round-1-summary.txt"]
    assert measured.reason == "round-1-detail.txt is not kept: it has 200001 bytes, more than 200000"


def test_warm_up_and_its_compiles_are_stored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.loadgen.install(monkeypatch)

    def build(*_: object) -> Script:
        compiles_once_more(world)
        return script_of(served_case())

    monkeypatch.setattr(measure, "build_system", build)
    world.backend.compiles = 5
    measured = measure_serving(
        world.backend,
        world.benchmark,
        case=served_case(mode="compiled"),
        rounds=1,
        clock=loadgen_clock,
        folder=world.folder,
    )
    assert measured.status is Status.OK
    assert measured.measurement.compile.count == 1
    assert [step.compiles for step in measured.measurement.warmup] == [1, 0, 0]


def test_a_compiled_case_without_a_compile_fell_back(world: World) -> None:
    measured = world(served_case(mode="compiled"), rounds=1)
    assert measured.status is Status.FALLBACK
    assert "no graph was compiled" in measured.reason


def test_a_full_rated_case_fits_into_a_record(world: World) -> None:
    """With the longest search, the most probes and as many rounds as a suite asks for."""
    world.loadgen.holds = lambda rate, number: rate <= 40 or number % 5 == 0
    case = served_case(scenario="interactive")
    measured = world(case, rounds=10)
    record = assemble(
        case=case,
        device=world.backend.describe(),
        environment=Surroundings(
            versions={},
            flags={},
            cpu={},
            git=Git(commit="a" * 40, dirty=False, diff_hash=""),
            fingerprint="f" * 16,
            fingerprint_version=1,
        ),
        run_id="0" * 22,
        started_at="2026-11-30T09:00:00.000000Z",
        status=measured.status,
        reason=measured.reason,
        measurement=measured.measurement,
        conformance=measured.checks,
        reasons=measured.unknown,
    )
    assert record.measurement is not None
    assert record.unknown["measurement.flops"] == measure.NO_FLOPS
    assert len(encode(record)) < MAX_RECORD_BYTES / 2


def test_the_version_is_of_the_workload_and_of_what_serving_asks() -> None:
    assert len(serving_version("nano")) == 16
    assert serving_version("nano") == serving_version("nano") != serving_version("smollm2-135m")
    assert {"samples.py", "profiles.py", "engine.py", "scoring.py", "settings.py", "search.py"} <= set(SOURCES)


@pytest.fixture
def cpu() -> CpuBackend:
    torch.set_num_threads(1)
    backend = CpuBackend()
    backend.open()
    return backend


def test_a_real_engine_under_the_real_loadgen(cpu: CpuBackend, benchmark, tmp_path: Path) -> None:
    case = served_case(scenario="single_stream", batch=2, sequence=8, new_tokens=3)
    with cpu.numerics("fp32"):
        measured = measure_serving(
            cpu, benchmark, case=case, rounds=1, clock=loadgen_clock, folder=tmp_path, timeout=60.0
        )
    assert (measured.status, measured.reason) == (Status.OK, "")
    assert purposes(measured) == ["accuracy", "calibration", "round", "audit"]
    (run,) = [run for run in measured.measurement.serving if run.purpose == "round"]
    assert run.valid
    assert measured.measurement.rounds[0].seconds == run.latencies["latency"].percentiles["90"]
    assert {check.verdict for check in measured.checks} == {"pass"}
    assert b"Result is : VALID" in measured.files["round-1-summary.txt"]
    caching = measured.measurement.serving[-1]
    assert (caching.samples, caching.settings["audit"]) == (2 * PAIRS, "serving/repeated-samples")


class Worker(Script):
    """Completes at most a batch of four every 4 ms: some 800 samples a second."""

    def work(self, started) -> None:
        spin(0.004)


def test_a_rate_is_found_under_the_real_loadgen(benchmark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = served_case(scenario="server")
    quick = profile("quick")
    monkeypatch.setattr(
        "trnbench.serving.stages.profile",
        lambda _: msgspec.structs.replace(quick, search_precision=0.3, least_seconds=0.1),
    )
    monkeypatch.setattr(
        "trnbench.serving.stages.POINT_RULES", {"quick": PointRules(seconds=0.1, least_queries=16, most_queries=32)}
    )
    monkeypatch.setattr(measure, "build_system", lambda *_: script_of(case, Worker))
    measured = measure_serving(
        FakeBackend(StepClock()), benchmark, case=case, rounds=1, clock=loadgen_clock, folder=tmp_path, timeout=60.0
    )
    # How much this host can do beside other work is not this test's business: that a rate is found, or why not, is.
    assert purposes(measured)[:3] == ["accuracy", "calibration", "probe"]
    if measured.status is Status.OK:
        assert Counter(run.purpose for run in measured.measurement.serving)["point"] == len(FRACTIONS)
        assert measured.measurement.rounds[0].items["samples"] >= quick.least_queries["server"]
    else:
        assert measured.status is Status.INVALID
        assert "no rate was valid" in measured.reason or "too late" in measured.reason or "round" in measured.reason
