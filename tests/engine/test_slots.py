"""Which slot a request gets, and what is reused."""

from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.engine.slots import Slots, common_prefix

LONG = list(range(100, 150))


def fill(slots, tokens, sequence="", holder=1):
    """A request that ran to its end and left KV of `tokens`."""
    assignment = slots.acquire(tokens, sequence, holder)
    assignment.slot.tokens[:] = tokens
    slots.release(assignment.slot)
    return assignment.slot


def test_a_document_finds_its_own_kv_again():
    slots = Slots(3)
    slot = fill(slots, LONG, "doc")
    fill(slots, [1, 2, 3], "other")
    edited = [*LONG[:30], 7, 8, 9]
    assignment = slots.acquire(edited, "doc", 2)
    assert assignment.slot is slot
    assert assignment.cached == 30
    assert slot.tokens == LONG[:30]


def test_the_last_token_is_always_computed():
    slots = Slots(1)
    fill(slots, LONG, "doc")
    assert slots.acquire(LONG, "doc", 2).cached == len(LONG) - 1


def test_an_ownerless_slot_is_taken_for_a_longer_prefix():
    slots = Slots(3)
    own = fill(slots, [*LONG[:5], 1], "doc")
    shared = fill(slots, LONG)
    assignment = slots.acquire([*LONG, 1], "doc", 2)
    assert assignment.slot is shared
    assert assignment.cached == len(LONG)
    assert own.sequence == "doc"


def test_another_documents_slot_is_not_stolen_for_its_prefix():
    slots = Slots(2)
    other = fill(slots, LONG, "other")
    assignment = slots.acquire([*LONG[:40], 1], "doc", 2)
    assert assignment.slot is not other
    assert assignment.cached == 0
    assert other.tokens == LONG


def test_the_same_text_under_another_name_is_found_again():
    slots = Slots(2)
    other = fill(slots, LONG, "old connection")
    other.tokens += range(500, 600)  # what was generated does not count
    assignment = slots.acquire([*LONG[:45], 1], "new connection", 2)
    assert assignment.slot is other
    assert assignment.cached == 45
    assert other.sequence == "new connection"


def test_a_short_common_head_is_no_reason():
    slots = Slots(2)
    first = fill(slots, [0, *LONG])
    assert slots.acquire([0, 5, 6], "", 2).slot is not first


def test_least_recently_used_goes_first():
    slots = Slots(2)
    first = fill(slots, [1, 2, 3], "a")
    second = fill(slots, [4, 5, 6], "b")
    fill(slots, [1, 2, 3, 4], "a")
    assert slots.acquire([9], "c", 2).slot is second
    assert first.tokens == [1, 2, 3, 4]


def test_requests_without_document_keep_to_one_slot_when_documents_have_the_rest():
    slots = Slots(3)
    fill(slots, [1] * 20, "a")
    fill(slots, [2] * 20, "b")
    for value in range(10, 20):
        fill(slots, [value] * 20)
    assert sorted(slot.sequence for slot in slots) == ["", "a", "b"]


def test_suspended_requests_keep_their_slots_while_there_are_others():
    slots = Slots(2)
    held = slots.acquire(LONG, "doc", holder=1).slot
    held.tokens[:] = LONG[:10]
    assignment = slots.acquire([*LONG, 1], "doc", holder=2)
    assert assignment.slot is not held
    assert assignment.robbed is None
    robbing = slots.acquire([5, 6], "c", holder=3)
    assert robbing.slot is held
    assert robbing.robbed == 1


def test_common_prefix():
    assert common_prefix([1, 2, 3], [1, 2, 4]) == 2
    assert common_prefix([1, 2], (1, 2, 3)) == 2
    assert common_prefix([], [1]) == 0


requests = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), min_size=1, max_size=30),
        st.sampled_from(["", "a", "b", "c"]),
        st.booleans(),
    ),
    max_size=40,
)


@given(st.integers(1, 4), requests)
def test_random_histories(count, history):
    """What is called cached is there; a free slot is preferred; a robbed holder is told."""
    slots = Slots(count)
    holders: dict[int, int] = {}
    for request, (tokens, sequence, keep) in enumerate(history, start=1):
        before = {slot.index: list(slot.tokens) for slot in slots}
        assignment = slots.acquire(tokens, sequence, request)
        slot = assignment.slot
        assert 0 <= assignment.cached < len(tokens)
        assert before[slot.index][: assignment.cached] == tokens[: assignment.cached]
        assert slot.tokens == tokens[: assignment.cached]
        assert slot.holder == request
        if assignment.robbed is not None:
            assert len(holders) == count
            assert holders.pop(assignment.robbed) == slot.index
        holders[request] = slot.index
        assert len(set(holders.values())) == len(holders)
        slot.tokens[:] = tokens
        if not keep:
            slots.release(slot)
            del holders[request]
