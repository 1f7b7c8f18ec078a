"""Audits of a served system: signs that its speed was not won by answering otherwise than it says.

The purposes are those of the compliance tests of the MLPerf(R) Inference benchmarks (mlcommons/inference, compliance:
TEST01 outputs in performance mode, TEST04 no cache of answers, TEST06 first token and length, TEST09 mean length);
the methods are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trnbench.records.schema import LENGTH_BAND, Check

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from trnbench.serving.explain import Said
    from trnbench.serving.log import LoggedAnswer

CACHE_MARGIN = 1.10
"""A repetition may be as much faster as TEST04 allows: 10 %."""

CACHE_CONFIDENCE = 0.99
RESAMPLES = 2000
BOOTSTRAP_SEED = 20261130

PERFORMANCE_OUTPUTS = "serving/performance-outputs"
REPEATED_SAMPLES = "serving/repeated-samples"
WHOLE_ANSWERS = "serving/whole-answers"
OUTPUT_LENGTH = "serving/output-length"


class Outputs(NamedTuple):
    """Answers of performance tests beside the accuracy test's to the same samples."""

    compared: int
    different: int
    unexplained: int
    """Of the `different` ones, those that the variance between batch shapes does not explain."""
    first: str
    """Where the first unexplained one differs, in words; empty where there is none."""


def performance_outputs(outputs: Outputs) -> Check:
    """TEST01: what LoadGen logged while it timed is what the accuracy test gave; nothing logged proves nothing."""
    where = outputs.first
    if not outputs.compared:
        where = "LoadGen logged no answer of a timed test"
    elif outputs.different > outputs.unexplained:
        explained = outputs.different - outputs.unexplained
        note = f"{explained} of {outputs.compared} differ where the top two logits are as close as batch shapes differ"
        where = f"{where}; {note}" if where else note
    return _check(
        PERFORMANCE_OUTPUTS,
        metric="answers of timed tests that differ from the accuracy test's beyond the variance between batch shapes",
        value=float(outputs.unexplained),
        limit=0.0,
        holds=bool(outputs.compared) and not outputs.unexplained,
        reference=f"the accuracy test, {outputs.compared} answers compared",
        where=where,
    )


def repeated_samples(pairs: Sequence[tuple[float, float]]) -> Check:
    """TEST04: a sample is not answered faster the second time.

    `pairs` hold seconds of samples that nobody had asked for before, each asked twice in a row: so both times have the
    same prompt, length and state of the machine, and a cache that earlier tests have filled helps neither first time.
    The value is the lower end of the bootstrap's confidence range of the median ratio, so that noise alone does not
    fail.
    """
    ratio, low = speedup(pairs)
    return _check(
        REPEATED_SAMPLES,
        metric=f"times as fast at the second time, at least ({CACHE_CONFIDENCE:.0%} sure)",
        value=low,
        limit=CACHE_MARGIN,
        holds=low <= CACHE_MARGIN,
        reference=f"the same sample the first time, {len(pairs)} pairs, median ratio {ratio:.3f}",
        where="" if low <= CACHE_MARGIN else "every sample asked twice in a row",
    )


def speedup(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Median of first over second time, and the value that it exceeds with `CACHE_CONFIDENCE`.

    Bootstrap over pairs (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13: percentile method).
    Raises `ValueError` without pairs or for a time that is not positive.
    """
    times = np.asarray(pairs, dtype=np.float64)
    if times.size == 0 or not (times > 0).all():
        raise ValueError("the comparison needs pairs of positive times")
    ratios = times[:, 0] / times[:, 1]
    draws = np.random.default_rng(BOOTSTRAP_SEED).integers(0, len(ratios), (RESAMPLES, len(ratios)))
    medians = np.median(ratios[draws], axis=1)
    return float(np.median(ratios)), float(np.quantile(medians, 1 - CACHE_CONFIDENCE))


def whole_answers(answers: int, faulty: int, first_fault: str, logged: Sequence[LoggedAnswer]) -> Check:
    """TEST06: answers begin with the token reported first, are as long as counted, and end once.

    `faulty` of the `answers` seen in the system's own process were not whole; LoadGen's log adds what it was told.
    """
    told = [fault for one in logged if (fault := _told_fault(one))]
    faults = faulty + len(told)
    return _check(
        WHOLE_ANSWERS,
        metric="answers with a wrong first token, length or end",
        value=float(faults),
        limit=0.0,
        holds=bool(answers) and not faults,
        reference=f"{answers} answers of timed tests, {len(logged)} of them as LoadGen logged them",
        where=first_fault or (told[0] if told else "") or ("" if answers else "no answer was seen"),
    )


def _told_fault(answer: LoggedAnswer) -> str:
    if answer.first and answer.first != answer.tokens[: len(answer.first)]:
        return f"sample {answer.index}: LoadGen was told first token {answer.first[0]} and answer {answer.tokens[:1]}"
    if answer.count is not None and answer.count != len(answer.tokens):
        return f"sample {answer.index}: LoadGen was told {answer.count} tokens and given {len(answer.tokens)}"
    return ""


def output_length(produced: int, expected: int) -> Check:
    """TEST09: answers of the timed tests are as long on average as the accuracy test's to the same samples.

    Both are tokens over all samples that the timed tests asked for.
    """
    deviation = abs(produced - expected) / expected if expected else float("nan")
    return _check(
        OUTPUT_LENGTH,
        metric="relative deviation of the mean output length",
        value=deviation,
        limit=LENGTH_BAND,
        holds=deviation <= LENGTH_BAND,
        reference="the accuracy test's answers to the same samples",
        where="" if deviation <= LENGTH_BAND else f"{produced} tokens produced, {expected} expected",
    )


def compare_outputs(
    reference: Mapping[int, Sequence[int]], logged: Sequence[LoggedAnswer], explained: Container[Said]
) -> Outputs:
    """Count how `logged` answers differ from those of `reference` to the same samples.

    `explained` holds the answers that the variance between batch shapes accounts for (`explain.explained_answers`).
    """
    different = [one for one in logged if list(one.tokens) != list(reference.get(one.index, ()))]
    unexplained = [one for one in different if (one.index, tuple(one.tokens)) not in explained]
    first = ""
    if unexplained:
        one = unexplained[0]
        at = first_difference(reference.get(one.index, ()), one.tokens)
        first = f"sample {one.index}, token {at} of its answer, counted from 0"
    return Outputs(len(logged), len(different), len(unexplained), first)


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Position of the first token that differs, which may be the end of the shorter one; None where none does."""
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return None if len(left) == len(right) else min(len(left), len(right))


def _check(name: str, *, metric: str, value: float, limit: float, holds: bool, reference: str, where: str) -> Check:
    return Check(
        check=name,
        level="generation",
        metric=metric,
        value=value,
        limit=limit,
        verdict="pass" if holds else "fail",
        reference=reference,
        where=where,
    )
