"""Merged trees: SpecInfer's definition 3.2, best subtrees, contradictions between sources."""

from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.speculation.calibration import Calibration, Proposal, stated_bucket
from swiftspec_daemon.speculation.merging import MergedTree
from swiftspec_daemon.speculation.tree import TokenTree

EDGES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 3), st.floats(0.01, 1.0)), max_size=14
)


def build(edges) -> TokenTree:
    tree = TokenTree(9)
    for parent, token, p in edges:
        tree.add(parent % len(tree), token, log(p))
    return tree


def sequences(tree) -> dict[tuple[int, ...], float]:
    return {tuple(tree.sequence(node)): tree.scores[node] for node in range(len(tree))}


@given(EDGES, EDGES, st.integers(1, 40))
def test_holds_exactly_the_members_sequences(left, right, size):
    one, two = build(left), build(right)
    merged = MergedTree(Calibration(), 9)
    merged.update(Proposal(1, one))
    merged.update(Proposal(2, two))
    everything = sequences(merged.best(10_000))
    assert set(everything) == set(sequences(one)) | set(sequences(two))
    for tree, source in ((one, 1), (two, 2)):
        for node, place in enumerate(merged.place(source)):
            assert merged.tokens[place] == tree.tokens[node]
            assert merged.depths[place] == tree.depths[node]
            assert merged.marks[place] & source
    best = merged.best(size)
    assert len(best) == min(size, len(merged))
    for sequence, score in sequences(best).items():
        assert score == pytest.approx(everything[sequence])
    left_out = sorted((s for q, s in everything.items() if q not in sequences(best)), reverse=True)
    if left_out:
        assert min(best.scores) >= left_out[0] - 1e-9


@given(EDGES, EDGES)
def test_reach_is_the_product_and_siblings_share_certainty(left, right):
    merged = MergedTree(Calibration(), 9)
    merged.update(Proposal(1, build(left)))
    merged.update(Proposal(2, build(right)))
    totals = [0.0] * len(merged)
    for node in range(1, len(merged)):
        parent = merged.parents[node]
        share = merged.worth[node] / max(1.0, merged.mass[parent])
        assert merged.reach[node] == pytest.approx(merged.reach[parent] * share)
        totals[parent] += merged.worth[node]
    assert totals == pytest.approx(merged.mass)
    for node in range(len(merged)):
        below = [merged.reach[c] for c in range(1, len(merged)) if merged.parents[c] == node]
        assert sum(below) <= merged.reach[node] + 1e-9


@given(EDGES, st.integers(0, 14))
def test_growing_is_as_taking_in_at_once(edges, cut):
    tree = TokenTree(9)
    grown = MergedTree(Calibration(), 9)
    for i, (parent, token, p) in enumerate(edges):
        known = tree.child(parent % len(tree), token)
        if known is None:
            tree.add(parent % len(tree), token, log(p))
        if i == cut:
            grown.update(Proposal(1, tree))
    grown.update(Proposal(1, tree))
    grown.update(Proposal(1, tree))
    whole = MergedTree(Calibration(), 9)
    whole.update(Proposal(1, tree))
    assert grown.tokens == whole.tokens
    assert grown.reach == pytest.approx(whole.reach)


def test_the_better_estimate_counts_where_sources_agree():
    merged = MergedTree(Calibration(), 9)
    merged.update(Proposal(1, TokenTree.from_chain(9, [5, 6], [log(0.5), log(0.5)])))
    merged.update(Proposal(2, TokenTree.from_chain(9, [5], [log(0.8)])))
    tree = merged.best(3)
    assert tree.marks == [3, 3, 1]
    assert [exp(score) for score in tree.scores] == pytest.approx([1.0, 0.8, 0.4])


def test_estimates_are_what_calibration_has_learned():
    calibration = Calibration()
    lookup = Proposal(4, TokenTree.from_chain(9, [5], [log(0.5)]), [0, 7])
    for _ in range(30):
        calibration.learn(lookup, [6])
    merged = MergedTree(calibration, 9)
    merged.update(lookup)
    assert merged.reach[1] == pytest.approx(calibration.estimate(4, 7, 1, log(0.5)))
    assert merged.reach[1] < 0.1
    assert stated_bucket(log(0.5)) != 7


def test_another_root_is_refused():
    merged = MergedTree(Calibration(), 9)
    with pytest.raises(ValueError):
        merged.update(Proposal(1, TokenTree(8)))
    assert len(merged.best(0)) == 1
