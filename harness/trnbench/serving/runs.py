"""LoadGen tests one after another against one system, each with what the backend counted meanwhile."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from trnbench.serving import link, null
from trnbench.serving.explain import explained_answers
from trnbench.serving.observe import Observed
from trnbench.serving.protocol import DETAIL, SUMMARY
from trnbench.serving.result import length_fault, stored_run
from trnbench.serving.settings import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from trnbench.backends.base import Backend
    from trnbench.case import Case
    from trnbench.device import Counters, Scalar
    from trnbench.records.schema import LoadGenRun, Purpose
    from trnbench.serving.explain import Said
    from trnbench.serving.log import LoadGenResult, LoggedAnswer
    from trnbench.serving.profiles import Profile
    from trnbench.serving.samples import Samples
    from trnbench.serving.settings import Test
    from trnbench.serving.system import System

MOST_LOG_BYTES = 200_000
"""A larger detail log is not kept beside the record."""


class Ran(NamedTuple):
    """One test: as LoadGen's logs tell it, as the record keeps it, and what else was seen of it."""

    test: Test
    result: LoadGenResult
    run: LoadGenRun
    seen: Observed
    compiles: int | None
    fallbacks: int
    logs: Path

    @property
    def metric(self) -> float | None:
        """Seconds of a round; None where LoadGen found the test invalid or gave no positive, finite metric."""
        value = self.result.metric
        return value if value is not None and math.isfinite(value) and value > 0 else None


class Runs:
    """Runs tests against `system` and keeps all of them, in order.

    `folder` gets one folder a test with LoadGen's logs. A test may take `timeout` seconds (test -> seconds).
    """

    def __init__(
        self,
        backend: Backend,
        system: System,
        samples: Samples,
        *,
        folder: Path,
        timeout: Callable[[Test], float],
    ) -> None:
        self._backend = backend
        self._system = system
        self._samples = samples
        self._folder = folder
        self._timeout = timeout
        self.ran: list[Ran] = []
        self.answers: dict[int, list[int]] = {}
        """The accuracy test's answers by sample; empty before it ran, when no length is judged."""

    @property
    def stored(self) -> list[LoadGenRun]:
        """Every test so far as the record keeps it."""
        return [one.run for one in self.ran]

    def of(self, purpose: Purpose) -> list[Ran]:
        """The tests with this purpose, in order."""
        return [one for one in self.ran if one.run.purpose == purpose]

    def run(
        self,
        test: Test,
        purpose: Purpose,
        *,
        ask_instead: Sequence[int] = (),
        notes: Mapping[str, Scalar] = MappingProxyType({}),
    ) -> Ran:
        """Run one test against the system; see `Observed` for `ask_instead`. Raises what `link.run_loadgen` raises."""
        logs = self._logs(purpose)
        seen = Observed(self._system, self._samples, ask_instead)
        before = self._backend.counters()
        result = link.run_loadgen(test, seen, folder=logs, timeout=self._timeout(test))
        counted = self._backend.counters().since(before)
        faults = device_faults(counted)
        if not ask_instead:
            faults += self._answer_faults(result, seen, test)
        run = stored_run(result, test, purpose=purpose, faults=faults, asked_tokens=seen.asked_tokens, notes=notes)
        self.ran.append(Ran(test, result, run, seen, counted.compiles, counted.fallback_total(), logs))
        return self.ran[-1]

    def probe(self, test: Test, notes: Mapping[str, Scalar]) -> Ran:
        """Run the arrivals of `test` against a system that answers at once; see `null.probe`."""
        logs = self._logs("probe")
        result = null.probe(test, folder=logs, timeout=self._timeout(test))
        run = stored_run(result, test, purpose="probe", faults=(), asked_tokens=result.produced, notes=notes)
        self.ran.append(Ran(test, result, run, Observed(self._system, self._samples), 0, 0, logs))
        return self.ran[-1]

    def call(self, ran: Sequence[Ran], purpose: Purpose) -> None:
        """Give tests another purpose: rounds that did not hold are part of the search."""
        renamed = [id(one) for one in ran]
        self.ran = [
            one._replace(run=msgspec.structs.replace(one.run, purpose=purpose)) if id(one) in renamed else one
            for one in self.ran
        ]

    def _logs(self, purpose: Purpose) -> Path:
        folder = self._folder / f"{len(self.ran) + 1:03d}-{purpose}"
        folder.mkdir(parents=True)
        return folder

    def expected_tokens(self, result: LoadGenResult) -> int:
        """Tokens that the accuracy test's answers to the samples of `result` have together."""
        return sum(times * len(self.answers.get(index, ())) for index, times in result.issued.items())

    def explained(self, case: Case, logged: Sequence[LoggedAnswer]) -> set[Said]:
        """See `explain.explained_answers`; no test may follow."""
        return explained_answers(
            case, self._backend, self._system, self._samples, reference=self.answers, logged=logged
        )

    def _answer_faults(self, result: LoadGenResult, seen: Observed, test: Test) -> list[str]:
        faults = []
        if seen.faulty:
            faults.append(f"{seen.faulty} of {seen.answers} answers are not whole; {seen.first_fault}")
        if self.answers and test.token_latencies:
            too_far = length_fault(result.produced, self.expected_tokens(result))
            faults += [too_far] if too_far else []
        return faults


def device_faults(counted: Counters) -> list[str]:
    """What the backend counted during a test that must not happen inside one."""
    faults = [f"compiled inside the run: {counted.compiles} compiles"] if counted.compiles else []
    if counted.fallbacks:
        named = ", ".join(f"{name} x{count}" for name, count in sorted(counted.fallbacks.items()))
        faults.append(f"operators ran on the host inside the run: {named}")
    return faults


def kept_logs(rounds: Sequence[Ran]) -> tuple[dict[str, bytes], list[str]]:
    """LoadGen's summary and detail log of every round, by the name to store them under, and notes on what is missing.

    The folder that a run wrote them into, and so every local path, is cut out where it occurs.
    """
    files: dict[str, bytes] = {}
    notes = []
    for number, one in enumerate(rounds, 1):
        for log, short in ((SUMMARY, "summary"), (DETAIL, "detail")):
            name = f"round-{number}-{short}.txt"
            data = (one.logs / log).read_bytes().replace(str(one.logs).encode(), b".")
            if len(data) > MOST_LOG_BYTES:
                notes.append(f"{name} is not kept: it has {len(data)} bytes, more than {MOST_LOG_BYTES}")
            else:
                files[name] = data
    return files, notes


def time_limit(test: Test, rules: Profile) -> float:
    """Seconds that a test may take: generous, since its end is a lost case, and finite, since a device may hang.

    Ten times the profile's least duration, three times as long as its queries should take by what is known of their
    speed, and two minutes for the rest.
    """
    queries, samples = listed(test)
    expected = 0.0
    if test.rate:
        expected = queries / test.rate
    elif test.expected_latency:
        expected = queries * test.expected_latency
    elif test.expected_rate:
        expected = samples / test.expected_rate
    return 120.0 + 10 * rules.least_seconds + 3 * expected
