"""Speculative decoding says what plain decoding says, token by token, whatever the draft."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.messages import Generate, TokenLogProbs, Tokens

from .harness import Harness
from .naive import run
from .speculative import ModelDraft, drafts, speculate
from .test_generation import generates

OPTIONS = toy.ToyOptions(context=64, eos=True)
KINDS = sorted(drafts(OPTIONS))
TABLE = toy.token_bytes()


def request(**fields):
    return Generate(**{"id": 1, "prompt": toy.encode(b"def f"), "max_tokens": 24} | fields)


def plain(wanted, options=OPTIONS):
    """Tokens, reason and log-probabilities of the engine without speculation."""
    harness = Harness(options)
    tokens, finished = harness.run(wanted)
    found = [p for event in harness.events if isinstance(event, Tokens) for p in event.logprobs]
    return tokens, finished.reason, found


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(wanted=generates())
def test_any_request_with_any_draft(kind, wanted):
    tokens, reason, log_probs, _ = speculate(OPTIONS, wanted, drafts(OPTIONS)[kind]())
    assert (tokens, reason) == run(OPTIONS, wanted)
    assert [TokenLogProbs(*item) for item in log_probs] == plain(wanted)[2]


SAMPLED = {"temperature": 1.0, "seed": 11}
REQUESTS = {
    "greedy": {},
    "sampled": SAMPLED,
    "hot": {"temperature": 3.0, "seed": 4},
    "top-k": SAMPLED | {"top_k": 4},
    "top-p": SAMPLED | {"top_p": 0.7},
    "min-p": SAMPLED | {"min_p": 0.1},
    "penalty": {"repetition_penalty": 1.8},
    "penalty, sampled": SAMPLED | {"repetition_penalty": 1.8},
    "bias": {"logit_bias": {toy.FIRST_BYTE + 97: 9.0, toy.FIRST_BYTE + 98: 8.5}},
    "bias and penalty, sampled": SAMPLED
    | {"logit_bias": {toy.FIRST_BYTE + 97: 9.0}, "repetition_penalty": 1.5, "top_p": 0.9},
    "log-probabilities": {"logprobs": 5},
    "log-probabilities, sampled": SAMPLED | {"logprobs": 5, "top_k": 9},
    "required": {"required": b"return self"},
    "required, sampled": SAMPLED | {"required": b"return self.x = "},
    "part of a character required": SAMPLED | {"required": "é中😀".encode()[:7]},
    "stop strings": {"stop": [bytes([i, j]) for i in range(256) for j in range(i % 7, 256, 7)]},
    "stop strings, sampled": SAMPLED
    | {"stop": [bytes([i, j]) for i in range(256) for j in range(i % 5, 256, 5)]},
    "stop ids": {"stop_ids": list(range(60, 90))},
    "stop ids, sampled": SAMPLED | {"stop_ids": list(range(60, 90))},
    "all at once": SAMPLED
    | {
        "required": "xé".encode(),
        "stop": [bytes([i, j]) for i in range(0, 256, 3) for j in range(0, 256, 9)],
        "stop_ids": [70, 71, 72],
        "top_k": 30,
        "top_p": 0.95,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "logit_bias": {80: 4.0},
        "logprobs": 2,
    },
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REQUESTS)
def test_every_processor_with_every_draft(kind, name):
    wanted = request(**REQUESTS[name])
    tokens, reason, log_probs, _ = speculate(OPTIONS, wanted, drafts(OPTIONS)[kind]())
    assert (tokens, reason) == run(OPTIONS, wanted)
    assert [TokenLogProbs(*item) for item in log_probs] == plain(wanted)[2]
    assert len(log_probs) == (len(tokens) if wanted.logprobs else 0)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_chain_of_a_perfect_draft_is_always_accepted(name):
    """Also for sampled texts, since the noise is known to the draft."""
    draft = ModelDraft(toy.ToyBackend(OPTIONS), branching=1, steps=4)
    tokens, _, _, accepted = speculate(OPTIONS, request(**REQUESTS[name]), draft)
    assert accepted[:-1] == [4] * (len(accepted) - 1)
    assert len(accepted) == -(-len(tokens) // 5) or len(tokens) % 5 == 0


def test_bad_drafts_are_hardly_ever_accepted_and_good_ones_are():
    for fields in ({}, SAMPLED):
        rounds = {
            kind: len(speculate(OPTIONS, request(**fields), drafts(OPTIONS)[kind]())[3])
            for kind in KINDS
        }
        tokens = len(run(OPTIONS, request(**fields))[0])
        assert rounds["deceiving"] == rounds["ends"] >= tokens
        assert rounds["good"] < rounds["fair"] < rounds["random"]


def test_these_requests_end_in_every_way_and_reach_what_they_are_about():
    ends = {name: run(OPTIONS, request(**fields)) for name, fields in REQUESTS.items()}
    assert {reason for _, reason in ends.values()} == {"stop", "length"}
    for name, fields in REQUESTS.items():
        text = b"".join(TABLE[token] for token in ends[name][0])
        assert text.startswith(fields.get("required", b""))
    for name in ("stop strings", "stop strings, sampled"):
        tokens, reason = ends[name]
        assert reason == "stop"
        assert len(tokens) > 1
        assert len(TABLE[tokens[-1]]) == 1  # so the stop string lies across two tokens
    for name in ("stop ids", "stop ids, sampled"):
        assert ends[name][1] == "stop"
    different = {tuple(tokens) for tokens, _ in ends.values()}
    assert len(different) >= len(ends) - 4


@given(st.integers(1, 64), st.sampled_from(KINDS), st.sampled_from([0.0, 1.0]))
@settings(max_examples=60, deadline=None)
def test_a_full_context_ends_the_text_as_in_plain_decoding(length, kind, temperature):
    wanted = request(prompt=[5 + i % 60 for i in range(length)], max_tokens=99, seed=length)
    wanted = Generate(**{f: getattr(wanted, f) for f in wanted.__struct_fields__}
                      | {"temperature": temperature})  # fmt: skip
    found = speculate(OPTIONS, wanted, drafts(OPTIONS)[kind]())
    assert found[:2] == run(OPTIONS, wanted)
