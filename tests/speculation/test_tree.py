"""Token trees against definitions spelled out: all subtrees, all sequences, all ancestors."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.speculation.tree import TokenTree

log_probs = st.sampled_from([0.0, -0.25, -0.5, -1.0, -2.5, -math.inf]) | st.floats(-20, 0)


@st.composite
def trees(draw, max_nodes=10, tokens=3, root=7):
    """Few tokens, so that children and sequences often meet."""
    tree = TokenTree(root, source=draw(st.integers(0, 3)))
    for _ in range(draw(st.integers(0, max_nodes - 1))):
        parent = draw(st.integers(0, len(tree) - 1))
        token, source = draw(st.integers(0, tokens - 1)), draw(st.integers(0, 3))
        tree.add(parent, token, draw(log_probs), source)
    return tree


def sequences(tree):
    return {tuple(tree.sequence(node)) for node in range(len(tree))}


def connected(tree, nodes):
    chosen = set(nodes)
    return 0 in chosen and all(node == 0 or tree.parents[node] in chosen for node in chosen)


def well_formed(tree):
    for node in range(1, len(tree)):
        parent = tree.parents[node]
        assert 0 <= parent < node
        assert tree.depths[node] == tree.depths[parent] + 1
        assert tree.scores[node] == tree.scores[parent] + tree.log_probs[node]
        assert tree.scores[node] <= tree.scores[parent]
        assert tree.child(parent, tree.tokens[node]) == node
        assert node in tree.children(parent)
    assert len(sequences(tree)) == len(tree)
    assert (tree.parents[0], tree.depths[0], tree.scores[0]) == (-1, 0, 0.0)


@given(trees(max_nodes=30))
def test_trees_are_well_formed(tree):
    well_formed(tree)


@given(trees(), st.integers(1, 12))
def test_select_is_the_best_of_all_connected_subtrees(tree, size):
    size = min(size, len(tree))
    every = [s for s in itertools.combinations(range(len(tree)), size) if connected(tree, s)]
    chosen = tree.select(size)
    assert chosen == sorted(chosen)
    assert tuple(chosen) in every

    def merit(nodes):  # its scores from the best one down; of equal ones the lower index
        return sorted(((tree.scores[i], -i) for i in nodes), reverse=True)

    assert merit(chosen) == max(map(merit, every))
    expected = [sum(math.exp(tree.scores[i]) for i in nodes) for nodes in every]
    assert sum(math.exp(tree.scores[i]) for i in chosen) >= max(expected) - 1e-12


def test_select_of_more_than_there_is_and_of_nothing():
    tree = TokenTree.from_chain(1, [2, 3], [-1, -1])
    assert tree.select(9) == [0, 1, 2]
    with pytest.raises(ValueError, match="at least its root"):
        tree.select(0)


@given(trees(max_nodes=20), st.data())
def test_masks_are_the_ancestors(tree, data):
    nodes = data.draw(st.none() | st.lists(st.integers(0, len(tree) - 1), min_size=1, unique=True))
    rows = list(range(len(tree))) if nodes is None else sorted(nodes)
    masks = tree.ancestor_masks(None if nodes is None else rows)
    assert masks.dtype == np.uint64
    assert masks.shape == (len(rows), 1)
    for i, node in enumerate(rows):
        for j, other in enumerate(rows):
            assert bool(int(masks[i, 0]) >> j & 1) == (other in tree.path(node))


def test_masks_of_more_than_64_nodes():
    tree = TokenTree.from_chain(0, range(1, 130), [-0.1] * 129)
    side = tree.add(63, 500, -1)
    masks = tree.ancestor_masks()
    assert masks.shape == (131, 3)
    assert masks[129].tolist() == [2**64 - 1, 2**64 - 1, 0b11]
    assert masks[side].tolist() == [2**64 - 1, 0, 0b100]


@given(st.lists(trees(), min_size=1, max_size=4))
def test_a_merged_tree_has_the_sequences_of_its_members_and_no_others(members):
    merged = TokenTree.merge(*members)
    well_formed(merged)
    assert sequences(merged) == set().union(*map(sequences, members))
    for node in range(len(merged)):
        found = [(tree, descend(tree, merged.sequence(node))) for tree in members]
        found = [(tree, i) for tree, i in found if i is not None]
        assert merged.log_probs[node] == max(tree.log_probs[i] for tree, i in found)
        marks = 0
        for tree, i in found:
            marks |= tree.marks[i]
        assert merged.marks[node] == marks


def descend(tree, sequence):
    node = 0 if tree.tokens[0] == sequence[0] else None
    for token in sequence[1:]:
        node = None if node is None else tree.child(node, token)
    return node


def test_merging_needs_one_root():
    with pytest.raises(ValueError, match="same root"):
        TokenTree.merge(TokenTree(1), TokenTree(2))
    with pytest.raises(ValueError, match="same root"):
        TokenTree.merge()


@given(trees(), trees())
def test_merging_leaves_its_members_alone(left, right):
    before = [list(left.scores), list(right.scores), len(left), len(right)]
    merged = TokenTree.merge(left, right)
    merged.add(0, 99, -1)
    assert [left.scores, right.scores, len(left), len(right)] == before


@given(trees(max_nodes=20), st.lists(st.integers(0, 2), max_size=5))
def test_reroot_keeps_what_continues_the_verified_tokens(tree, tokens):
    found = tree.reroot(tokens)
    prefix = [tree.tokens[0], *tokens]
    known = sequences(tree)
    matched = max(n for n in range(len(tokens) + 1) if tuple(prefix[: n + 1]) in known)
    assert found.matched == matched
    assert [tree.tokens[i] for i in found.path] == prefix[: matched + 1]
    assert found.path == tree.path(found.path[-1])
    if matched < len(tokens):
        assert (found.tree, found.old) == (None, [])
        return
    well_formed(found.tree)
    expected = {s[len(tokens) :] for s in known if list(s[: len(prefix)]) == prefix}
    assert sequences(found.tree) == expected
    assert found.old == sorted(found.old)
    for node, old in enumerate(found.old):
        assert found.tree.sequence(node) == tree.sequence(old)[len(tokens) :]
        assert found.tree.marks[node] == tree.marks[old]
        if node:
            assert found.tree.log_probs[node] == tree.log_probs[old]


@given(trees(max_nodes=20), st.integers(1, 20))
def test_a_subtree_keeps_tokens_scores_and_marks(tree, size):
    nodes = tree.select(size)
    sub = tree.subtree(nodes)
    well_formed(sub)
    for node, old in enumerate(nodes):
        assert sub.sequence(node) == tree.sequence(old)
        assert (sub.scores[node], sub.marks[node]) == (tree.scores[old], tree.marks[old])


@pytest.mark.parametrize("nodes", [[], [0, 2], [1, 2, 3], [0, 1, 1], [0, 3, 1]])
def test_a_subtree_must_be_connected_and_ascending(nodes):
    tree = TokenTree.from_chain(1, [2, 3], [-1, -1])
    tree.add(0, 4, -1)
    with pytest.raises(ValueError, match=r"at least a root|not below"):
        tree.subtree(nodes)


@given(trees(max_nodes=12), st.data())
def test_a_raised_score_raises_those_below(tree, data):
    node = data.draw(st.integers(0, len(tree) - 1))
    before, log_prob = list(tree.scores), data.draw(log_probs)
    if node == 0:
        return
    same = tree.add(tree.parents[node], tree.tokens[node], log_prob, source=4)
    assert same == node
    assert tree.marks[node] & 4
    well_formed(tree)
    for other in range(len(tree)):
        assert tree.scores[other] >= before[other]
        if node not in tree.path(other):
            assert tree.scores[other] == before[other]


def test_log_probabilities_that_are_none():
    tree = TokenTree(1)
    assert tree.scores[tree.add(0, 2, 1e-9)] == 0.0
    with pytest.raises(ValueError, match="not a number"):
        tree.add(0, 3, math.nan)


def grow(tree, *edges):
    """Add (parent token, token, log-probability) where tokens are the names in the figures."""
    for parent, token, log_prob in edges:
        tree.add(tree.tokens.index(parent), token, log_prob)


def names(tree, nodes):
    return [tree.tokens[node] for node in nodes]


def test_the_example_of_a_round_in_swiftspec():
    """Figure 2 of arXiv 2506.11309: bs = 4, d = 3, w = 2; node t_i has the token i."""
    tree = TokenTree(1)
    grow(tree, (1, 2, -0.7), (1, 3, -0.8), (2, 4, -1.2), (3, 5, -0.5), (3, 6, -1.3))
    assert names(tree, tree.select(4)) == [1, 2, 3, 5]
    # While the target verifies, the draft adds six nodes; then the target has decided (t3, t6).
    grow(tree, (5, 7, -0.4), (5, 8, -0.9), (6, 9, -0.3), (6, 10, -1.5), (9, 11, -0.8), (2, 12, -2))
    found = tree.reroot([3, 6])
    assert found.matched == 2
    assert names(found.tree, range(4)) == [6, 9, 10, 11]
    tree = found.tree
    assert names(tree, tree.select(4)) == [6, 9, 10, 11]
    grow(tree, (9, 13, -1), (10, 14, -0.2), (11, 15, -0.6))
    found = tree.reroot([9, 16])  # t16 is not in the tree: a new one grows there
    assert (found.matched, found.tree) == (1, None)
    assert names(tree, found.path) == [6, 9]
    tree = TokenTree(16)
    grow(tree, (16, 17, -0.2), (16, 18, -1.9), (17, 19, -2.5), (17, 20, -0.9), (20, 21, -1.5))
    assert names(tree, tree.select(4)) == [16, 17, 18, 20]


def test_the_example_of_the_evolving_tree_cache_in_swiftspec():
    """Figure 4: prefix (t1, t3, t7, t10); t12 and t15 are verified, t17 and t18 stay below t15."""
    tree = TokenTree(10)
    grow(tree, (10, 11, -1), (10, 12, -0.5), (12, 15, -0.5), (15, 17, -0.4), (15, 18, -1.2))
    found = tree.reroot([12, 15])
    assert names(tree, found.path) == [10, 12, 15]
    assert names(tree, found.old) == [15, 17, 18]
    assert found.tree.tokens == [15, 17, 18]
    assert found.tree.parents == [-1, 0, 0]
