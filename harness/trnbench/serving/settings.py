"""What LoadGen must be told for one test: built from a case and a profile, and refused where its parts clash.

LoadGen itself refuses nothing: clashing limits, too few pre-generated queries or a run that is too short end as
INVALID after the full time, and a list of queries that is too long ends the machine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

from trnbench.serving.profiles import SEEDS, Limits, Profile, Seeds, limits
from trnbench.status import UsageError

if TYPE_CHECKING:
    from trnbench.case import Case

TestScenario = Literal["single_stream", "multi_stream", "offline", "server", "interactive"]
RATED = ("server", "interactive")
"""Scenarios whose queries arrive at a rate, whether or not the system keeps up."""

SAMPLES_PER_QUERY = 8
"""Of multi_stream (inference_rules.adoc, "Scenarios")."""

LATENCY_MARGINS = {"single_stream": 1.4, "multi_stream": 0.7}
"""LoadGen lists queries for twice the shortest duration at the expected latency, and the test is INVALID where the list
ends too soon. Both margins times the measured latency leave room for a system faster than in the calibration: down to
0.7 and 0.35 times as slow. Single stream asks its whole list, since it must ask all samples equally often, so that it
takes 1.4 times the shortest duration; multi stream stops in time and its list may be longer."""

RATE_MARGIN = 1.5
"""Offline asks 1.1 times shortest duration times expected rate. A calibration is short and its last batch half empty,
so that it shows too low a rate; the test takes up to 1.65 times the shortest duration."""

BYTES_PER_QUERY = 500
BYTES_PER_FURTHER_SAMPLE = 50
"""LoadGen keeps every query in memory before the first one is asked (measured with version 6.0.17: 488 bytes a query
while its list grows, 42 for each further sample of a multi_stream query; an offline sample counts as a query)."""

PREGENERATION_BYTES = 1 << 30
"""The most memory that a test's queries may take."""


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """What a short first run measured: seconds a query, and samples per second. Each is None where not measured."""

    latency: float | None = None
    rate: float | None = None


class Test(msgspec.Struct, frozen=True, kw_only=True):
    """One LoadGen test. Times are in seconds; a limit of 0 does not bind.

    `samples` is the size of the query sample library and `loaded_samples` how many of them a performance test draws
    from (0: all). `rate` is in queries per second (server, interactive); `expected_latency` in seconds a query
    (single_stream, multi_stream) and `expected_rate` in samples per second (offline) size LoadGen's list of queries.
    `latency_limits` are those of the p99 in server and interactive. `even` has every sample asked equally often
    (LoadGen's `sample_concatenate_permutation`; it cannot in multi_stream), for which every listed query is asked.
    `draw` says which samples are asked: at random, each once, or always
    `same_index`. `logged_samples` is about how many answers a performance test writes to the accuracy log.
    `most_waiting` ends a rated test early, as INVALID, once so many queries wait for their answer.
    """

    __test__ = False  # for pytest, which takes any class named Test... for one of its own

    scenario: TestScenario
    mode: Literal["performance", "accuracy"]
    token_latencies: bool
    samples: int
    loaded_samples: int = 0
    least_seconds: float = 0.0
    least_queries: int = 1
    most_seconds: float = 0.0
    most_queries: int = 0
    rate: float | None = None
    expected_latency: float | None = None
    expected_rate: float | None = None
    latency_limits: Limits | None = None
    even: bool = True
    draw: Literal["random", "unique", "same"] = "random"
    same_index: int = 0
    logged_samples: int = 0
    most_waiting: int = 0
    seeds: Seeds = SEEDS

    @property
    def samples_per_query(self) -> int:
        """Samples of one query; offline, which asks all its samples in one, counts as 1 here."""
        return SAMPLES_PER_QUERY if self.scenario == "multi_stream" else 1


def performance_test(
    case: Case, rules: Profile, *, samples: int, rate: float | None = None, hints: Hints | None = None
) -> Test:
    """The test that a case's profile asks for; `samples` is the size of the library, `rate` in queries per second.

    Raises `UsageError` where a hint or the rate is missing, and where `check` does.
    """
    scenario = _scenario(case)
    hints = hints or Hints()
    allowed = limits(case.workload, scenario)
    test = Test(
        scenario=scenario,
        mode="performance",
        token_latencies=case.phase == "serving",
        samples=samples,
        least_seconds=max(rules.least_seconds, _seconds_that_show(allowed, rules)),
        least_queries=rules.least_queries[scenario],
        rate=rate,
        expected_latency=_scaled(hints.latency, LATENCY_MARGINS.get(scenario)),
        expected_rate=_scaled(hints.rate, RATE_MARGIN if scenario == "offline" else None),
        latency_limits=allowed,
        even=scenario != "multi_stream",
    )
    check(test)
    return test


def _seconds_that_show(allowed: Limits | None, rules: Profile) -> float:
    """How long arrivals must last for an overload of the search's precision to show.

    A system that is asked for 1 + p times what it can do falls behind by p seconds each second. In a shorter test than
    this its last answers are late, but not yet later than the limit.
    """
    return 0.0 if allowed is None else max(allowed.ttft, allowed.answer) / rules.search_precision


def accuracy_test(case: Case, *, samples: int) -> Test:
    """Every sample once, answers logged, nothing timed: asked all at once, so that it takes the least time."""
    _scenario(case)
    return Test(scenario="offline", mode="accuracy", token_latencies=case.phase == "serving", samples=samples)


def calibration_test(case: Case, *, samples: int, queries: int) -> Test:
    """A short first run of `queries` queries, whose speed sizes the real one (`hints_of`); never a result itself.

    Rated scenarios are calibrated by an offline run, which bounds the rate that may be asked of them.
    """
    scenario = _scenario(case)
    if scenario in RATED:
        scenario = "offline"
    return Test(
        scenario=scenario,
        mode="performance",
        token_latencies=case.phase == "serving",
        samples=samples,
        least_queries=queries,
        most_queries=0 if scenario == "offline" else queries,
        expected_latency=None if scenario == "offline" else 1.0,
        expected_rate=1.0 if scenario == "offline" else None,
        even=False,
    )


def listed(test: Test) -> tuple[int, int]:
    """How many queries LoadGen will list before the first one, and how many samples these have altogether.

    As in its `GenerateQueries`, rounded up for the padding that `even` brings and for the luck of arrivals.
    """
    pool = test.loaded_samples or test.samples
    if test.mode == "accuracy" or test.draw != "random":
        queries = math.ceil(test.samples / test.samples_per_query)
        return queries, queries * test.samples_per_query
    if test.scenario == "offline":
        samples = max(test.least_queries, math.ceil(1.1 * test.least_seconds * (test.expected_rate or 0)))
        return 1, _padded(samples, pool, test.even)
    if test.scenario in RATED:
        # Arrivals are Poisson: their number varies by its square root.
        mean = test.least_seconds * (test.rate or 0)
        queries = math.ceil(mean + 5 * math.sqrt(mean))
    else:
        queries = math.ceil(2 * test.least_seconds / (test.expected_latency or math.inf))
    queries = _padded(max(test.least_queries, queries) + 1, pool, test.even)
    return queries, queries * test.samples_per_query


def check(test: Test) -> None:
    """Refuse, before anything starts, what LoadGen would end as INVALID, crash on, or fill the memory with.

    Raises `UsageError` with the numbers that clash.
    """
    _check_sizes(test)
    if test.mode == "performance":
        _check_load(test)
    queries, samples = listed(test)
    offline = test.scenario == "offline"
    needed = samples * BYTES_PER_QUERY
    if not offline:
        needed = queries * BYTES_PER_QUERY + (samples - queries) * BYTES_PER_FURTHER_SAMPLE
    if needed > PREGENERATION_BYTES:
        raise UsageError(
            f"{test.scenario}: LoadGen would list {samples if offline else queries:,}"
            f" {'samples' if offline else 'queries'} before the first one, about {needed / 2**20:,.0f} MiB; the most is"
            f" {PREGENERATION_BYTES / 2**20:,.0f} MiB: ask for fewer seconds or queries, or correct the hint"
            f" (expected_latency {test.expected_latency}, expected_rate {test.expected_rate}, rate {test.rate})"
        )


def shortfalls(test: Test, rules: Profile) -> list[str]:
    """Where a test asks for less than its profile: one sentence each, with both numbers; empty where it does not."""
    found = []
    if test.least_seconds < rules.least_seconds:
        found.append(
            f"too short: the test lasts {test.least_seconds:g} s and profile {rules.name} asks for at least"
            f" {rules.least_seconds:g} s"
        )
    if 0 < test.most_seconds < rules.least_seconds:
        found.append(
            f"too short: the test ends after {test.most_seconds:g} s and profile {rules.name} asks for at least"
            f" {rules.least_seconds:g} s"
        )
    least = rules.least_queries[test.scenario]
    if test.least_queries < least:
        found.append(
            f"too few queries: the test asks {test.least_queries} and profile {rules.name} at least {least} in"
            f" {test.scenario}"
        )
    return found


def _scenario(case: Case) -> TestScenario:
    if not case.scenario:
        raise UsageError(f"case {case.id}: phase {case.phase} has no scenario, so LoadGen cannot drive it")
    return case.scenario


def _scaled(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else value * factor


def _padded(count: int, pool: int, even: bool) -> int:
    return math.ceil(count / pool) * pool if even else count


def _check_sizes(test: Test) -> None:
    if test.samples < 1:
        raise UsageError(f"{test.scenario}: the library has {test.samples} samples; it needs at least 1")
    if not 0 <= test.loaded_samples <= test.samples:
        raise UsageError(
            f"{test.scenario}: loaded_samples is {test.loaded_samples}; the library has {test.samples} (0 loads all)"
        )
    if test.draw == "same" and not 0 <= test.same_index < (test.loaded_samples or test.samples):
        raise UsageError(f"{test.scenario}: same_index {test.same_index} is outside the {test.samples} samples")
    if test.least_queries < 1:
        raise UsageError(f"{test.scenario}: least_queries is {test.least_queries}; it must be at least 1")
    if 0 < test.most_queries < test.least_queries:
        raise UsageError(
            f"{test.scenario}: most_queries {test.most_queries} is below least_queries {test.least_queries};"
            " no run can meet both"
        )
    if 0 < test.most_seconds < test.least_seconds:
        raise UsageError(
            f"{test.scenario}: most_seconds {test.most_seconds:g} is below least_seconds {test.least_seconds:g};"
            " no run can meet both"
        )


def _check_load(test: Test) -> None:
    needed = {
        "rate": (test.rate, test.scenario in RATED, "queries per second"),
        "expected_latency": (test.expected_latency, test.scenario.endswith("_stream"), "seconds a query"),
        "expected_rate": (test.expected_rate, test.scenario == "offline", "samples per second"),
    }
    for name, (value, wanted, unit) in needed.items():
        if wanted and (value is None or not (0 < value < math.inf)):
            raise UsageError(f"{test.scenario}: {name} is {value}; it must be a positive number of {unit}")
        if not wanted and value is not None:
            raise UsageError(f"{test.scenario}: {name} is {value}; this scenario has none, leave it out")
    if test.scenario in RATED and test.latency_limits is None:
        raise UsageError(f"{test.scenario}: latency_limits is missing; what is a valid answer depends on it")
