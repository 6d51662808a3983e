"""What is remembered, under which bounds, and what is not kept twice."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon.speculation import remembered
from swiftspec_daemon.speculation.remembered import Remembered
from swiftspec_daemon.speculation.suffix import SuffixSource

PAST = 1 << 16
PROMPT = list(range(100, 160))
SAID = list(range(200, 230))


def recalled(memory, tokens, limit=24):
    """The most likely continuation that is proposed from past suggestions."""
    source = SuffixSource(memory.texts, 1, memory.past)
    source.begin(tokens)
    tree = source.recall(limit, PAST)
    assert set(tree.marks) == {PAST}
    assert len(source.confidences) == len(tree)
    node, found = 0, []
    while children := tree.children(node):
        node = max(children, key=tree.log_probs.__getitem__)
        found.append(tree.tokens[node])
    return found


def taken_in(memory):
    while memory.waiting:
        memory.take_in()
    return memory


def test_the_rest_of_a_suggestion_is_recalled():
    memory = Remembered()
    memory.suggested("a", PROMPT + SAID, len(PROMPT))
    for typed in range(len(SAID)):
        assert recalled(memory, PROMPT + SAID[:typed]) == SAID[typed : typed + 24]
    for cut in range(1, 6):  # token healing
        assert recalled(memory, PROMPT[:-cut]) == (PROMPT[-cut:] + SAID)[:24]


def test_another_text_proposes_it_too_but_not_from_too_little():
    memory = Remembered()
    memory.suggested("a", PROMPT + SAID, len(PROMPT))
    assert recalled(memory, [1, 2, *PROMPT[-3:]])[:5] == SAID[:5]
    assert recalled(memory, [1, 2, *PROMPT[-2:]]) == []


def test_of_two_that_say_the_same_the_longer_is_kept():
    memory = Remembered()
    memory.suggested("a", PROMPT + SAID[:9], len(PROMPT))
    memory.suggested("a", PROMPT + SAID[:20], len(PROMPT) + 1)
    assert len(memory.past) == 1
    memory.suggested("a", PROMPT + SAID[:4], len(PROMPT) + 2)  # cancelled early
    assert len(memory.past) == 1
    assert recalled(memory, PROMPT + SAID[:3]) == SAID[3:20]


def test_what_differs_is_kept_and_the_newest_goes_first():
    memory = Remembered()
    memory.suggested("a", PROMPT + SAID[:9], len(PROMPT))
    memory.suggested("a", PROMPT + SAID[:5] + [1, 2, 3], len(PROMPT))
    assert len(memory.past) == 2
    assert recalled(memory, PROMPT) == [*SAID[:5], 1, 2, 3]


def test_what_was_accepted_is_in_the_prompt_alone():
    memory = Remembered()
    memory.suggested("a", PROMPT + SAID, len(PROMPT))
    memory.settle("a", PROMPT + SAID[:10])
    memory.settle("b", PROMPT + SAID)
    assert len(memory.past) == 1
    memory.settle("a", PROMPT + SAID[:-1])  # healing cut a token off
    assert len(memory.past) == 0


def test_bounds_of_suggestions():
    memory, rng = Remembered(), random.Random(0)
    for number in range(200):
        new = [rng.randrange(10**6) for _ in range(2000)]
        memory.suggested(str(number % 20), PROMPT + new, len(PROMPT))
    assert memory.past.size <= 16_384
    assert len(memory.past) <= 64
    for _ in range(20):
        memory.suggested("a", [*PROMPT, rng.randrange(10**6)], len(PROMPT))
    mine = sum(1 for _ in memory._said["a"])
    assert mine == remembered._PER_TEXT
    assert sum(map(len, memory._said.values())) == len(memory.past)


def test_texts_are_taken_in_by_parts_and_replaced():
    memory = Remembered()
    memory.remember("b", list(range(2000)))
    memory.take_in()
    assert memory.texts.size == remembered._SLICE
    taken_in(memory)
    assert memory.texts.size == 2000
    memory.remember("b", [1, 2, 3])
    assert taken_in(memory).texts.size == 3
    memory.remember("c", [])
    assert not taken_in(memory).waiting
    memory.remember("d", [5] * 10**5)
    assert taken_in(memory).texts.length("d") == remembered._LONGEST


def test_forgotten_while_it_waits():
    memory = Remembered()
    memory.remember("b", list(range(2000)))
    memory.take_in()
    memory.forget("b")
    assert not memory.waiting
    assert memory.texts.size == 0
    memory.take_in()


def test_the_text_itself_is_not_copied_from():
    memory = Remembered()
    for name in ("a", "b"):
        memory.remember(name, [1, 2, 3, 4])
    taken_in(memory)
    source = SuffixSource(memory.texts)
    source.begin([1, 2, 3])
    assert source.propose(4).tokens == [3, 4]
    source.excluded = "a"
    assert source.propose(4).tokens == [3, 4]
    memory.forget("b")
    assert source.propose(4).tokens == [3]


def test_what_is_frequent_here_does_not_hide_another_text():
    memory = Remembered()
    memory.remember("b", [*range(10, 20), 7, 7, 7, 8])
    taken_in(memory)
    source = SuffixSource(memory.texts)
    source.begin([7, 7, 7, 9] * 40 + [*range(10, 20), 7, 7, 7])
    assert source.propose(1).tokens == [7, 8]


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["suggested", "settle", "remember", "forget", "take_in"]),
        st.sampled_from("ab"),
        st.lists(st.integers(0, 3), min_size=1, max_size=12),
        st.integers(0, 12),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(_STEPS)
def test_any_history_keeps_the_books(steps):
    memory = Remembered()
    for step, name, tokens, number in steps:
        match step:
            case "suggested":
                memory.suggested(name, tokens, min(number, len(tokens)))
            case "settle" | "remember":
                getattr(memory, step)(name, tokens)
            case "forget":
                memory.forget(name)
                assert name not in memory.texts
            case _:
                memory.take_in()
        names = [one for mine in memory._said.values() for one in mine]
        assert sorted(names) == sorted(memory.past._texts)
        for mine in memory._said.values():
            for one, said in mine.items():
                assert memory.past._texts[one].tokens == said.tokens
