"""The scheduler's rules, one by one and as properties over random histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.engine.messages import Priority
from swiftspec_daemon.engine.scheduler import Scheduler

INVOKED, AUTOMATIC, RAW, LOOK_AHEAD, WARM_UP = Priority


def serve_all(scheduler):
    """Finish requests one after another; the order in which they were served."""
    order = []
    while (request := scheduler.next()) is not None:
        scheduler.remove(request)
        order.append(request)
    return order


def test_priorities_then_arrival():
    scheduler = Scheduler(8)
    for request, priority in enumerate([RAW, INVOKED, AUTOMATIC, RAW, AUTOMATIC]):
        assert scheduler.submit(request, priority, "").accepted
    assert serve_all(scheduler) == [1, 2, 4, 0, 3]


def test_documents_take_turns():
    scheduler = Scheduler(16)
    for request, sequence in enumerate("aaabbc"):
        scheduler.submit(request, AUTOMATIC, sequence)
    assert serve_all(scheduler) == [0, 3, 5, 1, 4, 2]


def test_requests_without_document_are_one_party():
    scheduler = Scheduler(16)
    for request, sequence in enumerate(["", "", "", "doc"]):
        scheduler.submit(request, AUTOMATIC, sequence)
    assert serve_all(scheduler) == [0, 3, 1, 2]


def test_a_suspended_request_goes_on_before_others_of_its_priority_begin():
    scheduler = Scheduler(8)
    scheduler.submit(1, RAW, "a")
    assert scheduler.next() == 1
    scheduler.submit(2, RAW, "b")
    scheduler.submit(3, AUTOMATIC, "c")
    assert scheduler.next() == 3
    scheduler.remove(3)
    assert serve_all(scheduler) == [1, 2]


def test_an_equal_does_not_interrupt():
    scheduler = Scheduler(8)
    scheduler.submit(1, AUTOMATIC, "a")
    assert scheduler.next() == 1
    scheduler.submit(2, AUTOMATIC, "b")
    assert scheduler.next() == 1


def test_look_ahead_and_warm_up_are_dropped_not_suspended():
    scheduler = Scheduler(8)
    scheduler.submit(1, LOOK_AHEAD, "a")
    scheduler.submit(2, WARM_UP, "b")
    assert scheduler.next() == 1
    scheduler.submit(3, RAW, "c")
    assert 1 not in scheduler
    assert serve_all(scheduler) == [3]
    scheduler.submit(4, WARM_UP, "")
    assert scheduler.submit(5, LOOK_AHEAD, "").dropped == (4,)
    assert scheduler.submit(6, WARM_UP, "").dropped == ()
    assert serve_all(scheduler) == [5, 6]


def test_each_priority_has_its_own_places():
    scheduler = Scheduler(2)
    assert scheduler.submit(1, RAW, "").accepted
    assert scheduler.submit(2, RAW, "").accepted
    assert not scheduler.submit(3, RAW, "").accepted
    assert scheduler.submit(4, INVOKED, "").accepted
    scheduler.remove(1)
    assert scheduler.submit(5, RAW, "").accepted


def test_a_refused_request_drops_nothing():
    scheduler = Scheduler(1)
    scheduler.submit(1, RAW, "")
    scheduler.submit(2, LOOK_AHEAD, "")
    admission = scheduler.submit(3, RAW, "")
    assert not admission.accepted
    assert admission.dropped == ()
    assert 2 in scheduler


def test_an_id_twice_is_an_error():
    scheduler = Scheduler(2)
    scheduler.submit(1, RAW, "")
    with pytest.raises(ValueError, match="known"):
        scheduler.submit(1, RAW, "")


def test_next_is_stable_and_removal_is_told():
    scheduler = Scheduler(2)
    assert scheduler.next() is None
    scheduler.submit(1, RAW, "")
    assert scheduler.next() == scheduler.next() == 1
    assert scheduler.remove(1)
    assert not scheduler.remove(1)
    assert len(scheduler) == 0


operations = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(list(Priority)), st.sampled_from("abc")),
        st.tuples(st.just("step")),
        st.tuples(st.just("finish")),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
    ),
    max_size=80,
)


@given(operations)
def test_random_histories(history):
    """Nothing is lost, nobody is overtaken by a lower priority, one begun for each priority."""
    scheduler = Scheduler(3)
    alive: dict[int, tuple[Priority, str]] = {}
    begun: set[int] = set()
    ids = iter(range(1000))
    for operation, *arguments in history:
        if operation == "submit":
            request, (priority, sequence) = next(ids), arguments
            admission = scheduler.submit(request, priority, sequence)
            waiting = sum(p == priority for p, _ in alive.values())
            assert admission.accepted == (waiting < 3)
            if admission.accepted:
                lower = {r for r, (p, _) in alive.items() if p > priority and p.droppable}
                assert set(admission.dropped) == lower
                for dropped in lower:
                    del alive[dropped]
                alive[request] = (priority, sequence)
        elif operation == "cancel":
            assert scheduler.remove(arguments[0]) == (alive.pop(arguments[0], None) is not None)
        else:
            request = scheduler.next()
            assert (request is None) == (not alive)
            if request is None:
                continue
            assert alive[request][0] == min(p for p, _ in alive.values())
            begun.add(request)
            if operation == "finish":
                scheduler.remove(request)
                del alive[request]
        assert set(scheduler.ids) == set(alive)
        levels = [alive[r][0] for r in begun if r in alive]
        assert len(levels) == len(set(levels))


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40))
def test_no_document_waits_for_two_turns_of_another(sequences):
    scheduler = Scheduler(40)
    for request, sequence in enumerate(sequences):
        scheduler.submit(request, AUTOMATIC, sequence)
    order = serve_all(scheduler)
    served = [sequences[request] for request in order]
    assert sorted(order) == list(range(len(sequences)))
    for sequence in set(sequences):
        own = [request for request in order if sequences[request] == sequence]
        assert own == sorted(own)
        last = len(served) - 1 - served[::-1].index(sequence)
        for other in set(sequences) - {sequence}:
            turns = [i for i, s in enumerate(served[: last + 1]) if s == sequence]
            for left, right in zip([-1, *turns], turns, strict=False):
                assert served[left + 1 : right].count(other) <= 1
