"""Summation trees: any tree is recovered from the counts that masks would show, and named by its shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.conformance.passport import tree as trees
from trnbench.conformance.passport.order import block_of


@st.composite
def summation_trees(draw: st.DrawFn) -> trees.Tree:
    """Random trees over shuffled terms, nodes of two to four children, children in the order of their first leaf."""
    terms = draw(st.integers(2, 14))
    nodes: list[trees.Tree] = list(draw(st.permutations(range(terms))))
    while len(nodes) > 1:
        size = draw(st.integers(2, min(4, len(nodes))))
        chosen = sorted(draw(st.permutations(range(len(nodes))))[:size], reverse=True)
        joined = tuple(sorted((nodes.pop(index) for index in chosen), key=lambda node: min(trees.leaves(node))))
        nodes.append(joined)
    return nodes[0]


def evaluated(tree: trees.Tree, values: np.ndarray) -> np.float32:
    """What an adder with this tree returns: a node aligns its terms with the largest and cuts off what sticks out."""
    if isinstance(tree, int):
        return np.float32(values[tree])
    parts = [float(evaluated(child, values)) for child in tree]
    _, exponent = np.frexp(max(parts, key=abs))
    quantum = 2.0 ** (exponent - 24)
    return np.float32(sum(np.trunc(part / quantum) for part in parts) * quantum)


@given(summation_trees())
def test_any_tree_is_recovered_from_sums(tree: trees.Tree) -> None:
    terms = len(trees.leaves(tree))
    columns = trees.masked_columns(terms, trees.pairs(terms), 1.0, 2.0**127)
    sums = np.array([evaluated(tree, column) for column in columns.T], dtype=np.float64)
    counts = trees.counts_from_sums(terms, sums, 1.0)
    assert counts is not None
    assert trees.tree_from_counts(counts) == tree


@given(summation_trees())
def test_counts_and_trees_are_inverse(tree: trees.Tree) -> None:
    counts = trees.counts_of(tree, len(trees.leaves(tree)))
    assert trees.tree_from_counts(counts) == tree


@given(summation_trees(), st.data())
def test_counts_of_no_tree_are_refused(tree: trees.Tree, data: st.DataObject) -> None:
    terms = len(trees.leaves(tree))
    counts = trees.counts_of(tree, terms)
    first, second = data.draw(st.sampled_from(trees.pairs(terms)))
    changed = data.draw(st.integers(2, terms).filter(lambda count: count != counts[first, second]))
    counts[first, second] = counts[second, first] = changed
    found = trees.tree_from_counts(counts)
    # Another count may belong to another tree, but then to exactly that one.
    assert found is None or np.array_equal(trees.counts_of(found, terms), counts)
    assert found != tree


def test_a_count_that_is_none_is_refused() -> None:
    assert trees.counts_from_sums(3, np.array([1.0, 0.5, 0.0]), 1.0) is None
    assert trees.counts_from_sums(3, np.array([1.0, np.nan, 0.0]), 1.0) is None


def chain(terms: list[int]) -> trees.Tree:
    tree: trees.Tree = terms[0]
    for term in terms[1:]:
        tree = (tree, term)
    return tree


def in_pairs(nodes: list[trees.Tree]) -> trees.Tree:
    while len(nodes) > 1:
        nodes = [tuple(nodes[index : index + 2]) for index in range(0, len(nodes), 2)]
    return nodes[0]


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (chain(list(range(8))), "sequential"),
        (in_pairs(list(range(8))), "pairwise"),
        ((0, 1, 2, 3), "sequential, up to 4 terms in one addition"),
        (in_pairs([chain(list(range(k, 32, 4))) for k in range(4)]), "4 chains of 8 terms, stride 4, joined in pairs"),
        (
            (((chain([0, 8, 16]), chain([1, 9, 17])), chain([2, 10, 18])), chain([3, 11, 19])),
            "4 chains of 3 terms, stride 8, joined one after another",
        ),
        ((((0, (1, 2)), (3, 4)), 5), "irregular, depth 4"),
    ],
)
def test_shapes_have_names(tree: trees.Tree, words: str) -> None:
    assert trees.describe(tree) == words


def test_a_tree_as_text() -> None:
    assert trees.text(((0, 2), (1, 3, 4))) == "((0+2)+(1+3+4))"
    assert trees.depth(((0, 2), (1, 3, 4))) == 2
    assert trees.fan_in(((0, 2), (1, 3, 4))) == 3


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (list(range(2, 257)), "one chain"),
        ([2, 4, 8, 16, 32, 64, 128, 256], "pairwise"),
        ([*range(2, 33), *range(64, 257, 32)], "blocks of 32 terms"),
        ([*range(2, 101), 200, 256], "blocks of 100 terms"),
        ([*range(2, 33), 64, 128, 256], "blocks of 32 terms, joined in pairs"),
        ([*range(2, 129), 256], "two parts, the first 128 terms"),
        ([3, 5, 7, 256], "irregular, 4 sizes"),
    ],
)
def test_blocks_have_names(sizes: list[int], words: str) -> None:
    assert block_of(sizes, 256) == words
