"""Drafts from past suggestions and from other texts, by the engine core on the toy model."""

import pytest

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.messages import Cancel, Forget, Generate, Remember
from swiftspec_daemon.settings import SpeculationSettings

from .harness import Harness

PROMPT = toy.encode(b"import os\n\n\ndef first(path):\n    return")
TOY = toy.ToyOptions(context=512)
NEW = 30
FEW = 4
"""Rounds for `NEW` tokens: one without drafts at the end of the prefill, and those of 16 rows."""


def speculating():
    return Harness(TOY, speculation=SpeculationSettings(mode="ngram"))


def ask(id, prompt, *, new=NEW, text_id="a", **fields):
    return Generate(id=id, prompt=prompt, max_tokens=new, text_id=text_id, sequence="s", **fields)


def plain(prompt, new=NEW, **fields):
    return Harness(TOY).run(ask(1, prompt, new=new, **fields))[0]


def rounds(finished):
    return finished.usage.speculation.counters.rounds


def test_the_next_keystroke_takes_few_rounds():
    harness = speculating()
    said, first = harness.run(ask(1, PROMPT))
    assert rounds(first) > NEW // 2  # nothing to copy from
    again, second = harness.run(ask(2, PROMPT + said[:1], new=NEW - 1))
    assert again == said[1:] == plain(PROMPT + said[:1], NEW - 1)
    counters = second.usage.speculation.counters
    assert counters.rounds <= FEW
    assert counters.accepted_by["past"] >= NEW - 1 - FEW
    # And on, typing what was suggested.
    for typed in range(2, 10):
        tokens, finished = harness.run(ask(typed + 1, PROMPT + said[:typed], new=NEW))
        assert tokens[: NEW - typed] == said[typed:]
        # The first round has all that is known; each token beyond it is a round.
        assert rounds(finished) <= FEW + typed


@pytest.mark.parametrize("sampled", [{}, {"temperature": 1.0, "seed": 5}])
def test_one_that_is_cancelled_is_remembered(sampled):
    harness = speculating()
    harness.send(ask(1, PROMPT, **sampled))
    while len(harness.tokens()[1]) < 12:
        harness.steps(1)
    harness.send(Cancel(id=1))
    said = harness.tokens()[1]
    assert harness.finished()[1].reason == "cancelled"
    tokens, finished = harness.run(ask(2, PROMPT + said[:1], new=len(said) - 1, **sampled))
    assert tokens == said[1:]
    assert rounds(finished) <= 3


def test_healing_ends_the_prompt_earlier_and_requires_bytes():
    """What was suggested is found although the prompt ends before the one it was suggested for."""
    harness = speculating()
    said, _ = harness.run(ask(1, PROMPT))
    table = toy.token_bytes()
    cut = 3
    required = b"".join(table[token] for token in PROMPT[-cut:] + said[:1])
    asked = {"required": required, "new": cut + NEW}
    tokens, finished = harness.run(ask(2, PROMPT[:-cut], **asked))
    assert tokens == plain(PROMPT[:-cut], **asked)
    assert tokens[: cut + NEW] == PROMPT[-cut:] + said
    assert rounds(finished) <= FEW + 1


def test_a_prompt_that_went_another_way_says_what_plain_decoding_says():
    harness = speculating()
    said, _ = harness.run(ask(1, PROMPT))
    other = PROMPT + [token ^ 1 for token in said[:2]]
    assert harness.run(ask(2, other))[0] == plain(other)


@pytest.mark.parametrize(
    "first", [{"text_id": ""}, {"text_id": "a", "speculation": "off"}], ids=["no name", "off"]
)
def test_what_is_not_to_be_remembered_is_not(first):
    harness = speculating()
    said, _ = harness.run(Generate(id=1, prompt=PROMPT, max_tokens=NEW, **first))
    assert len(harness.speculator.memory.past) == 0
    _, finished = harness.run(ask(2, PROMPT + said[:1]))
    assert rounds(finished) > NEW // 2


def test_a_failed_request_is_not_remembered():
    harness = Harness(
        toy.ToyOptions(context=512, nan_id=plain(PROMPT)[4]),
        speculation=SpeculationSettings(mode="ngram"),
    )
    _, finished = harness.run(ask(1, PROMPT))
    assert finished.reason == "error"
    assert len(harness.speculator.memory.past) == 0


def test_text_of_another_open_file_is_proposed():
    """The other file has what the toy is going to say."""
    new = plain(PROMPT)
    harness = speculating()
    harness.send(Remember(text_id="b", tokens=toy.encode(b"# b.py\n") + PROMPT[-20:] + new))
    harness.drain()
    tokens, finished = harness.run(ask(1, PROMPT))
    assert tokens == new
    assert finished.usage.speculation.counters.accepted_by["ngram"] > NEW // 2
    assert rounds(finished) < NEW // 2


def test_the_text_being_completed_and_forgotten_ones_are_not_copied_from():
    text = PROMPT[-20:] + plain(PROMPT)
    for name, commands in {"a": [], "b": [Forget(text_id="b")]}.items():
        harness = speculating()
        harness.send(Remember(text_id=name, tokens=text))
        harness.drain()
        harness.send(*commands)
        _, finished = harness.run(ask(1, PROMPT))
        assert rounds(finished) > NEW // 2


def test_forgetting_a_text_forgets_what_was_suggested_for_it():
    harness = speculating()
    said, _ = harness.run(ask(1, PROMPT))
    harness.send(Forget(text_id="a"))
    _, finished = harness.run(ask(2, PROMPT + said[:1]))
    assert "past" not in finished.usage.speculation.counters.accepted_by
    assert rounds(finished) > NEW // 2


def test_texts_are_taken_in_only_while_nothing_runs():
    harness = speculating()
    memory = harness.speculator.memory
    harness.send(ask(1, PROMPT), Remember(text_id="b", tokens=toy.encode(b"x" * 2000)))
    while 1 not in harness.finished():
        assert memory.texts.size == 0
        harness.steps(1)
    assert harness.core.busy
    harness.steps(1)
    assert 0 < memory.texts.size < 2000  # a part, so that a request need not wait for all of it
    harness.drain()
    assert memory.texts.size == 2000


def test_ids_that_the_model_does_not_have_are_ignored():
    harness = speculating()
    for tokens in ([5, -1], [300]):
        harness.send(Remember(text_id="b", tokens=tokens))
    assert not harness.core.busy


def test_without_speculation_nothing_is_kept():
    harness = Harness(TOY)
    harness.send(Remember(text_id="b", tokens=[5]), Forget(text_id="b"))
    assert not harness.core.busy
    assert harness.run(ask(1, PROMPT))[0] == plain(PROMPT)
