"""Token streams: the same bits everywhere, static shapes, real and padded tokens apart."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.status import UsageError
from trnbench.workloads.data import IGNORED_TARGET, PADDING_TOKEN, TokenBatch, length_set, token_batch

sizes = st.tuples(st.integers(2, 200_000), st.integers(1, 9), st.integers(1, 70), st.integers(0, 2**40))


@given(sizes)
def test_a_batch_is_what_its_lengths_say(size: tuple[int, int, int, int]) -> None:
    """B7: real and padded tokens are counted apart, from the batch itself."""
    vocab_size, batch, sequence, seed = size
    made = token_batch(vocab_size, batch, sequence, seed)
    assert made.tokens.shape == made.targets.shape == (batch, sequence)
    assert made.tokens.dtype == made.targets.dtype == np.int64
    assert made.tokens.min() >= 0
    assert made.tokens.max() < vocab_size
    for tokens, targets, length in zip(made.tokens, made.targets, made.lengths, strict=True):
        assert 1 <= length <= sequence
        assert (tokens[length:] == PADDING_TOKEN).all()
        assert (targets[length:] == IGNORED_TARGET).all()
        assert (targets[: length - 1] == tokens[1:length]).all()
        assert 0 <= targets[length - 1] < vocab_size
    assert made.real_tokens == int((made.targets != IGNORED_TARGET).sum()) == int(made.lengths.sum())
    assert made.padded_tokens == made.tokens.size


@given(sizes)
def test_the_seed_decides_and_the_number_of_real_tokens_does_not_depend_on_it(size: tuple[int, int, int, int]) -> None:
    vocab_size, batch, sequence, seed = size
    first, again = token_batch(vocab_size, batch, sequence, seed), token_batch(vocab_size, batch, sequence, seed)
    assert (first.tokens == again.tokens).all()
    assert (first.targets == again.targets).all()
    assert sorted(first.lengths.tolist(), reverse=True) == length_set(batch, sequence)
    assert token_batch(vocab_size, batch, sequence, seed + 1).real_tokens == first.real_tokens


def test_batches_of_different_lengths_have_one_shape() -> None:
    """A5: the lengths of the rows differ from batch to batch, the shape never does."""
    batches = [token_batch(100, 6, 20, seed) for seed in range(10)]
    assert len({tuple(batch.lengths.tolist()) for batch in batches}) > 1
    assert {(batch.tokens.shape, batch.targets.shape) for batch in batches} == {((6, 20), (6, 20))}


def test_lengths_vary_as_soon_as_there_are_two_sequences() -> None:
    assert length_set(4, 128) == [128, 107, 86, 64]
    assert length_set(1, 128) == [128]
    assert length_set(3, 1) == [1, 1, 1]


def test_bits_are_the_same_on_every_machine() -> None:
    """Pinned once; another platform, Python or NumPy that gives other bits makes records incomparable."""
    batch = token_batch(4096, 8, 64, 0)
    digest = hashlib.sha256()
    for array in (batch.tokens, batch.targets, batch.lengths):
        digest.update(array.astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == "59437b943a884715"


def test_most_tokens_follow_from_their_predecessor() -> None:
    batch = token_batch(4096, 8, 512, 3)
    real = batch.targets != IGNORED_TARGET
    follows = ((5 * batch.tokens + 7) % 4096 == batch.targets)[real].mean()
    assert 0.72 < follows < 0.78


@pytest.mark.parametrize(
    ("field", "arguments"),
    [("vocab_size", (1, 1, 1, 0)), ("batch", (9, 0, 1, 0)), ("sequence", (9, 1, 0, 0)), ("seed", (9, 1, 1, -1))],
)
def test_impossible_sizes_are_refused_by_name(field: str, arguments: tuple[int, int, int, int]) -> None:
    with pytest.raises(UsageError, match=f"token batch: {field} is"):
        token_batch(*arguments)


def test_throughput_of_the_field_report() -> None:
    """B7: 4 x 128 with real lengths 128, 64, 32, 32 in one second is 256 real and 512 padded tokens per second."""
    lengths = np.array([128, 64, 32, 32])
    blank = np.zeros((4, 128), dtype=np.int64)
    batch = TokenBatch(
        tokens=blank, targets=blank, lengths=lengths, real_tokens=int(lengths.sum()), padded_tokens=blank.size
    )
    assert (batch.real_tokens / 1.0, batch.padded_tokens / 1.0) == (256, 512)
