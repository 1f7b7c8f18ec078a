"""What is run on a warmed system, in order: accuracy, calibration, probe, search, curve, rounds, audits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from trnbench.serving import audit
from trnbench.serving.curve import POINT_RULES, point_tests
from trnbench.serving.link import hints_of
from trnbench.serving.null import LARGEST_SHARE, issue_delay, refuse_delay
from trnbench.serving.profiles import profile
from trnbench.serving.search import Found, bounds_from, highest_valid_rate
from trnbench.serving.settings import RATED, Hints, Test, accuracy_test, calibration_test, performance_test
from trnbench.status import CaseError, Status

if TYPE_CHECKING:
    from trnbench.case import Case
    from trnbench.records.schema import Check
    from trnbench.serving.runs import Ran, Runs

STREAM_CALIBRATION = 16
"""Queries that show how long one takes."""

BATCHES_OF_CALIBRATION = 8
"""Full batches that show how many samples a second are completed."""

PROBES = 3
"""Tries of the issue-delay probe: one late wake-up of the host must not end a case."""

MOST_TRIALS = 14
LONGEST_TRIAL = {"quick": 30.0, "full": 7200.0}
"""Seconds, by profile: rates so low that a test's fewest queries take longer are not searched."""

HOPELESS = 2.0
"""A search's test ends early once so many times more requests wait than a system within its limits ever has: their
rate times the longest answer allowed (Little's law)."""

STEPS_DOWN = 5
"""So often the rate is lowered where the repetitions at the highest one found do not hold."""

LOGGED_ANSWERS = 64
"""About so many answers of a round are logged by LoadGen for the audits."""

PAIRS = 32
CACHE_ATTEMPTS = 3
"""Runs in which every repetition must be too fast before the audit fails: a burst of other work hits one of them."""

RESERVE = PAIRS * CACHE_ATTEMPTS
"""Samples behind the library that no test but the audit of caching asks for."""


class Stages:
    """Runs a case's tests; what they bring is in `runs`, `rounds` and `notes`, also where one of them ends the case."""

    def __init__(self, case: Case, runs: Runs) -> None:
        self.case = case
        self.runs = runs
        self.rules = profile(case.profile)
        self.rounds: list[Ran] = []
        self.notes: list[str] = []
        """Sentences that the record must carry although the case is in order."""

    def run(self, rounds: int) -> None:
        """All tests of the case. Raises `CaseError` where one ends it, and whatever the system raises."""
        accuracy = self.runs.run(accuracy_test(self.case, samples=self.rules.library), "accuracy")
        if not accuracy.run.valid:
            raise CaseError(Status.INVALID, f"accuracy test: {'; '.join(accuracy.run.reasons)}")
        self.runs.answers = accuracy.result.outputs
        hints = self._calibrate()
        if self.case.scenario in RATED:
            self._rated(hints, rounds)
        else:
            test = performance_test(self.case, self.rules, samples=self.rules.library, hints=hints)
            self.rounds = self._repeat(test, rounds)

    def _calibrate(self) -> Hints:
        stream = self.case.scenario.endswith("_stream")
        queries = STREAM_CALIBRATION if stream else BATCHES_OF_CALIBRATION * self.case.batch
        ran = self.runs.run(calibration_test(self.case, samples=self.rules.library, queries=queries), "calibration")
        return hints_of(ran.result)

    def _rated(self, hints: Hints, rounds: int) -> None:
        """Server and interactive: probe, search, curve, then rounds at the rate that was found."""
        if not hints.rate:
            raise CaseError(Status.INVALID, "no rate: no sample was completed in the calibration")
        least = self.rules.least_queries[self.case.scenario] / LONGEST_TRIAL[self.rules.name]
        bounds = bounds_from(hints.rate, self.rules.search_precision, MOST_TRIALS, least)
        # At the highest rate offered, where issuing is hardest and the probe takes the least time.
        self._probe(self._rated_test(bounds.most))
        found = highest_valid_rate(lambda rate: self.runs.run(self._trial(rate), "search").run.valid, bounds)
        if found.rate is None:
            last = self.runs.of("search")[-1].run
            raise CaseError(Status.INVALID, f"{found.said}; the last one: {'; '.join(last.reasons)}")
        if found.end != "bracketed":
            self.notes.append(found.said)
        for test in point_tests(self._rated_test(found.rate), found.rate, POINT_RULES[self.rules.name]):
            self.runs.run(test, "point")
        self._rounds_that_hold(found, rounds)

    def _rated_test(self, rate: float) -> Test:
        return performance_test(self.case, self.rules, samples=self.rules.library, rate=rate)

    def _trial(self, rate: float) -> Test:
        """A test of the search, given up once so many wait that the limits can no longer be met."""
        test = self._rated_test(rate)
        limits = test.latency_limits
        if limits is None:
            return test
        answer = limits.ttft + limits.tpot * self.case.new_tokens if test.token_latencies else limits.answer
        return msgspec.structs.replace(test, most_waiting=self.case.batch + math.ceil(HOPELESS * rate * answer))

    def _probe(self, test: Test) -> None:
        """Refuse a host that issues queries too late to judge the limits, in each of several tries."""
        for attempt in range(1, PROBES + 1):
            delay = issue_delay(self.runs.probe(test, {"largest_share_of_limit": LARGEST_SHARE}).result)
            try:
                refuse_delay(delay, test)
            except CaseError:
                if attempt == PROBES:
                    raise
            else:
                return

    def _rounds_that_hold(self, found: Found, rounds: int) -> None:
        """Rounds at the rate found; where one of them is not valid, all of them at a lower rate.

        A search meets the limits once at its result. A system near its limit may miss them the next time, and a test of
        seconds may meet them at a rate that nothing could keep up with. So the next rate is lower by the precision, and
        no higher than what the round that missed the limits completed: an overloaded system completes what it can.
        """
        assert found.rate is not None
        rate = found.rate
        for step in range(STEPS_DOWN + 1):
            self.rounds = self._repeat(self._rated_test(rate), rounds)
            if all(one.run.valid for one in self.rounds):
                break
            if step < STEPS_DOWN:
                self.runs.call(self.rounds, "search")
                completed = self.rounds[-1].run.rates.get("samples", rate)
                rate = min(rate / (1 + self.rules.search_precision), completed)
        if rate != found.rate:
            self.notes.append(
                f"{found.rate:.4g} requests a second were valid once but not in every repetition; the rounds are at "
                f"{rate:.4g}"
            )

    def _repeat(self, test: Test, rounds: int) -> list[Ran]:
        """Up to `rounds` runs of `test`; none after one that is not valid, which decides the case."""
        logged = msgspec.structs.replace(test, logged_samples=LOGGED_ANSWERS)
        done: list[Ran] = []
        while len(done) < rounds and all(one.run.valid for one in done):
            done.append(self.runs.run(logged, "round"))
        return done

    def audit(self) -> list[Check]:
        """The audits of the rounds, and of caching by a test of its own. Raises what `Runs.run` raises."""
        caching = self._audit_caching()
        logged = [answer for one in self.rounds for answer in one.result.logged]
        explained = self.runs.explained(self.case, logged)
        checks = [audit.performance_outputs(audit.compare_outputs(self.runs.answers, logged, explained)), caching]
        if self.case.phase == "serving":
            seen = [one.seen for one in self.rounds]
            first_fault = next((one.first_fault for one in seen if one.first_fault), "")
            answers, faulty = sum(one.answers for one in seen), sum(one.faulty for one in seen)
            checks.append(audit.whole_answers(answers, faulty, first_fault, logged))
            produced = sum(one.result.produced for one in self.rounds)
            expected = sum(self.runs.expected_tokens(one.result) for one in self.rounds)
            checks.append(audit.output_length(produced, expected))
        return checks

    def _audit_caching(self) -> Check:
        """Ask for samples that nobody has asked for, each twice in a row; again with others where it looks cached."""
        test = Test(
            scenario="single_stream",
            mode="performance",
            token_latencies=self.case.phase == "serving",
            samples=2 * PAIRS,
            least_queries=2 * PAIRS,
            expected_latency=1.0,
            even=False,
            draw="unique",
        )
        for attempt in range(CACHE_ATTEMPTS):
            start = self.rules.library + attempt * PAIRS
            twice = [index for index in range(start, start + PAIRS) for _ in range(2)]
            ran = self.runs.run(test, "audit", ask_instead=twice, notes={"audit": audit.REPEATED_SAMPLES})
            check = audit.repeated_samples(list(zip(ran.seen.seconds[::2], ran.seen.seconds[1::2], strict=True)))
            if check.verdict == "pass":
                break
        return check
