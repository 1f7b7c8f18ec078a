"""Each audit against a system that cheats in the way it looks for, and against honest ones, noisy and rounding."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from serving_world import STOP, FakeLoadGen, Script, script_of, served_case, spin, stages_of

from trnbench.backends.cpu import CpuBackend
from trnbench.serving import audit, explain
from trnbench.serving.build import build_system
from trnbench.serving.divergence import ROUNDING, Agreement, Divergence
from trnbench.serving.log import LoggedAnswer
from trnbench.serving.measure import library
from trnbench.serving.observe import answer_fault
from trnbench.serving.scoring import Scorer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trnbench.records.schema import Check


def audited(
    folder: Path, patch: pytest.MonkeyPatch, kind: type[Script], stop_token: int | None = None, **changes: object
) -> dict[str, Check]:
    """The audits of one offline round of a scripted system, by name."""
    FakeLoadGen().install(patch)
    case = served_case(**changes)
    stages = stages_of(case, script_of(case, kind, stop_token), folder)
    stages.run(1)
    checks = {check.check: check for check in stages.audit()}
    assert all(check.level == "generation" for check in checks.values())
    return checks


def failed(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.verdict == "fail"}


class Working(Script):
    """Takes a millisecond for every sample it starts on."""

    def work(self, started: Sequence[int]) -> None:
        spin(0.001 * len(started))


class CachesAnswers(Working):
    """Takes no time for a sample that it has been asked before."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._known: set[int] = set()

    def work(self, started: Sequence[int]) -> None:
        super().work([index for index in started if index not in self._known])
        self._known.update(started)


@pytest.mark.parametrize("stop_token", [None, STOP])
def test_an_honest_system_passes_all_audits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_token: int | None
) -> None:
    checks = audited(tmp_path, monkeypatch, Working, stop_token)
    assert set(checks) == {
        audit.PERFORMANCE_OUTPUTS,
        audit.REPEATED_SAMPLES,
        audit.WHOLE_ANSWERS,
        audit.OUTPUT_LENGTH,
    }
    assert not failed(checks)
    assert checks[audit.PERFORMANCE_OUTPUTS].reference == "the accuracy test, 64 answers compared"


def test_an_honest_scoring_system_passes_the_audits_that_concern_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = audited(tmp_path, monkeypatch, OneToken, phase="scoring")
    assert set(checks) == {audit.PERFORMANCE_OUTPUTS, audit.REPEATED_SAMPLES}
    assert not failed(checks)


class OneToken(Working):
    def tokens_of(self, index: int) -> list[int]:
        return super().tokens_of(index)[:1]


def test_cached_answers_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = audited(tmp_path, monkeypatch, CachesAnswers)
    assert failed(checks) == {audit.REPEATED_SAMPLES}
    found = checks[audit.REPEATED_SAMPLES]
    assert found.value is not None
    assert found.value > 2
    assert found.limit == pytest.approx(1.10)


class OtherWhileTimed(Script):
    """Answers otherwise once the accuracy test is over."""

    def tokens_of(self, index: int) -> list[int]:
        tokens = super().tokens_of(index)
        timed = self.answered >= 64
        return [*tokens[:-1], tokens[-1] + 1] if timed and index == 5 else tokens


def test_other_answers_while_timed_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = audited(tmp_path, monkeypatch, OtherWhileTimed)
    assert failed(checks) == {audit.PERFORMANCE_OUTPUTS}
    found = checks[audit.PERFORMANCE_OUTPUTS]
    assert found.value is not None
    assert found.value >= 1
    assert found.limit == 0
    assert found.where.startswith("sample 5, token ")


def test_a_log_without_answers_proves_nothing() -> None:
    check = audit.performance_outputs(audit.compare_outputs({0: [1, 2]}, [], frozenset()))
    assert check.verdict == "fail"
    assert "logged no answer" in check.where


class Shorter(Script):
    """Leaves out the last quarter of every answer once the accuracy test is over, without an end token."""

    def tokens_of(self, index: int) -> list[int]:
        tokens = super().tokens_of(index)
        return tokens[: max(2, 3 * len(tokens) // 4)] if self.answered >= 64 else tokens


def test_shorter_answers_while_timed_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = audited(tmp_path, monkeypatch, Shorter)
    assert failed(checks) == {audit.PERFORMANCE_OUTPUTS, audit.WHOLE_ANSWERS, audit.OUTPUT_LENGTH}
    assert "without an end token" in checks[audit.WHOLE_ANSWERS].where


class Padded(Script):
    """Goes on with end tokens after the end once the accuracy test is over, so that more tokens are counted."""

    def tokens_of(self, index: int) -> list[int]:
        tokens = super().tokens_of(index)
        return [*tokens, STOP] if self.answered >= 64 and tokens[-1] == STOP else tokens


def test_tokens_after_the_end_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = audited(tmp_path, monkeypatch, Padded, STOP)
    assert audit.WHOLE_ANSWERS in failed(checks)
    assert "after its end token" in checks[audit.WHOLE_ANSWERS].where


class WrongFirst(Script):
    def first_of(self, index: int) -> int:
        return super().first_of(index) + (self.answered >= 64)


def test_a_first_token_that_is_not_the_answers_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = audited(tmp_path, monkeypatch, WrongFirst)
    assert failed(checks) == {audit.WHOLE_ANSWERS}
    assert "the first token was" in checks[audit.WHOLE_ANSWERS].where


def test_a_count_that_is_not_the_answers_is_caught() -> None:
    told = [
        LoggedAnswer(index=3, tokens=[1, 2, 3], first=[1], count=4),
        LoggedAnswer(index=4, tokens=[1, 2], first=[], count=None),
    ]
    check = audit.whole_answers(2, 0, "", told)
    assert (check.verdict, check.value) == ("fail", 1.0)
    assert check.where == "sample 3: LoadGen was told 4 tokens and given 3"


ANSWERS = st.lists(st.integers(8, 99), min_size=2, max_size=12)


@given(ANSWERS, st.integers(0, 12))
def test_an_answer_is_whole_at_its_limit_or_with_one_end_token(tokens: list[int], more: int) -> None:
    assert answer_fault(tokens, tokens[0], len(tokens), STOP) == ""
    assert answer_fault(tokens, None, len(tokens), None) == ""
    assert answer_fault([*tokens, STOP], tokens[0], len(tokens) + 1 + more, STOP) == ""
    assert answer_fault([*tokens, STOP, STOP], tokens[0], 99, STOP) != ""
    assert answer_fault(tokens, tokens[0] + 1, len(tokens), STOP) != ""
    assert answer_fault(tokens, tokens[0], len(tokens) - 1, STOP) != ""
    assert answer_fault(tokens, tokens[0], len(tokens) + 1, STOP) != ""
    assert answer_fault([], None, 4, STOP) != ""


def noisy_pairs(seed: int, cached: float, noise: float, burst: float) -> list[tuple[float, float]]:
    """32 pairs around 10 ms, the second `cached` times as fast; each time up to `noise` slower, and bursts of load."""
    draw = random.Random(seed)
    pairs = []
    for _ in range(32):
        load = 1 + 4 * (draw.random() < burst)
        pairs.append((0.01 * load * (1 + noise * draw.random()), 0.01 * load / cached * (1 + noise * draw.random())))
    return pairs


@given(st.integers(0, 2**32), st.floats(0, 0.3), st.floats(0, 0.5))
def test_noise_alone_does_not_fail_the_audit_of_caching(seed: int, noise: float, burst: float) -> None:
    assert audit.repeated_samples(noisy_pairs(seed, 1.0, noise, burst)).verdict == "pass"


@given(st.integers(0, 2**32), st.floats(0, 0.3), st.floats(0, 0.5))
def test_a_cache_is_seen_through_noise(seed: int, noise: float, burst: float) -> None:
    check = audit.repeated_samples(noisy_pairs(seed, 2.0, noise, burst))
    assert check.verdict == "fail"


@given(st.floats(1.0, 1.09))
def test_what_the_margin_allows_passes_and_a_little_more_does_not(speedup: float) -> None:
    assert audit.repeated_samples([(speedup, 1.0)] * 32).verdict == "pass"
    assert audit.repeated_samples([(speedup + 0.11, 1.0)] * 32).verdict == "fail"


def test_a_median_above_the_margin_that_is_not_sure_passes() -> None:
    """Half of the pairs are 1.3 times as fast and half are slower: too few of them to be sure of either."""
    check = audit.repeated_samples([(1.3, 1.0), (0.95, 1.0)] * 16)
    assert check.verdict == "pass"
    assert check.value == pytest.approx(0.95)
    assert "median ratio 1.125" in check.reference


@pytest.mark.parametrize("pairs", [[], [(0.0, 1.0)], [(1.0, 0.0)]])
def test_times_that_are_none_are_refused(pairs: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="positive"):
        audit.speedup(pairs)


def logged(index: int, tokens: list[int]) -> LoggedAnswer:
    return LoggedAnswer(index=index, tokens=tokens, first=tokens[:1], count=len(tokens))


def test_a_divergence_within_the_batch_variance_is_counted_and_accepted() -> None:
    reference = {0: [1, 2, 3], 1: [4, 5, 6]}
    answers = [logged(0, [1, 2, 9]), logged(1, [4, 5, 6]), logged(1, [4, 7, 6])]
    found = audit.compare_outputs(reference, answers, {(0, (1, 2, 9))})
    assert found[:3] == (3, 2, 1)
    assert found.first == "sample 1, token 1 of its answer, counted from 0"
    accepted = audit.performance_outputs(audit.compare_outputs(reference, answers[:2], {(0, (1, 2, 9))}))
    assert accepted.verdict == "pass"
    assert accepted.where.startswith("1 of 2 differ where the top two logits are as close")


@pytest.fixture
def cpu() -> CpuBackend:
    torch.set_num_threads(1)
    backend = CpuBackend()
    backend.open()
    return backend


def test_an_engine_explains_by_its_own_logits(cpu: CpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real engine: a made-up answer is far outside the batch variance, and what is accepted is handed on."""
    case = served_case(batch=2, sequence=8, new_tokens=4)
    samples = library(case, 8)
    with cpu.numerics("fp32"):
        engine = build_system(case, cpu, samples)
        engine.submit([])
        answers = {0: [1, 2], 1: [3, 4]}
        wrong = [logged(0, [1, 9]), logged(1, [3, 4]), logged(0, [8, 2])]
        assert explain.explained_answers(case, cpu, engine, samples, reference=answers, logged=wrong) == set()
        agreement = Agreement(identical=0, accepted=[Divergence(0, 1, 0.0)], faults=[], batch_variance=1.0)
        monkeypatch.setattr(explain, "compare_answers", lambda *_: agreement)
        found = explain.explained_answers(case, cpu, engine, samples, reference=answers, logged=wrong)
    assert found == {(0, (1, 9)), (0, (8, 2))}


def test_a_scorer_explains_by_its_own_logits(cpu: CpuBackend) -> None:
    """The token that the model predicts has no margin; another one has more than shapes change."""
    case = served_case(phase="scoring", batch=2)
    samples = library(case, 8)
    with cpu.numerics("fp32"):
        scorer = build_system(case, cpu, samples)
        assert isinstance(scorer, Scorer)
        logits_of = explain._logits_in_every_shape(case, cpu, scorer, samples)
        likeliest = int(logits_of(0)[0].argmax())
        same = explain._near(logits_of(0), likeliest, likeliest, ROUNDING["fp32"])
        faulty = [*logits_of(0), logits_of(0)[0] + 1.0]
        broken = explain._near(faulty, likeliest, likeliest, ROUNDING["fp32"])
        said = [LoggedAnswer(index=0, tokens=[(likeliest + 1) % 4096], first=[], count=None)]
        far = explain.explained_answers(case, cpu, scorer, samples, reference={0: [likeliest]}, logged=said)
    assert same
    assert not broken, "a shape that computes something else must not excuse itself by how much it differs"
    assert far == set()


def test_nothing_explains_another_system(tmp_path: Path) -> None:
    case = served_case()
    system = script_of(case)
    runs = stages_of(case, system, tmp_path).runs
    runs.answers = {0: [1, 2]}
    assert runs.explained(case, [logged(0, [1, 3])]) == set()
