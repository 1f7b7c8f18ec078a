"""The token source: the same tokens everywhere, and floors that are what the best predictor really reaches."""

from __future__ import annotations

import hashlib
import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.status import UsageError
from trnbench.workloads.data import NOISE_ONE_IN, token_batch
from trnbench.workloads.source import TokenSource, whole_batch

small = st.tuples(st.integers(2, 5), st.integers(1, 4))


def probability(source: TokenSource, table: int, sequence: tuple[int, ...]) -> float:
    """Of a sequence under one table, the first token given: a product over its pairs, by the definition."""
    result = 1.0
    for before, after in itertools.pairwise(sequence):
        named = int(source.rows[table, before]) == after
        result *= (1 - 1 / NOISE_ONE_IN) * named + 1 / NOISE_ONE_IN / source.symbols
    return result


@given(small, st.integers(1, 4), st.integers(0, 2**64 - 1))
def test_the_filter_is_the_ratio_of_enumerated_probabilities(size: tuple[int, int], length: int, seed: int) -> None:
    source = TokenSource(*size)
    sequences = source.sequences("train", seed, 0, 3, length)
    losses = source.bayes_losses(sequences)
    for row, sequence in zip(losses, sequences.tolist(), strict=True):
        whole = [
            sum(probability(source, table, tuple(sequence[:end])) for table in range(source.tables)) / source.tables
            for end in range(1, length + 2)
        ]
        expected = [-math.log(after / before) for before, after in itertools.pairwise(whole)]
        np.testing.assert_allclose(row, expected, rtol=1e-12)


@settings(max_examples=15)
@given(small, st.integers(1, 3))
def test_the_expected_floor_lies_within_its_bounds(size: tuple[int, int], length: int) -> None:
    """Exactly, over every sequence that there is, weighted by its probability."""
    source = TokenSource(*size)
    every = np.array(list(itertools.product(range(source.symbols), repeat=length + 1)), dtype=np.int64)
    weights = np.array(
        [
            sum(probability(source, table, tuple(row)) for table in range(source.tables)) / source.tables
            for row in every.tolist()
        ]
    )
    assert weights.sum() == pytest.approx(source.symbols)
    weights /= weights.sum()
    least, most = source.expected_floor(length)
    assert least - 1e-12 <= float(weights @ source.bayes_losses(every).mean(axis=1)) <= most + 1e-12
    bigram = float(weights @ source.bigram_losses(every).mean(axis=1))
    assert bigram == pytest.approx(source.expected_bigram_floor)
    assert source.entropy_rate == pytest.approx(most - math.log(source.tables) / length)


def test_floors_are_in_order_and_near_what_is_expected() -> None:
    source = TokenSource(16, 4)
    sequences = source.sequences("evaluation", 0, 0, 1000, 32)
    floor, bigram = source.floor(sequences), source.bigram_floor(sequences)
    assert floor < bigram < source.unigram_floor == math.log(16)
    least, most = source.expected_floor(32)
    assert least - 0.02 < floor < most + 0.02
    assert bigram == pytest.approx(source.expected_bigram_floor, abs=0.02)


def test_no_predictor_without_the_hidden_table_beats_the_floor() -> None:
    """Knowing the table is below the floor on average; a wrong prior, forgetting or a wrong noise are all above."""
    source = TokenSource(16, 4)
    hidden = TokenSource(16, 4)
    sequences = source.sequences("evaluation", 0, 0, 1000, 24)
    floor = source.floor(sequences)

    told = []
    for table in range(4):
        hidden.rows, hidden.tables = source.rows[table : table + 1], 1
        told.append(hidden.bayes_losses(sequences).mean(axis=1))
    assert np.min(told, axis=0).mean() < floor

    log_hit, log_miss = source._log_probabilities()
    for forgetting in (0.5, 0.9):
        assert filtered(source, sequences, log_hit, log_miss, forgetting) > floor
    assert filtered(source, sequences, log_hit, log_miss, 1.0) == pytest.approx(floor)
    noisier = (math.log(0.5 + 0.5 / 16), math.log(0.5 / 16))
    assert filtered(source, sequences, *noisier, 1.0) > floor

    hidden.rows, hidden.tables = source.rows[[0, 1, 2, 3, 3]], 5
    assert hidden.floor(sequences) > floor


def filtered(
    source: TokenSource, sequences: npt.NDArray[np.int64], log_hit: float, log_miss: float, forgetting: float
) -> float:
    """Mean loss of a filter in which evidence loses weight by a factor at each position."""
    belief = np.zeros((sequences.shape[0], source.tables))
    total = 0.0
    for before, after in itertools.pairwise(sequences.T):
        belief -= np.logaddexp.reduce(belief, axis=1)[:, None]
        named = source.rows[:, before].T
        evidence = np.where(named == after[:, None], log_hit, log_miss)
        total -= float(np.logaddexp.reduce(belief + evidence, axis=1).mean())
        belief = forgetting * (belief + evidence)
    return float(total / (sequences.shape[1] - 1))


def test_one_token_of_context_tells_nothing_but_the_bigram() -> None:
    """At its first position the best predictor is the mixture of all tables; later it is better."""
    source = TokenSource(16, 4)
    sequences = source.sequences("evaluation", 0, 0, 500, 12)
    losses, bigram = source.bayes_losses(sequences), source.bigram_losses(sequences)
    np.testing.assert_allclose(losses[:, 0], bigram[:, 0])
    assert losses[:, -1].mean() < losses[:, 0].mean() - 0.5


def test_single_tokens_are_uniform_and_tables_are_permutations() -> None:
    source = TokenSource(16, 4)
    assert (np.sort(source.rows, axis=1) == np.arange(16)).all()
    assert len({row.tobytes() for row in source.rows}) == 4
    counts = np.bincount(source.sequences("train", 1, 0, 2000, 16)[:, -1], minlength=16)
    # 15 degrees of freedom; a fair source is above 44 once in 10 000 seeds, and this seed is fixed.
    assert ((counts - 125) ** 2 / 125).sum() < 44


def test_tokens_are_the_same_on_every_machine() -> None:
    """Pinned once; another platform, Python or NumPy that gives other tokens makes records incomparable."""
    source = TokenSource(32, 8)
    digest = hashlib.sha256(source.rows.astype("<i8").tobytes())
    for purpose, seed in (("train", 3), ("train", 2**63 + 1), ("evaluation", 0)):
        digest.update(source.sequences(purpose, seed, 5, 4, 64).astype("<i8").tobytes())  # type: ignore[arg-type]
    assert digest.hexdigest()[:16] == "8beb8b55b63ad159"


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.integers(1, 4), st.integers(1, 4))
def test_a_sequence_depends_on_its_place_and_not_on_the_batch(seed: int, first: int, before: int, after: int) -> None:
    source = TokenSource(5, 3)
    whole = source.sequences("train", seed, first, before + after, 6)
    parts = [
        source.sequences("train", seed, first, before, 6),
        source.sequences("train", seed, first + before, after, 6),
    ]
    assert (np.concatenate(parts) == whole).all()


def test_seeds_places_and_purposes_never_coincide() -> None:
    """Also where integers of a key cross 32 bits, which NumPy would join into one another."""
    source = TokenSource(16, 4)
    seen: set[bytes] = set()
    made = 0
    for purpose in ("train", "evaluation"):
        for seed in (0, 1, 2, 2**32, 2**32 + 1, 2**63):
            for first in (0, 2**32, 2**33):
                rows = source.sequences(purpose, seed, first, 20, 24)
                seen |= {row.tobytes() for row in rows}
                made += len(rows)
    assert len(seen) == made
    other = token_batch(16, 8, 24, 0)
    assert not seen & {row.tobytes() for row in np.concatenate([other.tokens, other.targets[:, -1:]], axis=1)}


def test_a_batch_is_whole() -> None:
    sequences = TokenSource(16, 4).sequences("train", 0, 0, 3, 8)
    batch = whole_batch(sequences)
    assert (batch.tokens == sequences[:, :-1]).all()
    assert (batch.targets == sequences[:, 1:]).all()
    assert batch.lengths.tolist() == [8, 8, 8]
    assert batch.real_tokens == batch.padded_tokens == 24


@pytest.mark.parametrize(("symbols", "tables", "named"), [(1, 1, "symbols is 1"), (2, 0, "tables is 0")])
def test_impossible_sources_are_refused(symbols: int, tables: int, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        TokenSource(symbols, tables)


@pytest.mark.parametrize("place", [(-1, 0, 1, 1), (2**64, 0, 1, 1), (0, -1, 1, 1), (0, 0, 0, 1), (0, 0, 1, 0)])
def test_impossible_sequences_are_refused(place: tuple[int, int, int, int]) -> None:
    with pytest.raises(UsageError, match="must be"):
        TokenSource(4, 2).sequences("train", *place)
