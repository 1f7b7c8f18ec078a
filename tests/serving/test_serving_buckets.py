"""Buckets hold every size a case can ask for, and in compiled mode they stay few."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trnbench.case import Case, case_from
from trnbench.serving.buckets import ALIGNMENT, LARGEST_GROUP, MOST_COMPILED, one_at_a_time, plan, smallest
from trnbench.status import CaseError, Status


def a_case(batch: int, sequence: int, new_tokens: int, mode: str) -> Case:
    phase, scenario = ("serving", "server") if new_tokens else ("scoring", "offline")
    return case_from(
        {
            "suite": "test",
            "workload": "nano",
            "phase": phase,
            "scenario": scenario,
            "profile": "quick",
            "precision": "fp32",
            "mode": mode,
            "tier": "smoke",
            "batch": batch,
            "sequence": sequence,
            "new_tokens": new_tokens,
        }
    )


shapes = st.builds(
    a_case,
    st.integers(1, 300),
    st.integers(1, 5000),
    st.integers(2, 3000) | st.just(0),
    st.sampled_from(["eager", "compiled"]),
)


@given(shapes)
@example(a_case(1, 1, 2, "compiled"))
@example(a_case(300, 5000, 0, "eager"))
def test_the_largest_bucket_is_exactly_what_the_case_allows(case: Case) -> None:
    buckets = plan(case)
    for sizes in (buckets.rows, buckets.contexts, buckets.prompts, buckets.lengths):
        assert list(sizes) == sorted(set(sizes))
        assert all(size >= 1 for size in sizes)
        assert all(size % ALIGNMENT == 0 for size in sizes[:-1]) or sizes in (buckets.rows, buckets.prompts)
    assert buckets.lengths[-1] == case.sequence
    if case.new_tokens:
        assert buckets.rows[-1] == case.batch
        assert buckets.contexts[-1] == case.sequence + case.new_tokens
        assert buckets.prompts[-1] == min(case.batch, LARGEST_GROUP)
    else:
        assert buckets.rows == buckets.contexts == ()
        assert buckets.prompts[-1] == case.batch


@given(shapes)
def test_compiled_shapes_are_few(case: Case) -> None:
    buckets = plan(case)
    if case.mode == "compiled":
        assert len(buckets.decode_shapes()) <= MOST_COMPILED
        assert len(buckets.prefill_shapes()) <= MOST_COMPILED


@given(shapes)
def test_one_at_a_time_has_the_same_lengths(case: Case) -> None:
    buckets, alone = plan(case), one_at_a_time(plan(case))
    assert (alone.contexts, alone.lengths) == (buckets.contexts, buckets.lengths)
    assert alone.prompts == (1,)
    assert alone.rows == ((1,) if case.new_tokens else ())


def test_sizes_of_a_small_case() -> None:
    eager, compiled = plan(a_case(12, 64, 32, "eager")), plan(a_case(12, 64, 32, "compiled"))
    assert (eager.rows, eager.contexts) == ((1, 2, 4, 8, 12), (48, 64, 80, 96))
    assert (eager.prompts, eager.lengths) == ((1, 2, 4), (40, 48, 56, 64))
    assert (compiled.rows, compiled.contexts, compiled.prompts, compiled.lengths) == ((1, 4, 12), (96,), (1, 4), (64,))
    assert plan(a_case(12, 512, 256, "compiled")).contexts == (512, 768)


@given(st.lists(st.integers(1, 100), min_size=1, unique=True).map(sorted), st.integers(1, 100))
def test_the_smallest_bucket_that_is_large_enough(sizes: list[int], needed: int) -> None:
    enough = [size for size in sizes if size >= needed]
    if enough:
        assert smallest(sizes, needed, "rows") == min(enough)
    else:
        with pytest.raises(CaseError, match=f"rows: {needed} is more than the largest warmed bucket, {sizes[-1]}") as e:
            smallest(sizes, needed, "rows")
        assert e.value.status is Status.INVALID
