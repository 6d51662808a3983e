"""N-gram drafts against a brute-force search, and what an index keeps when its text changes."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.speculation import suffix
from swiftspec_daemon.speculation.suffix import (
    GROWTH,
    MAX_MATCH,
    NgramIndex,
    SuffixSource,
    SuffixStore,
    common_prefix,
)

TOKENS = st.lists(st.integers(0, 3), max_size=40)


def brute_places(text: list[int], gram: list[int]) -> list[int]:
    return [
        end
        for end in range(len(text) - 1, len(gram) - 1, -1)
        if text[end - len(gram) : end] == gram
    ]


def brute_match(held: list[int], others: list[list[int]]) -> tuple[int, list[list[int]]]:
    """Longest match (at most MAX_MATCH) and what follows it at each of its places.

    A place in `held` is followed by its end and then by itself again: the period goes on.
    """
    for length in range(min(MAX_MATCH, len(held)), 0, -1):
        follow = []
        for place in brute_places(held, held[-length:]):
            following = held[place:]
            follow.append((following * 200)[:200])
        for text in others:
            follow += [text[place:] for place in brute_places(text, held[-length:])]
        if follow:
            return length, follow
    return 0, []


def sequences(tree):
    return {tuple(tree.sequence(node)[1:]) for node in range(1, len(tree))}


@given(TOKENS, TOKENS, st.integers(0, 40))
def test_index_holds_what_brute_force_finds(first, second, kept):
    index = NgramIndex()
    index.extend(first)
    index.become(first[:kept] + second)
    assert index.tokens == first[:kept] + second
    text = index.tokens
    for gram in {*zip(text, text[1:], text[2:], strict=False), (3, 3, 3)}:
        assert index.places(gram, 99) == brute_places(text, list(gram))
    for token in range(4):
        assert index.places((token,), 99) == brute_places(text, [token])
    assert index.places((0,), 2) == brute_places(text, [0])[:2]


@given(TOKENS)
def test_an_index_that_was_emptied_is_a_new_one(tokens):
    index = NgramIndex()
    index.extend(tokens)
    index.truncate(0)
    fresh = NgramIndex()
    for slot in NgramIndex.__slots__:
        assert getattr(index, slot) == getattr(fresh, slot)


@given(TOKENS, TOKENS, TOKENS.filter(bool), st.integers(0, 12))
def test_proposals_against_brute_force(one, two, held, limit):
    store = SuffixStore()
    store.add("one", one)
    store.add("two", two)
    source = SuffixSource(store, mark=4)
    source.begin(held)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix, "CANDIDATES", 1000)
        tree = source.propose(limit)
    length, follow = brute_match(held, [one, two])
    assert source.match == length
    assert tree.tokens[0] == held[-1]
    assert len(tree) - 1 <= limit
    assert len(source.confidences) == len(tree)
    assert set(tree.marks) == {4}
    expected = {
        tuple(text[:depth])
        for text in follow
        for depth in range(1, min(len(text), GROWTH * length) + 1)
    }
    found = sequences(tree)
    assert found <= expected
    if len(tree) - 1 < limit:
        assert found == expected
    for node in range(1, len(tree)):
        path = tree.sequence(node)[1:]
        beginning = Counter(
            text[len(path) - 1]
            for text in follow
            if text[: len(path) - 1] == path[:-1] and len(text) >= len(path)
        )
        votes = beginning[path[-1]]
        assert source.confidences[node] == suffix.confidence(
            length + len(path) - 1, votes, beginning.total()
        )


def test_branches_come_by_votes_and_then_the_latest_first():
    source = SuffixSource()
    source.begin([7, 1, 7, 2, 7, 2, 7, 3, 7])
    tree = source.propose(3)
    assert [tree.tokens[child] for child in tree.children(0)] == [2, 3, 1]


def test_longer_matches_win_and_draft_further():
    source = SuffixSource()
    text = list(range(100, 140))
    source.begin([*text, 5, 9, 5, 8, 5, 9, 5, *text[:6]])
    tree = source.propose(64)
    assert source.match == 6
    assert tree.tokens[1:] == text[6 : 6 + 6 * GROWTH]
    source.begin([*text, 5, 9, 5, 8, 5, 9, text[0]])
    assert source.propose(64).tokens[1:] == text[1 : 1 + GROWTH]
    assert source.match == 1


def test_a_period_goes_on():
    source = SuffixSource()
    source.begin([1, 2, 3] * 4)
    assert source.propose(7).tokens == [3, 1, 2, 3, 1, 2, 3, 1]


def test_decided_tokens_are_learned_from():
    source = SuffixSource()
    source.begin([1, 2, 3])
    assert len(source.propose(8)) == 1
    source.extend([4, 5, 1, 2, 3])
    assert source.propose(2).tokens == [3, 4, 5]
    assert source.tokens == [1, 2, 3, 4, 5, 1, 2, 3]


def test_only_the_latest_places_are_compared():
    source = SuffixSource()
    early = [9, 9, 1, 7]
    source.begin(early + [2, 1, 3] * suffix.CANDIDATES + [9, 9, 1])
    source.extend([])
    assert source.propose(1).tokens == [1, 7]  # found by three tokens
    source.begin([8, 1, 7] + [2, 1, 3] * suffix.CANDIDATES + [8, 1])
    assert source.propose(1).tokens == [1, 3]  # two tokens: only late places of one token


def test_nothing_is_proposed_from_nothing():
    source = SuffixSource()
    with pytest.raises(ValueError):
        source.propose(4)
    source.begin([3])
    assert source.propose(4).tokens == [3]
    assert source.match == 0


def test_store_replaces_and_evicts_the_oldest():
    store = SuffixStore(max_tokens=10, max_texts=3)
    store.add("a", [1, 2, 3, 4])
    store.add("b", [5, 6, 7, 8])
    store.add("a", [1, 2, 9])
    assert (len(store), store.size) == (2, 7)
    assert store.find((2,), 9) == [([1, 2, 9], 2)]
    assert store.find((3,), 9) == []
    store.add("c", [4, 4, 4, 4])
    assert "b" not in store  # "a" was replaced, so it is newer
    assert store.size == 7
    store.add("d", [])
    store.add("e", [])
    assert "a" not in store
    store.remove("c")
    store.remove("c")
    assert (len(store), store.size) == (2, 0)


def test_of_a_text_above_the_bound_the_end_is_kept():
    store = SuffixStore(max_tokens=4)
    store.add("a", [1, 2, 3, 4, 5, 6])
    assert (len(store), store.size) == (1, 4)
    assert store.find((2,), 9) == []
    assert store.find((3,), 9) == [([3, 4, 5, 6], 1)]


def test_newer_texts_come_first_and_the_limit_holds():
    store = SuffixStore()
    for name in "abc":
        store.add(name, [1, 2, 1, 2])
    assert [place for _, place in store.find((1,), 5)] == [3, 1, 3, 1, 3]


@given(TOKENS, TOKENS)
def test_common_prefix(left, right):
    expected = 0
    while expected < min(len(left), len(right)) and left[expected] == right[expected]:
        expected += 1
    assert common_prefix(left, right) == expected


def test_work_is_reused_between_keystrokes():
    """Counts the index's own steps, for a clock would depend on the machine."""
    rng = random.Random(1)
    prompt = [rng.randrange(1000) for _ in range(4000)]
    source = SuffixSource()
    source.begin(prompt)
    fed: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        extend = NgramIndex.extend
        patch.setattr(
            NgramIndex, "extend", lambda self, new: (fed.append(len(new)), extend(self, new))[1]
        )
        source.begin([*prompt, 1, 2])
        source.begin([*prompt[:-3], 7])
    assert fed == [2, 1]


def test_a_glance_is_what_a_proposal_begins_with():
    store, past = SuffixStore(), SuffixStore()
    source = SuffixSource(store, 1, past)
    source.begin([1, 2])
    assert source.glance() is None
    source.begin([7, 1, 2, 3, 4, 5, 1, 2, 3])
    assert source.glance() == 4
    source.extend([9])
    assert source.glance() is None
    store.add("other", [2, 3, 9, 11])
    assert source.glance() == 11
    past.add("past", [2, 3, 9, 12])
    assert source.glance() == 12
    source.excluded = "past"
    assert source.glance() == 11
