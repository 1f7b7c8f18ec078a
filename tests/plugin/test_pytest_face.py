"""The pytest face on a scripted backend: what is stored, what the test says and how the session ends."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest

from fake_suite import PASSED, SUITE, install  # isort: skip
from fake_backend import FakeBackend, FakeProgram, Step, fake_case  # isort: skip

from typing import TYPE_CHECKING

from trnbench.compare.metrics import metric_values
from trnbench.plugin.session import session_exit_code
from trnbench.records.schema import MAX_ROUNDS, Record
from trnbench.records.store import Store
from trnbench.status import BackendUnavailable, Status
from trnbench.workloads import steps

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.device import Device

pytest_plugins = ["pytester"]


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a suite of three cases (batch 1, 2, 3) and the scripted backend, all of which pass."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    install(monkeypatch)
    pytester.makepyfile(test_suite=SUITE.format(batches=[1, 2, 3]))
    return pytester


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    arguments = ("--backend", "fake", "--results-dir", "results", "-p", "no:cacheprovider", *options)
    return suite.runpytest_inprocess(*arguments, no_reraise_ctrlc=True)


def records(suite: pytest.Pytester) -> list[Record]:
    loaded = Store(suite.path / "results").load()
    assert loaded.rejected == []
    return sorted((stored.record for stored in loaded.records), key=lambda record: record.record_id)


def statuses(suite: pytest.Pytester) -> dict[int, Status]:
    return {record.case.batch: record.status for record in records(suite)}


def test_every_case_ends_as_one_clean_record(suite: pytest.Pytester) -> None:
    result = run(suite, "--run-id", "r1")
    assert result.ret == 0
    stored = records(suite)
    assert [record.case.batch for record in stored] == [1, 2, 3]
    assert {record.run_id for record in stored} == {"r1"}
    assert all(record.case.version for record in stored)
    assert [len(record.measurement.rounds) for record in stored if record.measurement] == [4, 4, 4]
    assert [record.conformance for record in stored] == [[PASSED]] * 3
    assert stored[0].environment.flags["fake.precision"] == "fp32"
    result.stdout.fnmatch_lines(["*b1*median 0.010000 s of 4 rounds", "3 of 3 measured"])


def test_the_record_is_on_disk_the_moment_its_case_ends(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G11: while a later case runs, the earlier ones are already complete files."""
    seen = []

    def script(case: Case) -> list[Step]:
        seen.append(len(records(suite)))
        return [Step()]

    install(monkeypatch, script)
    assert run(suite).ret == 0
    assert seen == [0, 1, 2]


def test_a_case_out_of_memory_takes_no_other_with_it(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """G7: of three cases in one process the second is 'oom', the others are valid, and the session fails."""
    install(monkeypatch, lambda case: [Step(raises=RuntimeError("out of memory") if case.batch == 2 else None)])
    result = run(suite)
    assert result.ret == 1
    assert statuses(suite) == {1: Status.OK, 2: Status.OOM, 3: Status.OK}
    result.stdout.fnmatch_lines(["2 of 3 measured (1 oom)"])
    assert "Traceback" not in result.stdout.str()


def test_an_unforeseen_error_is_recorded_and_shown(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure nobody classified keeps its traceback for the developer and its sentence in the record."""
    install(monkeypatch, lambda case: [*[Step()] * 4, Step(raises=ValueError("surprise") if case.batch == 2 else None)])
    result = run(suite)
    assert result.ret == 1
    failed = records(suite)[1]
    assert (failed.status, failed.reason, failed.measurement) == (Status.FAILED, "ValueError: surprise", None)
    result.stdout.fnmatch_lines(["E*ValueError: surprise"])


@pytest.mark.parametrize("verdict", ["fail", "non-finite"])
def test_a_fast_wrong_case_is_stored_as_nonconformant(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    """C14, D20: rounds of a case that then fails its conformance check are stored with that status, and it fails."""
    value = 3.0 if verdict == "fail" else None
    bad = msgspec.structs.replace(PASSED, verdict=verdict, value=value, where="layer 2")
    install(monkeypatch, check=lambda case: [PASSED, bad] if case.batch == 2 else [PASSED])
    result = run(suite, "--benchmark-json", "rows.json")
    assert result.ret == 1
    assert statuses(suite) == {1: Status.OK, 2: Status.NONCONFORMANT, 3: Status.OK}
    stored = records(suite)[1]
    assert stored.measurement is not None
    assert stored.conformance == [PASSED, bad]
    assert "logits" in stored.reason
    assert "layer 2" in stored.reason
    rows = json.loads((suite.path / "rows.json").read_text())["benchmarks"]
    assert [row["extra_info"]["case"] for row in rows] == [records(suite)[0].case.id, records(suite)[2].case.id]


def test_a_conformance_check_that_breaks_keeps_the_rounds(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D20: where checking itself fails, the rounds stay in the record and the status says what happened."""

    def check(case: Case) -> list:
        raise RuntimeError("out of memory")

    install(monkeypatch, check=check)
    assert run(suite).ret == 1
    assert all(record.status is Status.OOM and record.measurement is not None for record in records(suite))


def test_conformance_can_be_left_out(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a check a record holds no verdict at all, which comparisons show as 'not checked'."""

    def check(case: Case) -> list:
        raise AssertionError("checked all the same")

    install(monkeypatch, check=check)
    assert run(suite, "--no-conformance").ret == 0
    assert [record.conformance for record in records(suite)] == [[], [], []]


@pytest.mark.parametrize(
    ("script", "status", "word"),
    [
        ([Step(loss=2.1), Step(loss=math.nan), Step()], Status.INVALID, "first bad step 2"),
        ([*[Step()] * 3, Step(compiles=1), Step()], Status.INVALID, "recompiled"),
        ([*[Step()] * 3, Step(fallbacks={"aten::sort": 1})], Status.FALLBACK, "aten::sort"),
        ([Step(seconds=0.0)], Status.INVALID, "no valid samples"),
    ],
)
def test_what_is_no_speed_fails_and_is_never_ok(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, script: list[Step], status: Status, word: str
) -> None:
    """A5, A11, A13, C12: the record carries the reason, the test fails with it, and 0 cases count as measured."""
    install(monkeypatch, lambda case: script)
    result = run(suite)
    assert result.ret == 1
    assert {record.status for record in records(suite)} == {status}
    assert all(word in record.reason for record in records(suite))
    result.stdout.fnmatch_lines([f"0 of 3 measured (3 {status.value})"])


def test_exported_rows_are_strict_json(suite: pytest.Pytester) -> None:
    """D1, D7: pytest-benchmark's own file parses without NaN or Infinity, holds plain values and stays small."""
    assert run(suite, "--benchmark-json", "rows.json").ret == 0
    text = (suite.path / "rows.json").read_text()

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    rows = json.loads(text, parse_constant=refuse)["benchmarks"]
    assert "UNSERIALIZABLE" not in text
    assert [row["params"]["case"] for row in rows] == [record.case.id for record in records(suite)]
    assert all(isinstance(value, str) for row in rows for value in row["extra_info"].values())
    assert len(text) < 200_000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--rounds", "70000"], f"between 1 and {MAX_ROUNDS}"),
        (["--rounds", "0"], f"between 1 and {MAX_ROUNDS}"),
        (["--rounds", "ten"], "must be a whole number"),
        (["--tier", "huge"], "must be one of smoke, single, node, fleet"),
        (["--backend", "fke"], "did you mean 'fake'"),
        (["-n", "2"], "pytest-xdist"),
        (["nowhere/test_x.py"], "there is no nowhere/test_x.py"),
        (["test_suite.py::no_such_test"], "not found"),
        (["-k", "and and"], "Wrong expression"),
    ],
)
def test_mistakes_end_with_2_before_anything_runs(suite: pytest.Pytester, options: list[str], sentence: str) -> None:
    """D7, G13: wrong options, and workers that would disturb each other, are refused; no file appears."""
    result = run(suite, *options)
    assert result.ret == 2
    assert sentence in result.stderr.str()
    assert not (suite.path / "results").exists()


class AbsentBackend(FakeBackend):
    """Not installed."""

    @classmethod
    def preflight(cls) -> None:
        raise BackendUnavailable("fake is not installed; get it from the vendor")


class BusyBackend(FakeBackend):
    """Owned by someone else."""

    def open(self) -> None:
        raise BackendUnavailable("the device is busy", Status.BUSY)


@pytest.mark.parametrize(("backend", "sentence"), [(AbsentBackend, "not installed"), (BusyBackend, "is busy")])
def test_an_absent_or_busy_backend_ends_with_4(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, backend: type[FakeBackend], sentence: str
) -> None:
    install(monkeypatch, backend=backend)
    result = run(suite)
    assert result.ret == 4
    assert sentence in result.stdout.str() + result.stderr.str()
    assert not (suite.path / "results").exists()


def test_collecting_and_listing_need_no_backend(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """G1: neither collection nor the driver's list opens a device, even one that is not there."""
    install(monkeypatch, backend=AbsentBackend)
    assert run(suite, "--collect-only").ret == 0
    assert run(suite, "--trnbench-list", "cases.json").ret == 0
    assert [item["case"]["batch"] for item in json.loads((suite.path / "cases.json").read_text())] == [1, 2, 3]


@pytest.mark.parametrize(
    "options", [["--benchmark-disable"], ["--benchmark-skip"], ["--tier", "node"], ["-k", "no_such_case"]]
)
def test_nothing_measured_is_3(suite: pytest.Pytester, options: list[str]) -> None:
    """G12: disabled, skipped and deselected cases leave no record and never exit 0."""
    result = run(suite, *options)
    assert result.ret == 3
    assert not (suite.path / "results").exists()
    result.stdout.fnmatch_lines(["0 of * measured*"])


def test_benchmark_only_still_measures(suite: pytest.Pytester) -> None:
    """pytest-benchmark's own selection sees these cases as benchmarks."""
    suite.makepyfile(test_other="def test_other(): pass")
    result = run(suite, "--benchmark-only")
    assert result.ret == 0
    result.assert_outcomes(passed=3, skipped=1)


def test_without_a_backend_cases_skip_with_a_reason(suite: pytest.Pytester) -> None:
    """G12: cases alone, all skipped, exit 3; beside other tests they skip quietly."""
    alone = suite.runpytest_inprocess("-rs")
    assert alone.ret == 3
    alone.stdout.fnmatch_lines(["*no backend chosen: measure with --backend*"])
    suite.makepyfile(test_other="def test_other(): pass")
    beside = suite.runpytest_inprocess()
    assert beside.ret == 0
    beside.assert_outcomes(passed=1, skipped=3)


def test_a_plan_for_eight_devices_is_skipped_on_one(suite: pytest.Pytester) -> None:
    """H8: 'needs 8 devices, have 1' is recorded as skipped, not run and not called out of memory."""
    suite.makepyfile(test_suite=SUITE.format(batches=1).replace("sequence=16", 'sequence=16, parallel={"tp": 8}'))
    result = run(suite)
    assert result.ret == 3
    (record,) = records(suite)
    assert (record.status, record.reason, record.measurement) == (Status.SKIPPED, "needs 8 devices, have 1", None)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["0 of 1 measured (1 skipped)"])


class OneTrainium(FakeBackend):
    """Says that it is one Trainium2 chip of a trn2.3xlarge; runs scripts all the same."""

    def describe(self) -> Device:
        device = super().describe()
        return msgspec.structs.replace(device, chip="trainium2", chips=1, cores=4, instance_type="trn2.3xlarge")


def test_three_cores_of_trainium_are_refused(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """H7: also where pytest is started by hand, the record says which counts there are, and nothing is measured."""
    install(monkeypatch, backend=OneTrainium)
    suite.makepyfile(test_suite=SUITE.format(batches=1).replace("sequence=16", 'sequence=16, parallel={"tp": 3}'))
    assert run(suite).ret == 1
    (record,) = records(suite)
    assert (record.status, record.measurement) == (Status.FAILED, None)
    assert "groups of 1, 2, 4 cores only" in record.reason


def test_the_instance_is_the_machines_own_word(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine says it is goes into the record; an option that contradicts it ends with 2, nothing written."""
    install(monkeypatch, backend=OneTrainium)
    assert run(suite, "--instance-type", "trn2.48xlarge").ret == 2
    assert not (suite.path / "results").exists()
    assert run(suite).ret == 0
    assert {record.device.instance_type for record in records(suite)} == {"trn2.3xlarge"}


def test_a_precision_the_device_lacks_is_recorded_and_skipped(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_suite=SUITE.format(batches=1).replace('"fp32"', '["fp32", "fp16"]'))
    result = run(suite)
    assert result.ret == 0
    assert [(record.status, record.reason) for record in records(suite)] == [
        (Status.OK, ""),
        (Status.UNSUPPORTED, "fake has no fp16"),
    ]
    result.assert_outcomes(passed=1, skipped=1)


def test_an_interrupt_is_recorded_and_ends_with_130(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """G11: the finished case stays, the running one is 'interrupted', the rest has no record."""
    install(monkeypatch, lambda case: [Step(raises=KeyboardInterrupt() if case.batch == 2 else None)])
    result = run(suite)
    assert result.ret == 130
    assert statuses(suite) == {1: Status.OK, 2: Status.INTERRUPTED}
    result.stdout.fnmatch_lines(["1 of 3 measured (1 interrupted, 1 without a record)"])


def test_the_price_in_force_is_stored_with_its_date(suite: pytest.Pytester) -> None:
    assert run(suite, "--instance-type", "trn2.48xlarge", "--region", "nowhere-9").ret == 0
    record = records(suite)[0]
    assert record.price is None
    assert "nowhere-9" in record.unknown["price"]
    assert (record.device.instance_type, record.device.region) == ("trn2.48xlarge", "nowhere-9")


def test_without_an_instance_the_price_is_null_with_a_reason(suite: pytest.Pytester) -> None:
    assert run(suite).ret == 0
    record = records(suite)[0]
    assert record.price is None
    assert "--instance-type" in record.unknown["price"]
    assert "--region" in record.unknown["device.region"]


def test_division_into_micro_batches_leaves_the_stored_throughput(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B8: 16 sequences a step of 1 s are 16 sequences/s in the record, as 8 micro-batches of 2 or as one of 16."""
    install(monkeypatch, lambda case: [Step(seconds=1.0)])
    suite.makepyfile(test_suite=SUITE.format(batches=16).replace("sequence=16", "sequence=16, micro_batch=[2, 16]"))
    assert run(suite).ret == 0
    rates = [metric_values(record)["sequences_per_second"] for record in records(suite)]
    assert rates == pytest.approx([16.0, 16.0])


def test_a_smaller_batch_than_the_case_names_is_stored_and_refused(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9: a program that keeps batch 1 where 8 was asked: the record holds 1 and is 'invalid'."""
    monkeypatch.setattr(steps, "build", lambda case, *_: one_sequence_program(case))
    suite.makepyfile(test_suite=SUITE.format(batches=8))
    assert run(suite).ret == 1
    (record,) = records(suite)
    assert record.status is Status.INVALID
    assert "effective batch 1" in record.reason
    assert record.measurement is not None
    assert {item.items["sequences"] for item in record.measurement.rounds} == {1}


def one_sequence_program(case: Case) -> FakeProgram:
    """A program with a fixed batch of 1, whatever the case asks."""
    program = FakeProgram(FakeBackend.latest, [Step()], case)
    program.sequences = [1]
    return program


@pytest.mark.parametrize(
    ("body", "sentence"),
    [("measure(); measure()", "measure() was called twice"), ("pass", "the test never called measure()")],
)
def test_a_case_is_measured_exactly_once(suite: pytest.Pytester, body: str, sentence: str) -> None:
    suite.makepyfile(test_suite=SUITE.format(batches=1).replace("measure(rounds=4)", body))
    result = run(suite)
    assert result.ret == 1
    assert sentence in result.stdout.str()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("precision=", "precison=", "did you mean 'precision'"),
        ('"nano"', '"nanoo"', "nano"),
        ("batch=[1]", "batch=[1, 1]", "twice"),
        ("@pytest.mark.cases(CASES)", "", "without @pytest.mark.cases"),
        ("(CASES)", '("nano")', "takes one list of trnbench cases"),
    ],
)
def test_a_wrong_suite_is_one_sentence(suite: pytest.Pytester, old: str, new: str, sentence: str) -> None:
    """A mistake in a suite file ends with 2, names the file and shows no traceback through the library."""
    suite.makepyfile(test_suite=SUITE.format(batches=[1]).replace(old, new))
    result = run(suite)
    assert result.ret == 2
    assert sentence in result.stdout.str()
    assert "test_suite.py" in result.stdout.str()
    assert "harness/trnbench" not in result.stdout.str()


def test_a_results_folder_that_cannot_be_written_fails_in_one_sentence(suite: pytest.Pytester) -> None:
    (suite.path / "results").write_text("a file")
    result = run(suite)
    assert result.ret != 0
    assert "was not written" in result.stdout.str()


@pytest.mark.parametrize(
    ("status", "measured", "interrupted", "expected"),
    [
        (pytest.ExitCode.OK, True, False, 0),
        (pytest.ExitCode.OK, False, False, 3),
        (pytest.ExitCode.NO_TESTS_COLLECTED, False, False, 3),
        (pytest.ExitCode.TESTS_FAILED, True, False, 1),
        (pytest.ExitCode.INTERNAL_ERROR, True, False, 1),
        (pytest.ExitCode.INTERRUPTED, False, False, 2),
        (pytest.ExitCode.INTERRUPTED, True, True, 130),
        (4, False, False, 4),
    ],
)
def test_exit_codes(status: int, measured: bool, interrupted: bool, expected: int) -> None:
    """G12: pytest's own 0, 3 and 5 never leak through with another meaning."""
    assert session_exit_code(int(status), measured=measured, interrupted=interrupted) == expected


def test_case_files_hold_no_machinery() -> None:
    """Suites declare: they import pytest, the case grid and the clock that LoadGen sets, and nothing else."""
    for path in (Path(__file__).parents[2] / "suites").rglob("test_*.py"):
        lines = [line for line in path.read_text().splitlines() if line.startswith(("import ", "from "))]
        assert set(lines) <= {
            "from __future__ import annotations",
            "import pytest",
            "from trnbench.case import grid",
            "from trnbench.serving.clock import loadgen_clock",
        }, path
    assert fake_case().id
