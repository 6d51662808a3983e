"""The whole engine with drafts says what plain decoding says, token by token, in every mode."""

from __future__ import annotations

import functools

import msgspec
import pytest
from hypothesis import given, settings

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.messages import Cancel, Priority, decode_command, encode
from swiftspec_daemon.speculation.counters import SpeculationCounters

from .drafts_world import World
from .naive import run
from .test_generation import generates
from .test_lossless import REQUESTS, plain

TARGET = "toy:context=64,eos=true"
OPTIONS = toy.parse(TARGET)
GOOD, FAIR, BAD = "toy:context=64", "toy:context=64,wrong=0.2", "toy:context=64,wrong=1"
SHORT = "toy:context=20"
WORLDS = {
    "ngram": {"mode": "ngram", "eager": True},
    "serial, good": {"mode": "serial", "draft": GOOD, "eager": True},
    "serial, fair": {"mode": "serial", "draft": FAIR, "eager": True},
    "serial, bad": {"mode": "serial", "draft": BAD, "eager": True},
    "serial, short": {"mode": "serial", "draft": SHORT, "eager": True},
    "serial, merged": {"mode": "serial", "draft": BAD, "more": [FAIR, GOOD, SHORT], "eager": True},
    "serial, planned": {"mode": "serial", "draft": FAIR},
    "async, good": {"mode": "async", "draft": GOOD, "eager": True},
    "async, fair": {"mode": "async", "draft": FAIR, "eager": True},
    "async, bad": {"mode": "async", "draft": BAD, "eager": True},
    "async, short": {"mode": "async", "draft": SHORT, "eager": True},
    "async, planned": {"mode": "async", "draft": FAIR},
}


@functools.cache
def _expected(encoded):
    wanted = decode_command(encoded)
    return run(OPTIONS, wanted), plain(wanted, OPTIONS)[2]


def expected(wanted):
    """Tokens and reason of the naive loop, and log-probabilities of the plain engine."""
    return _expected(encode(msgspec.structs.replace(wanted, id=1))[4:])


@pytest.fixture(scope="module")
def worlds():
    made = {}

    def make(name):
        if name not in made:
            made[name] = World(target=TARGET, **WORLDS[name])
            if "async" in name:
                made[name].await_draft()
        return made[name]

    yield make
    for world in made.values():
        world.close()


@pytest.mark.parametrize("name", WORLDS)
@settings(max_examples=12, deadline=None)
@given(wanted=generates())
def test_any_request(worlds, name, wanted):
    world = worlds(name)
    fields = {field: getattr(wanted, field) for field in wanted.__struct_fields__}
    del fields["id"]
    tokens, finished = world.serve(**fields)
    assert ((tokens, finished.reason), world.log_probs(finished.id)) == expected(wanted)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("kind", REQUESTS)
def test_every_processor(worlds, name, kind):
    world = worlds(name)
    tokens, finished = world.serve(**REQUESTS[kind])
    wanted = world.request(**REQUESTS[kind])
    assert ((tokens, finished.reason), world.log_probs(finished.id)) == expected(wanted)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("max_tokens", [0, 1, 2, 58, 59, 60, 1000])
def test_every_length_and_a_full_context(worlds, name, max_tokens):
    world = worlds(name)
    for fields in ({}, {"temperature": 1.0, "seed": 7}):
        wanted = world.request(max_tokens=max_tokens, logit_bias={toy.EOS: -1e9}, **fields)
        world.send(wanted)
        world.drain()
        assert (world.said(wanted.id), world.end(wanted.id).reason) == expected(wanted)[0]
        assert len(world.said(wanted.id)) == min(max_tokens, 64 - 5)


@pytest.mark.parametrize("name", WORLDS)
def test_suspension_slots_taken_away_and_several_documents(worlds, name):
    """Three low requests and an urgent one share two slots."""
    world = worlds(name)
    low = [
        world.request(
            prompt=toy.encode(text),
            priority=Priority.RAW,
            sequence=sequence,
            temperature=temperature,
            logit_bias={toy.EOS: -1e9},
        )
        for text, sequence, temperature in [
            (b"def f", "a", 0.0), (b"class A:\n", "b", 1.0), (b"def f(x", "c", 0.7),
        ]
    ]  # fmt: skip
    urgent = [
        world.request(prompt=toy.encode(text), priority=Priority.INVOKED, sequence=sequence)
        for text, sequence in [(b"import", "d"), (b"def g", "e"), (b"class B:", "b")]
    ]
    world.send(*low)
    for request in urgent:
        for _ in range(3):
            world.core.step()
        world.send(request)
    world.drain()
    for request in (*low, *urgent):
        assert (world.said(request.id), world.end(request.id).reason) == expected(request)[0]


@pytest.mark.parametrize("name", WORLDS)
def test_a_cancel_in_flight_leaves_the_next_request_in_order(worlds, name):
    world = worlds(name)
    for steps in range(1, 9):
        first = world.request(sequence="doc", max_tokens=50)
        world.send(first)
        for _ in range(steps):
            world.core.step()
        world.send(Cancel(id=first.id))
        said = world.said(first.id)
        assert said == expected(first)[0][0][: len(said)]
        second = world.request(sequence="doc", prompt=toy.encode(b"def fu"), temperature=0.5)
        world.send(second)
        world.drain()
        assert (world.said(second.id), world.end(second.id).reason) == expected(second)[0]


@pytest.mark.parametrize("mode", ["off", "ngram", "serial", "async", "auto"])
def test_each_request_may_choose(worlds, mode):
    world = worlds("async, good")
    tokens, finished = world.serve(speculation=mode, logit_bias={toy.EOS: -1e9})
    assert tokens == expected(world.request(logit_bias={toy.EOS: -1e9}))[0][0]
    if mode == "off":
        assert finished.usage.speculation is None
    else:
        wanted = "async" if mode == "auto" else mode
        assert finished.usage.speculation.mode == wanted


def counters(world, requests=3, **fields):
    """Of a few requests together."""
    total = SpeculationCounters()
    for _ in range(requests):
        _, finished = world.serve(logit_bias={toy.EOS: -1e9}, max_tokens=40, **fields)
        total += finished.usage.speculation.counters
    return total


@pytest.mark.parametrize("name", ["serial, good", "serial, fair", "async, good", "async, fair"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_good_drafts_are_accepted(worlds, name, temperature):
    """Without this the tests above could pass by never speculating."""
    counted = counters(worlds(name), temperature=temperature)
    assert counted.tokens == 120
    assert counted.rounds < 60
    assert counted.accepted_by["draft"] > 60
    assert counted.draft_steps > 0
    if "async" in name:
        assert counted.missed_deadlines == 0
        assert counted.fall_ins > 0


def test_bad_drafts_are_tried_and_hardly_ever_accepted(worlds):
    for name in ("serial, bad", "async, bad"):
        counted = counters(worlds(name))
        assert counted.proposed_by["draft"] > 100
        assert counted.accepted_by.get("draft", 0) < 6


def test_merged_drafts_are_told_apart(worlds):
    accepted = counters(worlds("serial, merged")).accepted_by
    assert accepted["draft 3"] > accepted["draft 2"] > accepted.get("draft", 0)


@pytest.mark.parametrize("name", ["serial, short", "async, short", "serial, merged"])
def test_a_context_that_is_too_short_is_said_once(worlds, name, caplog):
    world = worlds(name)
    if "async" in name:
        world.process.problem = ""
    world.speculator.problem = ""
    prompt = toy.encode(b"x = 1\n" * 5)
    for _ in range(2):
        tokens, _ = world.serve(prompt=prompt, temperature=0.5)
        assert tokens == expected(world.request(prompt=prompt, temperature=0.5))[0][0]
    said = [
        r.message for r in caplog.records if "longer than the draft's context of 20" in r.message
    ]
    assert len(said) == 1
    problem = world.process.problem if "async" in name else world.speculator.problem
    assert problem == ("Texts longer than the draft's context of 20 tokens are decoded without it.")
