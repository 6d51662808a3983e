"""Multi-step sampling in the engine: the target's distribution, and where it does not apply."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.generation import Vocabulary
from swiftspec_daemon.engine.messages import Priority

from .drafts_world import World
from .naive import run

TARGET = "toy:context=64,eos=true"
DRAFTS = {
    "good": "toy:context=64,eos=true",
    "fair": "toy:context=64,eos=true,wrong=0.5",
    "bad": "toy:context=64,wrong=1",
}
SAMPLED = {"temperature": 1.5, "top_k": 3}


def world(draft=DRAFTS["fair"], **options):
    settings = {"mode": "serial", "target": TARGET, "acceptance": "multi-step"}
    return World(draft, **settings | options)


def exact(request, options):
    """Probability of each text of up to `max_tokens` tokens and its reason of ending."""
    backend = toy.ToyBackend(options)
    vocabulary = Vocabulary.build(toy.token_bytes(options.vocab), [toy.EOS], options.vocab)
    found = collections.defaultdict(float)

    def descend(state, new, probability):
        cache = backend.new_cache(options.context)
        logits = backend.append(cache, [*request.prompt, *new], logits=True)
        p = state.probabilities(logits)
        for token in np.flatnonzero(p):
            decision = state.take(int(token), logits)
            text = (*new, int(token)) if decision.emit else new
            if decision.state_after is None:
                found[text, decision.finish] += probability * p[token]
            else:
                descend(decision.state_after, text, probability * p[token])

    descend(vocabulary.rules(request).begin(request.prompt, request.max_tokens), (), 1.0)
    return dict(found)


STOPS = {"stop_ids": [198, 201, 92, 60, 61, 62, 63, 64, 65]}
PENALTY = {"repetition_penalty": 1.5, "logit_bias": {toy.EOS: 9.0}}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("good", {}), ("fair", {}), ("bad", {}), ("fair", STOPS), ("fair", PENALTY),
        ("fair", {"required": b"re"}),
    ],
)  # fmt: skip
def test_texts_come_as_often_as_they_should(name, fields):
    """Chi-square over seeds; they are fixed, so the result is always the same."""
    fields = fields | {"max_tokens": 3}
    one = world(DRAFTS[name])
    expected = exact(one.request(**SAMPLED, **fields), one.options)
    assert abs(sum(expected.values()) - 1) < 1e-9
    count = 400
    seen = collections.Counter()
    for seed in range(count):
        tokens, finished = one.serve(seed=seed, **SAMPLED, **fields)
        seen[tuple(tokens), finished.reason] += 1
    assert set(seen) <= set(expected)
    common = [key for key, p in expected.items() if p * count >= 5]
    observed = [seen[key] for key in common]
    wanted = [expected[key] * count for key in common]
    if sum(wanted) < count - 1e-6:
        observed.append(count - sum(observed))
        wanted.append(count - sum(wanted))
    statistic = sum((o - w) ** 2 / w for o, w in zip(observed, wanted, strict=True))
    assert len(wanted) > 1
    freedom = len(wanted) - 1
    spread = 2 / (9 * freedom)  # Wilson and Hilferty: the cube root is nearly normal
    assert ((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5 < 3.1


def test_samples_of_a_good_draft_are_accepted_more_often_than_of_a_bad_one():
    accepted = {}
    for name, draft in DRAFTS.items():
        one = world(draft)
        counts = [
            one.serve(seed=seed, temperature=1.0, max_tokens=40)[1].usage.speculation.counters
            for seed in range(10)
        ]
        assert all(sum(c.accepted_lengths) == c.rounds for c in counts)
        accepted[name] = sum(c.accepted for c in counts) / sum(c.rounds for c in counts)
    assert accepted["good"] > accepted["fair"] > accepted["bad"]
    assert accepted["good"] > 2


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, {"temperature": 0.0}),
        ({"more": [DRAFTS["good"]]}, SAMPLED),
        ({}, SAMPLED | {"speculation": "ngram"}),
        ({"acceptance": "keyed"}, SAMPLED),
    ],
    ids=["greedy", "two drafts", "n-gram", "not asked for"],
)
def test_elsewhere_the_text_is_that_of_plain_decoding(options, fields):
    one = world(**options)
    for seed in range(5):
        tokens, finished = one.serve(seed=seed, **fields)
        assert (tokens, finished.reason) == run(one.options, one.request(seed=seed, **fields))


def test_a_seed_gives_the_same_text_again_also_after_a_suspension():
    one = world()
    fields = {"seed": 5, "temperature": 1.0, "logit_bias": {toy.EOS: -1e9}, "max_tokens": 40}
    first, _ = one.serve(**fields)
    assert first != run(one.options, one.request(**fields))[0]
    low = one.request(priority=Priority.RAW, **fields)
    one.send(low)
    for _ in range(3):
        one.core.step()
    one.send(one.request(prompt=toy.encode(b"other"), priority=Priority.INVOKED, temperature=1.0))
    one.drain()
    assert one.said(low.id) == first


@pytest.mark.parametrize(
    "draft", ["toy:context=64,nan_id=9", "toy:context=9", "toy:context=64,vocab=300"]
)
def test_a_draft_that_cannot_costs_nothing_but_itself(draft):
    one = world(draft)
    prompt = [9, 8, 7] if "nan" in draft else [9, 299, 7]
    tokens, finished = one.serve(prompt=prompt, temperature=1.0, logit_bias={toy.EOS: -1e9})
    assert len(tokens) == 24
    assert finished.reason == "length"


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 59, 100])
def test_every_length_and_a_full_context(max_tokens):
    one = world(DRAFTS["good"])
    tokens, finished = one.serve(max_tokens=max_tokens, temperature=1.0, logit_bias={toy.EOS: -1e9})
    assert len(tokens) == min(max_tokens, 59)
    assert finished.reason == "length"
