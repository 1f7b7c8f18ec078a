"""Summation trees from counts of surviving units: FPRev's idea (Xie et al., arXiv 2411.00442), written anew.

Put +M and -M, each huge, at terms i and j of a sum whose other terms are 1. Every unit that joins either mask before
the two meet is swallowed; the units outside the least subtree that holds both survive. So n minus the sum is the
number of leaves below the lowest common ancestor of i and j, and these numbers for all pairs determine the tree.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]

Tree: TypeAlias = "int | tuple[Tree, ...]"
"""A leaf is the index of a term; a node has two or more children, those of more than two added in one step."""


def pairs(terms: int) -> list[tuple[int, int]]:
    """All pairs (i, j) with i < j, in the order in which `tree_from_answers` takes their sums."""
    return [(first, second) for first in range(terms) for second in range(first + 1, terms)]


def masked_columns(terms: int, chosen: list[tuple[int, int]], unit: float, mask: float) -> NDArray[np.float64]:
    """The questions: a column of `terms` units for each pair, with +mask and -mask at its two terms."""
    columns = np.full((terms, len(chosen)), unit)
    for column, (first, second) in enumerate(chosen):
        columns[first, column], columns[second, column] = mask, -mask
    return columns


def counts_from_sums(terms: int, sums: NDArray[np.float64], unit: float) -> Counts | None:
    """Leaves below the lowest common ancestor of every pair, [n, n], or None where a sum is no count of units."""
    units = sums / unit
    if not np.isfinite(units).all() or (units != np.rint(units)).any():
        return None
    counts = np.zeros((terms, terms), dtype=np.int64)
    for value, (first, second) in zip(units.tolist(), pairs(terms), strict=True):
        counts[first, second] = counts[second, first] = terms - int(value)
    return counts


def tree_from_counts(counts: Counts) -> Tree | None:
    """The tree that has these counts, or None where none has: a sum whose order depends on its values.

    Children stand in the order of their first leaf.
    """
    tree = _build(list(range(len(counts))), counts)
    if tree is None or not np.array_equal(counts_of(tree, len(counts)), counts):
        return None
    return tree


def _build(members: list[int], counts: Counts) -> Tree | None:
    if len(members) == 1:
        return members[0]
    top = counts[np.ix_(members, members)].max()
    children: list[Tree] = []
    left = members
    while left:
        # Terms that meet the first one below the top node belong to its child.
        child = [term for term in left if term == left[0] or counts[left[0], term] < top]
        if len(child) == len(members):
            return None
        left = [term for term in left if term not in child]
        built = _build(child, counts)
        if built is None:
            return None
        children.append(built)
    return tuple(children)


def counts_of(tree: Tree, terms: int) -> Counts:
    """Leaves below the lowest common ancestor of every pair of terms of `tree`."""
    counts = np.zeros((terms, terms), dtype=np.int64)

    def visit(node: Tree) -> list[int]:
        if isinstance(node, int):
            return [node]
        groups = [visit(child) for child in node]
        members = [leaf for group in groups for leaf in group]
        for group in groups:
            for other in groups:
                if group is not other:
                    counts[np.ix_(group, other)] = len(members)
        return members

    visit(tree)
    return counts


def leaves(tree: Tree) -> list[int]:
    """Terms below a node, from left to right."""
    return [tree] if isinstance(tree, int) else [leaf for child in tree for leaf in leaves(child)]


def depth(tree: Tree) -> int:
    """Additions on the longest way from a term to the sum."""
    return 0 if isinstance(tree, int) else 1 + max(depth(child) for child in tree)


def fan_in(tree: Tree) -> int:
    """Most terms or partial sums that are added in one step."""
    return 1 if isinstance(tree, int) else max(len(tree), *(fan_in(child) for child in tree))


def text(tree: Tree) -> str:
    """`((0+1)+2)`."""
    return str(tree) if isinstance(tree, int) else f"({'+'.join(text(child) for child in tree)})"


def describe(tree: Tree) -> str:
    """The order in words: one chain, pairs, or chains of so many terms and how they are joined."""
    terms = len(leaves(tree))
    widest = fan_in(tree)
    fused = "" if widest == 2 else f", up to {widest} terms in one addition"
    if _is_chain(tree):
        return f"sequential{fused}"
    if depth(tree) == math.ceil(math.log2(terms)) and widest == 2:
        return "pairwise"
    chains = _chains(tree)
    lengths, strides = {len(chain) for chain in chains}, {_stride(chain) for chain in chains}
    if len(lengths) == 1 and len(strides) == 1 and lengths != {1} and strides != {0}:
        joined = _joined(tree, chains)
        return f"{len(chains)} chains of {lengths.pop()} terms, stride {strides.pop()}, joined {joined}{fused}"
    return f"irregular, depth {depth(tree)}{fused}"


def _is_chain(tree: Tree) -> bool:
    """True where every node adds single terms to what stood before."""
    while not isinstance(tree, int):
        if any(not isinstance(child, int) for child in tree[1:]):
            return False
        tree = tree[0]
    return True


def _chains(tree: Tree) -> list[list[int]]:
    """The largest subtrees that are chains, as their terms in the order they are added."""
    if _is_chain(tree):
        return [leaves(tree)]
    assert not isinstance(tree, int)
    return [chain for child in tree for chain in _chains(child)]


def _stride(chain: list[int]) -> int:
    """Distance of a chain's terms where it is always the same, else 0; 1 for a single term."""
    steps = {later - earlier for earlier, later in itertools.pairwise(chain)} or {1}
    return steps.pop() if len(steps) == 1 else 0


def _joined(tree: Tree, chains: list[list[int]]) -> str:
    """How the sums of the chains are added up."""
    whole = {tuple(chain): index for index, chain in enumerate(chains)}

    def contracted(node: Tree) -> Tree:
        found = whole.get(tuple(leaves(node)))
        if found is not None:
            return found
        assert not isinstance(node, int)
        return tuple(contracted(child) for child in node)

    top = contracted(tree)
    if fan_in(top) == 2 and depth(top) == math.ceil(math.log2(len(chains))):
        return "in pairs"
    return "one after another" if _is_chain(top) else "irregularly"
