"""The pytest face: options, the fixtures `case`, `measure` and `conform`, the summary and the exit codes.

    CASES = grid(suite="decoder", workload="nano", phase="train_step", precision=["fp32", "bf16"], ...)

    @pytest.mark.cases(CASES)
    def test_train_step(measure):
        measure()

Each case ends as one record under `--results-dir`, written the moment it ends, also when it failed. pytest-benchmark
times the rounds, and its own options (`--benchmark-skip`, `--benchmark-json`, ...) keep working.
"""

from __future__ import annotations

import itertools
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest

from trnbench.measure.rounds import DEFAULT_ROUNDS, check_round_count
from trnbench.plugin import cases
from trnbench.plugin.options import Settings, add_options, read_settings, refuse
from trnbench.plugin.session import MeasuringSession
from trnbench.records.deviations import fails_run
from trnbench.runner.watchdog import follow_parent
from trnbench.status import ExitCode, Status, TrnBenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from trnbench.case import Case
    from trnbench.plugin.work import Work
    from trnbench.records.schema import Record

SETTINGS = pytest.StashKey[Settings]()
SESSION = pytest.StashKey[MeasuringSession]()


class Conform(Protocol):
    """What the fixture `conform` gives: call it once in a test."""

    def __call__(self) -> Record: ...


class Measure(Protocol):
    """What the fixture `measure` gives: call it once in a test; `rounds` yields to `--rounds`."""

    def __call__(self, *, rounds: int = DEFAULT_ROUNDS) -> Record: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", cases.MARKER_LINE)
    try:
        settings = config.stash[SETTINGS] = read_settings(config)
    except TrnBenchError as error:
        refuse(error)
    if settings.backend is not None and settings.list_file is None and not config.option.collectonly:
        follow_parent()
        session = config.stash[SESSION] = MeasuringSession(settings, settings.backend)
        session.stop_on_sigterm()
        config.pluginmanager.register(session, "trnbench-session")


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Answer a wrong test name or `-k` with 2: pytest's own 4 would say that the backend is not available."""
    try:
        return (yield)
    except pytest.UsageError as error:
        if SESSION not in config.stash:
            raise
        for line in error.args:
            print(f"ERROR: {line}", file=sys.stderr)
        return int(ExitCode.USAGE)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cases.parametrize(metafunc)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Show a suite that declares a wrong case as one sentence instead of a traceback through this library."""
    report = yield
    call: Any = getattr(report, "call", None)
    error = None if call is None or call.excinfo is None else call.excinfo.value
    if isinstance(error, TrnBenchError):
        report.longrepr = f"E   {collector.nodeid}: {error}"
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    settings = config.stash[SETTINGS]
    tier, profile = settings.tier, settings.profile
    if tier is not None:
        cases.keep_cases(config, items, lambda case: case.tier == tier)
    if profile is not None:
        cases.keep_cases(config, items, lambda case: case.profile in ("", profile))
    for item in items:
        if cases.case_of(item) is None:
            continue
        # A case that ends before its rounds has a record with the reason; the benchmark fixture's complaint adds none.
        item.add_marker(pytest.mark.filterwarnings("ignore:Benchmark fixture was not used at all"))
        if settings.backend is None and settings.list_file is None:
            item.add_marker(pytest.mark.skip(reason="no backend chosen: measure with --backend, such as --backend cpu"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With `--trnbench-list`, write the list in place of running anything."""
    file = session.config.stash[SETTINGS].list_file
    if file is None or session.testsfailed:
        return None
    try:
        cases.write_list(session.items, file)
    except TrnBenchError as error:
        refuse(error)
    return True


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """The case of this item, as declared, with its workload's version."""
    return cases.marked_cases(request.node)[request.param]


@pytest.fixture
def measure(request: pytest.FixtureRequest, benchmark: BenchmarkFixture, case: Case) -> Generator[Measure, None, None]:
    """Measure this item's case, check its conformance and store its record; fails or skips the test by its status."""
    with _called_once("measure", "measured", case) as claim:

        def measure_case(*, rounds: int = DEFAULT_ROUNDS) -> Record:
            claim()
            return _measure_item(request, benchmark, case, rounds)

        yield measure_case


@contextmanager
def _called_once(fixture: str, done: str, case: Case) -> Iterator[Callable[[], None]]:
    """Fail a test that calls what the fixture gives, and so `claim`, twice or never."""
    calls = itertools.count()

    def claim() -> None:
        if next(calls):
            pytest.fail(f"{fixture}() was called twice: a case is {done} once", pytrace=False)

    yield claim
    if not next(calls):
        pytest.fail(f"the test never called {fixture}(): case {case.id} has no record", pytrace=False)


def _measure_item(request: pytest.FixtureRequest, benchmark: BenchmarkFixture, case: Case, rounds: int) -> Record:
    from trnbench.plugin.work import measuring

    session = request.config.stash[SESSION]
    if benchmark.disabled:
        pytest.skip("pytest-benchmark is disabled (--benchmark-disable): nothing is measured")
    _open(session)
    try:
        rounds = check_round_count(session.settings.rounds or rounds)
    except TrnBenchError as wrong:
        pytest.fail(str(wrong), pytrace=False)
    marker = request.node.get_closest_marker("benchmark")
    clock = marker.kwargs.get("timer", time.perf_counter) if marker else time.perf_counter
    ended = _run(session, case, measuring(case, benchmark, rounds, clock))
    benchmark.extra_info.update(case=case.id, status=ended.record.status.value, record=ended.path.name)
    # pytest-benchmark keeps the row of a test that fails after its rounds; one marked so is left out of its files.
    benchmark.has_error = ended.record.status is not Status.OK
    return _outcome(ended)


@pytest.fixture
def conform(request: pytest.FixtureRequest, case: Case) -> Generator[Conform, None, None]:
    """Check this item's case, which measures nothing, and store its record; fails or skips the test by its status."""
    with _called_once("conform", "checked", case) as claim:

        def check_case() -> Record:
            from trnbench.plugin.work import checking

            claim()
            session = request.config.stash[SESSION]
            _open(session)
            return _outcome(_run(session, case, checking()))

        yield check_case


class _Ended(NamedTuple):
    record: Record
    path: Path
    unforeseen: BaseException | None


def _open(session: MeasuringSession) -> None:
    try:
        session.backend()
    except TrnBenchError as error:
        refuse(error)


def _run(session: MeasuringSession, case: Case, work: Work) -> _Ended:
    from trnbench.plugin.running import run_case

    try:
        return _Ended(*run_case(session, case, work))
    except TrnBenchError as wrong:
        pytest.fail(str(wrong), pytrace=False)


def _outcome(ended: _Ended) -> Record:
    """The record of a case that ended well; any other ends the test by what its status means."""
    record = ended.record
    if record.status is Status.OK:
        return record
    if record.status in (Status.SKIPPED, Status.UNSUPPORTED):
        pytest.skip(record.reason)
    if ended.unforeseen is not None:
        raise ended.unforeseen
    if not fails_run(record):
        pytest.xfail(record.reason)
    pytest.fail(f"{record.status.value}: {record.reason} (record {ended.path.name})", pytrace=False)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    settings = session.config.stash.get(SETTINGS, None)
    if settings is None or SESSION in session.config.stash or session.config.option.collectonly:
        return
    if settings.list_file is not None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK
    elif exitstatus == pytest.ExitCode.OK and session.items and all(cases.case_of(item) for item in session.items):
        # Nothing but cases was collected and without a backend every one was skipped: that is no success.
        session.exitstatus = int(ExitCode.NOTHING_MEASURED)
