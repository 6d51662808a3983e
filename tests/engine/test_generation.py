"""One request's life, against a naive loop and in its corners."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.generation import Generation, Vocabulary
from swiftspec_daemon.engine.messages import Generate
from swiftspec_daemon.errors import ContextTooLong, EngineError, UsageError

from .harness import Harness
from .naive import run

OPTIONS = toy.ToyOptions(context=64, eos=True)
TABLE = toy.token_bytes()


def request(**fields):
    return Generate(**{"id": 1, "prompt": toy.encode(b"def f"), "max_tokens": 8} | fields)


@st.composite
def generates(draw, context=64):
    return Generate(
        id=1,
        prompt=draw(st.lists(st.integers(0, 270), min_size=1, max_size=context)),
        max_tokens=draw(st.integers(0, 30)),
        temperature=draw(st.sampled_from([0.0, 0.0, 0.7, 2.0])),
        top_k=draw(st.sampled_from([0, 5])),
        top_p=draw(st.sampled_from([1.0, 0.9])),
        min_p=draw(st.sampled_from([0.0, 0.0, 0.05])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.6])),
        logit_bias=draw(st.dictionaries(st.integers(2, 266), st.floats(-9, 9), max_size=2)),
        logprobs=draw(st.sampled_from([0, 0, 2])),
        seed=draw(st.integers(0, 3)),
        required=draw(st.sampled_from([b"", b"", b"ret", b"\n  ", "é中".encode()[:3]])),
        stop_ids=draw(st.lists(st.integers(0, 270), max_size=30)),
        stop=draw(st.lists(st.binary(min_size=1, max_size=2), max_size=60)),
    )


@settings(max_examples=60, deadline=None)
@given(generates())
def test_equals_the_naive_loop(wanted):
    tokens, finished = Harness(OPTIONS).run(wanted)
    assert (tokens, finished.reason) == run(OPTIONS, wanted)
    assert finished.usage.new_tokens == len(tokens)
    assert finished.usage.prompt_tokens == len(wanted.prompt)


def test_required_bytes_come_first_and_may_be_overrun():
    tokens, _ = Harness().run(request(required=b"retu"))
    text = b"".join(TABLE[token] for token in tokens)
    assert text.startswith(b"retu")
    assert len(tokens) == 8


def test_a_stop_string_inside_the_required_bytes_does_not_count():
    tokens, finished = Harness().run(request(required=b"\n    ", stop=[b"\n"], max_tokens=5))
    assert b"".join(TABLE[token] for token in tokens).startswith(b"\n    ")
    assert (tokens, finished.reason) == run(
        toy.ToyOptions(context=256), request(required=b"\n    ", stop=[b"\n"], max_tokens=5)
    )


def test_a_stop_id_inside_the_required_bytes_does_not_count():
    byte_ids = list(range(toy.FIRST_BYTE, toy.FIRST_BYTE + 256))
    tokens, finished = Harness().run(request(required=b"self", stop_ids=byte_ids))
    assert b"".join(TABLE[token] for token in tokens).startswith(b"self")
    assert finished.reason in ("stop", "length")


def test_a_vocabulary_without_fitting_token_gives_the_constraint_up():
    backend = toy.ToyBackend(toy.ToyOptions(vocab=300))
    words = [b""] * 2 + [b"word"] * 298
    generation = Generation(
        request(required=b"z", max_tokens=1), Vocabulary.build(words, [1], 300), 64
    )
    held: list[int] = []
    ids = generation.step(backend, backend.new_cache(64), held, 16)
    assert len(ids) == 1
    assert generation.finished == "length"


def test_prefill_only():
    harness = Harness()
    tokens, finished = harness.run(request(prompt=list(range(2, 52)), max_tokens=0))
    assert (tokens, finished.reason) == ([], "length")
    assert sum(harness.backend.blocks) == 50
    _, finished = harness.run(request(id=2, prompt=list(range(2, 60))))
    assert finished.usage.cached_tokens == 50


def test_context_full_is_length():
    options = toy.ToyOptions(context=32)
    tokens, finished = Harness(options).run(request(prompt=[5] * 30, max_tokens=10))
    assert (len(tokens), finished.reason) == (2, "length")
    tokens, finished = Harness(options).run(request(prompt=[5] * 32, max_tokens=10))
    assert (len(tokens), finished.reason) == (0, "length")


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"prompt": []}, UsageError, "empty"),
        ({"prompt": [300]}, UsageError, "outside"),
        ({"prompt": [-1]}, UsageError, "outside"),
        ({"max_tokens": -1}, UsageError, "negative"),
        ({"temperature": -0.1}, UsageError, "temperature"),
        ({"temperature": float("nan")}, UsageError, "temperature"),
        ({"top_p": 0.0}, UsageError, "top_p"),
        ({"min_p": -0.1}, UsageError, "min_p"),
        ({"min_p": float("nan")}, UsageError, "min_p"),
        ({"repetition_penalty": 0.0}, UsageError, "repetition_penalty"),
        ({"repetition_penalty": float("inf")}, UsageError, "repetition_penalty"),
        ({"logit_bias": {300: 1.0}}, UsageError, "logit_bias"),
        ({"logit_bias": {3: float("-inf")}}, UsageError, "logit_bias"),
        ({"logprobs": -1}, UsageError, "logprobs"),
        ({"logprobs": 101}, UsageError, "logprobs"),
        ({"prompt": [5] * 65}, ContextTooLong, "65 tokens"),
    ],
)
def test_requests_that_cannot_be_served(fields, error, words):
    with pytest.raises(error, match=words):
        Generation(request(**fields), Vocabulary.build(TABLE, [toy.EOS], 300), 64)


def test_no_numbers_no_token():
    backend = toy.ToyBackend(toy.ToyOptions(nan_id=9))
    generation = Generation(request(prompt=[9]), Vocabulary.build(TABLE, [1], 300), 64)
    with pytest.raises(EngineError, match="no valid numbers"):
        generation.step(backend, backend.new_cache(64), [], 16)


def test_a_padded_vocabulary_has_a_table_of_its_size():
    vocabulary = Vocabulary.build([b"a", b"b"], [1], 5)
    assert len(vocabulary.table.token_bytes) == 5
    assert vocabulary.table.fitting(b"a").tolist() == [0]
    assert vocabulary.table.fitting(b"b").dtype == np.intp
    assert vocabulary.table.fitting(b"b").tolist() == []
