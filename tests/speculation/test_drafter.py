"""The drafter against its definition: expansion recomputed from scratch, and the KV it computes."""

import heapq
import itertools
import math

import pytest
from draft_models import FunctionDraft, TextState, hashed
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.speculation.drafter import TreeDrafter

PROMPT = [3, 1, 4, 1, 5]


def drafter(model, **options):
    values = {"width": 2, "branching": 3, "max_depth": 8, "max_nodes": 200, **options}
    return TreeDrafter(model, **values)


def begun(model, tokens=PROMPT, ends=frozenset(), **options):
    found = drafter(model, **options)
    found.begin(tokens, TextState(tuple(tokens), ends))
    return found


def run(found, steps=1000):
    """Steps until there is nothing to do; rows of each."""
    rows = list(itertools.takewhile(bool, (found.step() for _ in range(steps))))
    assert len(rows) < 1000
    return rows


def texts(tree, before=()):
    return {(*before, *tree.sequence(node)): tree.scores[node] for node in range(len(tree))}


def by_definition(ranked, prompt, steps, width, branching):
    """Texts and scores after `steps` expansions of the `width` best leaves."""
    scores = {tuple(prompt): 0.0}
    leaves = list(scores)
    for step in range(steps + 1):
        best = heapq.nlargest(width if step else 1, leaves, key=lambda text: scores[text])
        for text in best:
            leaves.remove(text)
            for token, log_prob in list(zip(*ranked(text), strict=True))[:branching]:
                scores[(*text, token)] = scores[text] + log_prob
                leaves.append((*text, token))
    return scores


@pytest.mark.parametrize(("width", "branching"), [(1, 3), (2, 2), (4, 3), (8, 1)])
def test_the_best_leaves_are_expanded_width_at_a_time(width, branching):
    ranked = hashed(4)
    found = begun(FunctionDraft(ranked), width=width, branching=branching, max_depth=60)
    assert not found.ready
    assert found.step() == len(PROMPT)
    assert found.ready
    for _ in range(6):
        assert 1 <= found.step() <= width
    expected = by_definition(ranked, PROMPT, 6, width, branching)
    assert texts(found.tree, PROMPT[:-1]) == pytest.approx(expected)


def test_one_leaf_at_a_time_expands_the_most_probable_texts_of_all():
    """Best-first search is exact: after n steps the n best nodes of the whole tree are expanded."""
    ranked = hashed(3)
    model = FunctionDraft(ranked)
    found = begun(model, width=1, max_depth=4)
    found.step()
    level = {tuple(PROMPT): 0.0}
    every = dict(level)
    for _ in range(4):
        level = {
            (*text, token): score + log_prob
            for text, score in level.items()
            for token, log_prob in zip(*ranked(text), strict=True)
        }
        every |= level
    inner = sorted((t for t in every if 5 < len(t) < 9), key=every.__getitem__, reverse=True)
    for count in range(1, 20):
        assert found.step() == 1
        assert set(model.pending) == set(inner[:count])


def test_a_prompt_goes_in_blocks():
    model = FunctionDraft(hashed(3))
    found = begun(model, tokens=list(range(10)), block=4)
    assert [found.step(), found.step(), found.ready, found.step()] == [4, 4, False, 2]
    assert found.ready
    assert len(found.tree) == 4


def test_the_root_moves_on_while_the_prompt_goes_in():
    model = FunctionDraft(hashed(3))
    found = begun(model, block=4)
    found.step()
    assert found.accept([7, 8], TextState((*PROMPT, 7, 8))) == 0
    assert not found.ready
    assert found.step() == 3
    assert model.held() == [*PROMPT, 7, 8]
    assert found.tree.tokens[0] == 8


def test_a_static_configuration_gives_each_level_its_children():
    ranked = hashed(5)
    found = begun(FunctionDraft(ranked), configuration=(1, 1, 3, 1), width=1, branching=9)
    assert run(found) == [len(PROMPT), 1, 1, 3]
    tree = found.tree
    assert tree.depths == [0, 1, 2, 3, 3, 3, 4, 4, 4]
    for node in range(len(tree)):
        tokens, log_probs = ranked((*PROMPT[:-1], *tree.sequence(node)))
        children = tree.children(node)
        assert [tree.tokens[c] for c in children] == tokens[: len(children)]
        assert [tree.log_probs[c] for c in children] == log_probs[: len(children)]


def test_a_static_tree_starts_anew_after_verification():
    found = begun(FunctionDraft(hashed(5)), configuration=(2, 2, 1))
    run(found)
    tokens = found.tree.sequence(len(found.tree) - 1)[1:3]
    assert found.accept(tokens, TextState((*PROMPT, *tokens))) == 2
    assert not found.ready
    assert run(found) == [1, 2, 4]  # the new root's own KV is computed again, nothing else
    assert found.tree.depths == [0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]


def test_a_level_of_more_rows_than_the_model_takes():
    found = begun(FunctionDraft(hashed(5), max_rows=3), configuration=(4, 1, 1))
    assert run(found) == [5, 3, 3, 2]
    assert found.tree.depths == [0, *[1] * 4, *[2] * 4, *[3] * 4]


def test_a_leaf_that_ends_the_text_is_never_run():
    ranked = hashed(3)
    first, second, _ = ranked(tuple(PROMPT))[0]
    model = FunctionDraft(ranked)
    found = begun(model, ends=frozenset([first]), max_depth=2)
    run(found)
    assert found.tree.child(0, first) is not None
    assert found.tree.children(found.tree.child(0, first)) == []
    assert (*PROMPT, second) in model.pending
    assert all(first not in text[5:] for text in model.pending)


def test_an_impossible_leaf_is_never_run():
    found = begun(FunctionDraft(lambda text: ([1, 2], [0.0, -math.inf])), max_depth=3)
    assert run(found) == [5, 1, 1]
    assert len(found.tree) == 7


@pytest.mark.parametrize(
    ("limits", "options", "rows"),
    [
        ({"capacity": 4}, {}, []),  # the text does not fit at all
        ({"capacity": 5}, {}, [5]),
        ({"capacity": 8}, {}, [5, 2, 1]),
        ({"max_pending": 3}, {}, [5, 2, 1]),
        ({"max_rows": 1}, {"max_nodes": 8}, [5, 1, 1]),
        ({"max_depth": 1}, {"branching": 1}, [5]),
        ({}, {"max_depth": 1}, [5]),
        ({}, {"max_depth": 2}, [5, 2, 1]),
        ({}, {"max_nodes": 1}, [5]),
        ({}, {"max_nodes": 5}, [5, 2]),
    ],
)
def test_limits_end_the_expansion_quietly(limits, options, rows):
    found = begun(FunctionDraft(hashed(3), **limits), **options)
    assert run(found) == rows
    assert found.ready == bool(rows)
    assert len(found.tree) <= found.max_nodes
    assert max(found.tree.depths) <= found.max_depth


def test_limits_may_change_between_steps():
    found = begun(FunctionDraft(hashed(3)), max_depth=1)
    assert run(found) == [5]
    found.max_depth, found.width = 2, 3
    assert run(found) == [3]
    found.max_nodes = 1
    found.max_depth = 9
    assert run(found) == []


@pytest.mark.parametrize("name", ["width", "branching", "max_depth", "max_nodes", "block"])
def test_numbers_below_one_are_refused(name):
    with pytest.raises(ValueError, match="above 0"):
        drafter(FunctionDraft(hashed(3)), **{name: 0})
    with pytest.raises(ValueError, match="above 0"):
        drafter(FunctionDraft(hashed(3)), configuration=(2, 0))


def test_before_a_text_there_is_nothing_to_do():
    found = drafter(FunctionDraft(hashed(3)))
    assert (found.ready, found.step(), len(found.tree)) == (False, 0, 1)
    with pytest.raises(ValueError, match="at least one token"):
        found.begin([], TextState(()))


def test_a_hit_computes_nothing_anew():
    model = FunctionDraft(hashed(3))
    found = begun(model, width=4)
    for _ in range(6):
        found.step()
    text = max(model.pending, key=len)
    accepted = list(text[5:])
    rows, before = sum(n for _, n in model.calls), set(model.pending)
    assert found.accept(accepted[:2], TextState(text[:7])) == 2
    assert found.ready
    assert model.held() == list(text[:7])
    assert set(model.pending) == {t for t in before if t[:7] == text[:7] and len(t) > 7}
    assert sum(n for _, n in model.calls) == rows
    surviving = set(model.pending)
    found.step()
    assert surviving < set(model.pending)


def test_a_miss_computes_the_novel_part_alone():
    model = FunctionDraft(hashed(3))
    found = begun(model, width=4)
    for _ in range(4):
        found.step()
    text = max(model.pending, key=len)
    assert found.accept([text[5], 99], TextState((*text[:6], 99))) == 1
    assert not found.ready
    assert model.held() == list(text[:6])
    assert found.step() == 1
    assert model.held() == [*text[:6], 99]


def test_a_leaf_that_was_not_run_is_a_hit_but_must_be_run():
    model = FunctionDraft(hashed(3))
    found = begun(model)
    found.step()
    child = found.tree.tokens[found.tree.children(0)[0]]
    assert found.accept([child], TextState((*PROMPT, child))) == 1
    assert not found.ready
    assert found.step() == 1
    assert model.held() == [*PROMPT, child]
    leaf = found.tree.tokens[1]
    text = [*PROMPT, child, leaf, 99]
    assert found.accept([leaf, 99], TextState(tuple(text))) == 1  # a miss behind such a leaf
    assert found.step() == 2
    assert model.held() == text


def test_what_is_left_to_run_is_told():
    ranked = hashed(3)
    first, second, third = ranked(tuple(PROMPT))[0]
    found = drafter(FunctionDraft(ranked), width=1, max_depth=2)
    assert (found.missing, found.leaves()) == (0, [])
    found.begin(PROMPT, TextState(tuple(PROMPT), frozenset([second])))
    assert (found.missing, found.leaves()) == (5, [0])
    found.step()
    assert found.missing == 0
    assert {found.tree.tokens[node] for node in found.leaves()} == {first, second, third}
    run(found)
    assert found.leaves() == []
    found.max_depth = 3
    assert sorted(found.leaves()) == [
        node for node in range(len(found.tree)) if found.tree.depths[node] == 2
    ]


def test_nothing_verified_changes_nothing():
    found = begun(FunctionDraft(hashed(3)))
    run(found, 3)
    tree = found.tree
    assert found.accept([], TextState(tuple(PROMPT))) == 0
    assert found.tree is tree


def test_an_edit_reuses_the_common_beginning_and_the_tree():
    model = FunctionDraft(hashed(3))
    found = begun(model)
    for _ in range(5):
        found.step()
    text = max(model.pending, key=len)
    assert len(text) >= 7
    longer = [*text[:7], 77]  # the user took two tokens of the tree and typed another one
    found.begin(longer, TextState(tuple(longer)))
    assert model.held() == list(text[:7])
    assert found.step() == 1
    shorter = [*text[:4], 88, 89]
    found.begin(shorter, TextState(tuple(shorter)))
    assert model.held() == list(text[:4])
    assert found.step() == 2
    found.begin(shorter, TextState(tuple(shorter)))  # the same text: its last token is ranked
    assert found.step() == 1


def test_a_model_that_another_used_meanwhile():
    model = FunctionDraft(hashed(3))
    found = begun(model)
    found.step()
    other = [3, 1, 9]
    begun(model, tokens=other).step()
    text = [3, 1, 9, 9]
    found.begin(text, TextState(tuple(text)))
    assert found.step() == 1


def test_the_example_of_a_round_in_swiftspec():
    """Figure 2 of arXiv 2506.11309: bs = 4, d = 3, w = 2; here a node is a token that was run."""
    chances = {
        1: {2: 0.5, 3: 0.45}, 2: {4: 0.3}, 3: {5: 0.7, 6: 0.3}, 5: {7: 0.5, 8: 0.4},
        6: {9: 0.8, 10: 0.2}, 9: {11: 0.9, 13: 0.05}, 10: {12: 0.5},
        16: {17: 0.6, 18: 0.3}, 17: {19: 0.4, 20: 0.5}, 20: {21: 0.5},
    }  # fmt: skip

    def ranked(text):
        options = chances.get(text[-1], {})
        return list(options), [math.log(chance) for chance in options.values()]

    model = FunctionDraft(ranked)
    found = begun(model, tokens=[1], branching=2)
    for _ in range(4):  # t1, then d = 3 expansions of w = 2 leaves
        found.step()
    assert [text[-1] for text in model.pending] == [2, 3, 5, 4, 7, 6]
    tree = found.tree
    assert [tree.tokens[node] for node in tree.select(4)] == [1, 2, 3, 5]
    assert found.accept([3, 6], TextState((1, 3, 6))) == 2
    assert found.ready
    assert found.tree.tokens == [6, 9, 10]
    assert found.step() == 2
    assert [text[-1] for text in model.pending] == [9, 10]
    assert [found.tree.tokens[node] for node in found.tree.select(4)] == [6, 9, 10, 11]
    assert found.accept([9, 16], TextState((1, 3, 6, 9, 16))) == 1
    assert not found.ready
    assert model.held() == [1, 3, 6, 9]
    assert [found.step(), found.step(), found.step()] == [1, 2, 2]
    assert [text[-1] for text in model.pending] == [17, 18, 20, 19]
    assert [found.tree.tokens[node] for node in found.tree.select(4)] == [16, 17, 18, 20]


@st.composite
def histories(draw):
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(["step", "step", "step", "accept", "begin"]),
                st.integers(0, 2**32),
            ),
            max_size=40,
        )
    )


@given(histories(), st.sampled_from([None, (2, 2, 1)]), st.integers(8, 80))
def test_after_any_history_all_nodes_are_the_models(history, configured, room):
    """The model checks every call; here: every node's score is the model's own."""
    ranked = hashed(3, vocabulary=6)
    model = FunctionDraft(ranked, capacity=room, max_pending=16)
    found = begun(model, width=3, configuration=configured, max_nodes=40)
    text = list(PROMPT)
    for what, number in history:
        if what == "step":
            found.step()
        elif what == "accept":
            tree = found.tree
            tokens = tree.sequence(number % len(tree))[1:]
            tokens += [number // 7 % 6] * (number % 3 > 0 or not tokens)
            text += tokens
            matched = found.accept(tokens, TextState(tuple(text)))
            assert matched >= len(tokens) - 1
        else:
            text = [*text[: 1 + number % len(text)], *[number % 6] * (number // 6 % 3)]
            found.begin(text, TextState(tuple(text)))
        assert model.held() == text[: len(model.held())]
        assert found.ready == (model.held() == text and len(found.tree) > 0)
        for node in range(1, len(found.tree)):
            before = (*text[:-1], *found.tree.sequence(node)[:-1])
            chances = dict(zip(*ranked(before), strict=True))
            assert found.tree.log_probs[node] == chances[found.tree.tokens[node]]
    rows = run(found)
    assert (len(text) <= room) == found.ready
    assert found.step() == 0
    assert all(rows)
