"""Commands in, events out: cancellation, suspension, prefix reuse, and no history in the text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.messages import Cancel, Generate, Priority, Tokens, Unload

from .harness import Harness
from .naive import run

PROMPT = toy.encode(b"def add(a, b):\n    return a + b\n\ndef sub(")


def generate(request, prompt=PROMPT, **fields):
    return Generate(id=request, prompt=prompt, **{"max_tokens": 6} | fields)


def test_cancel_takes_effect_before_the_next_step_and_keeps_the_kv():
    harness = Harness()
    harness.send(generate(1, max_tokens=50, sequence="doc"))
    harness.steps(8)
    before = len(harness.backend.blocks)
    said = harness.tokens()[1]
    harness.send(Cancel(id=1))
    assert harness.finished()[1].reason == "cancelled"
    assert not harness.core.busy
    harness.core.step()
    assert len(harness.backend.blocks) == before
    _, finished = harness.run(generate(2, [*PROMPT, *said], sequence="doc"))
    assert finished.usage.cached_tokens == len(PROMPT) + len(said) - 1


def test_cancel_in_the_middle_of_prefill_keeps_the_blocks_that_are_done():
    harness = Harness()
    harness.send(generate(1, [7] * 100, sequence="doc"))
    harness.steps(2)
    harness.send(Cancel(id=1))
    _, finished = harness.run(generate(2, [7] * 100, sequence="doc"))
    assert finished.usage.cached_tokens == sum(harness.backend.blocks[:2]) == 32


def test_unknown_and_late_cancels_are_ignored():
    harness = Harness()
    harness.send(Cancel(id=77))
    _, finished = harness.run(generate(1))
    harness.send(Cancel(id=1))
    assert finished.reason == "length"


def test_a_suspended_request_goes_on_and_says_the_same():
    harness = Harness()
    low = generate(1, max_tokens=10, priority=Priority.RAW)
    harness.send(low)
    harness.steps(6)
    assert 0 < len(harness.tokens()[1]) < 10
    harness.send(generate(2, PROMPT[:20], priority=Priority.INVOKED))
    blocks = len(harness.backend.blocks)
    harness.drain()
    order = [event.id for event in harness.events if isinstance(event, Tokens)]
    assert order == [1] * order.index(2) + [2] * 6 + [1] * (10 - order.index(2))
    assert harness.tokens()[1] == run(harness.options, low)[0]
    # KV was kept: the rest of request 1 took one row a step.
    rest = harness.backend.blocks[blocks:]
    assert rest.count(16) == 1


def test_a_suspended_request_that_lost_its_slot_says_the_same():
    harness = Harness(slots=1)
    low = generate(1, max_tokens=10, priority=Priority.RAW, temperature=1.0, seed=5)
    harness.send(low)
    harness.steps(6)
    harness.send(generate(2, toy.encode(b"else"), priority=Priority.INVOKED))
    harness.drain()
    assert harness.tokens()[1] == run(harness.options, low)[0]
    assert harness.finished()[1].reason == "length"
    assert harness.finished()[1].usage.cached_tokens == 0


def test_look_ahead_is_dropped_and_its_kv_helps():
    harness = Harness()
    harness.send(generate(1, priority=Priority.LOOK_AHEAD, sequence="doc", max_tokens=50))
    harness.steps(5)
    harness.send(generate(2, sequence="doc"))
    assert harness.finished()[1].reason == "dropped"
    harness.drain()
    assert harness.finished()[2].usage.cached_tokens == len(PROMPT) - 1


def test_a_full_queue_is_an_error_that_says_so():
    harness = Harness(queue_limit=2)
    harness.send(*(generate(i) for i in (1, 2, 3)))
    refused = harness.finished()[3]
    assert (refused.reason, refused.code) == ("error", "overloaded")
    assert "Too many requests" in refused.message
    harness.drain()
    assert harness.finished()[1].reason == harness.finished()[2].reason == "length"


def test_bad_requests_are_answered():
    harness = Harness()
    harness.send(generate(1, []), generate(2, [5] * 300), generate(3, [5]))
    harness.drain()
    finished = harness.finished()
    assert (finished[1].reason, finished[1].code) == ("error", "invalid_request")
    assert (finished[2].reason, finished[2].code) == ("error", "context_too_long")
    assert finished[3].reason == "length"


def test_nan_fails_the_request_alone_and_poisoned_kv_is_not_reused():
    harness = Harness(toy.ToyOptions(nan_id=9))
    _, finished = harness.run(generate(1, [5, 9], sequence="doc"))
    assert (finished.reason, finished.code) == ("error", "engine_error")
    _, finished = harness.run(generate(2, [5, 8], sequence="doc"))
    assert finished.reason == "length"
    assert finished.usage.cached_tokens == 0


def test_an_id_twice_is_ignored():
    harness = Harness()
    harness.send(generate(1), generate(1, [5]))
    harness.drain()
    assert harness.tokens()[1] == run(harness.options, generate(1))[0]


def test_unload_waits_for_what_runs():
    harness = Harness()
    harness.send(generate(1), Unload())
    assert harness.core.unloading
    assert harness.core.busy
    harness.drain()
    assert harness.finished()[1].reason == "length"


def test_blocks_grow_to_the_step_budget_and_no_further():
    harness = Harness(toy.ToyOptions(context=512), step_budget_ms=50.0)
    harness.run(generate(1, [7] * 400))
    assert harness.backend.blocks[0] == 16
    assert max(harness.backend.blocks) == 48  # 50 ms at 1 ms a row, in multiples of 16


def test_times_add_up():
    harness = Harness()
    harness.send(generate(1, priority=Priority.RAW))
    harness.send(generate(2, toy.encode(b"else"), priority=Priority.INVOKED))
    harness.drain()
    usage = harness.finished()[1].usage
    assert abs(usage.prefill_ms - len(PROMPT)) < 1e-6
    assert abs(usage.decode_ms - 5) < 1e-6
    first = harness.finished()[2].usage
    assert abs(usage.queue_ms - (first.prefill_ms + first.decode_ms)) < 1e-6
    assert first.queue_ms == 0


def test_time_in_suspension_counts_as_waiting():
    harness = Harness()
    harness.send(generate(1, priority=Priority.RAW))
    harness.steps(4)
    harness.send(generate(2, toy.encode(b"else"), priority=Priority.INVOKED))
    harness.drain()
    low, high = harness.finished()[1].usage, harness.finished()[2].usage
    assert abs(low.queue_ms - (high.prefill_ms + high.decode_ms)) < 1e-6
    assert abs(low.prefill_ms + low.decode_ms - (len(PROMPT) + 5)) < 1e-6


def test_a_request_that_is_cancelled_while_it_waits_has_only_waited():
    harness = Harness()
    harness.send(generate(1), generate(2))
    harness.steps(3)
    harness.send(Cancel(id=2))
    usage = harness.finished()[2].usage
    assert abs(usage.queue_ms - len(PROMPT)) < 1e-6
    assert usage.prefill_ms == usage.decode_ms == 0


commands = st.lists(
    st.one_of(
        st.tuples(
            st.just("generate"),
            st.lists(st.integers(2, 4), min_size=1, max_size=40),
            st.integers(0, 12),
            st.sampled_from(list(Priority)),
            st.sampled_from(["", "a", "b", "c"]),
            st.sampled_from([0.0, 1.0]),
            st.sampled_from([b"", b"ab", b"\n    r"]),
        ),
        st.tuples(st.just("cancel"), st.integers(1, 30)),
        st.tuples(st.just("steps"), st.integers(1, 8)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), commands)
def test_no_history_changes_a_text(slots, history):
    """After any cancels, suspensions and reuse of KV, texts equal those of a fresh engine."""
    harness = Harness(slots=slots, queue_limit=4)
    sent: dict[int, Generate] = {}
    for name, *arguments in history:
        if name == "generate":
            prompt, max_tokens, priority, sequence, temperature, required = arguments
            request = Generate(
                id=len(sent) + 1,
                prompt=prompt,
                max_tokens=max_tokens,
                priority=priority,
                sequence=sequence,
                temperature=temperature,
                required=required,
            )
            sent[request.id] = request
            harness.send(request)
        elif name == "cancel":
            harness.send(Cancel(id=arguments[0]))
        else:
            harness.steps(arguments[0])
    harness.drain()
    finished, tokens = harness.finished(), harness.tokens()
    assert set(finished) == set(sent)
    for request in sent.values():
        expected, reason = run(harness.options, request)
        end = finished[request.id]
        if end.reason in ("stop", "length"):
            assert (tokens[request.id], end.reason) == (expected, reason)
        elif end.reason == "error":
            assert end.code == "overloaded"
        else:
            assert tokens[request.id] == expected[: len(tokens[request.id])]


def test_stop_all():
    harness = Harness()
    harness.send(generate(1), generate(2))
    harness.steps(3)
    harness.core.cancel_all()
    assert {end.reason for end in harness.finished().values()} == {"cancelled"}
    assert not harness.core.busy
