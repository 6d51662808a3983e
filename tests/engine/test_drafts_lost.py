"""Drafts that die, hang or fail in the middle of a request: the request goes on without."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.messages import Generate

from .drafts_world import LIMIT_S, World
from .naive import run

TARGET = "toy:step_ms=4,context=200"
asynchronous = pytest.mark.skipif(
    os.name != "posix", reason="drafts in processes of their own need POSIX"
)


@pytest.fixture
def world():
    made = []

    def make(draft, **options):
        made.append(World(draft, **{"target": TARGET, "mode": "async"} | options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def expected(request, target=TARGET):
    return run(toy.parse(target), request)


def begin(world, **fields):
    """Send a request and let it use its draft for a while."""
    request = world.request(**{"max_tokens": 60} | fields)
    world.send(request)
    while len(world.said(request.id)) < 20:
        world.core.step()
    return request


def finish(world, request):
    world.drain()
    assert (world.said(request.id), world.end(request.id).reason) == expected(request)
    return world.end(request.id).usage.speculation.counters


@asynchronous
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_that_dies_is_replaced_while_the_request_goes_on(world, temperature):
    one = world("toy:context=200")
    one.await_draft()
    first = begin(one, temperature=temperature)
    os.kill(one.process.pid, signal.SIGKILL)
    counters = finish(one, first)
    assert counters.accepted > 0  # of the time before
    assert one.process.state in ("failed", "loading", "ready")
    one.await_draft()
    assert one.process.restarts == 1
    again = finish(one, begin(one, temperature=temperature))
    assert again.accepted > 0


@asynchronous
def test_a_draft_that_hangs_is_replaced_and_hardly_waited_for(world):
    one = world("toy:context=200")
    one.await_draft()
    one.process._hang_s = 0.2
    pid = one.process.pid
    request = begin(one, max_tokens=190)
    os.kill(pid, signal.SIGSTOP)
    counters = finish(one, request)
    assert counters.target_idle_s < 1.0
    until = time.monotonic() + LIMIT_S
    while one.process.pid == pid and time.monotonic() < until:
        finish(one, begin(one))
    one.process._hang_s = 5.0
    one.await_draft()
    assert one.process.restarts == 1
    assert finish(one, begin(one)).accepted > 0


@asynchronous
def test_a_draft_that_fails_in_each_request_costs_none(world):
    one = world("toy:context=200,bug_id=9")
    one.await_draft()
    request = one.request(prompt=[9, 8], max_tokens=30)
    one.send(request)
    one.drain()
    assert one.said(request.id) == expected(request)[0]
    one.await_draft("failed")
    assert "a bug in the toy" in one.process.problem


@asynchronous
def test_a_draft_that_is_still_loading_takes_part_once_it_is_there(world):
    one = world("toy:context=200,load_ms=300")
    one.speculator.warm_up()
    assert one.process.state == "loading"
    request = one.request(max_tokens=190)
    one.send(request)
    while one.process.state == "loading" and one.core.busy:
        one.core.step()
    finish(one, request)
    one.await_draft()
    assert finish(one, begin(one)).accepted > 0


@asynchronous
@pytest.mark.parametrize(
    ("draft", "words"), [("toy:fail_load=1", "refuses"), ("toy:vocab=200", "knows 200 tokens")]
)
@pytest.mark.parametrize("mode", ["serial", "async"])
def test_a_draft_that_cannot_be_had(world, draft, words, mode):
    one = world(draft, mode=mode)
    if mode == "async":
        one.await_draft("failed")
    request = one.request(max_tokens=10)
    one.send(request)
    counters = finish(one, request)
    problem = one.process.problem if mode == "async" else one.speculator.problem
    assert words in problem
    assert counters.proposed_by.get("draft", 0) == 0


def test_a_serial_draft_that_fails_leaves_that_request_alone(world, caplog):
    one = world("toy:context=200,nan_id=9", mode="serial", eager=True)
    for _ in range(2):
        bad = one.request(prompt=[9, 9, 8])
        one.send(bad)
        assert finish(one, bad).proposed_by.get("draft", 0) == 0
        assert "left out of a request" in caplog.text
        good = one.request()
        one.send(good)
        assert finish(one, good).proposed_by["draft"] > 0


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 49152,
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 4, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu", "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip


def test_folders_that_are_no_drafts(tmp_path, share_models, monkeypatch):
    """With a real target: missing, empty and without weights."""
    from swiftspec_daemon.engine.config import WorkerConfig
    from swiftspec_daemon.engine.drafts import loading
    from swiftspec_daemon.engine.drafts.config import DraftConfig
    from swiftspec_daemon.errors import ModelError

    monkeypatch.setenv("SWIFTSPEC_HOME", str(tmp_path / "home"))
    share_models(tmp_path / "home")
    empty = tmp_path / "empty"
    empty.mkdir()
    half = tmp_path / "half"
    half.mkdir()
    (half / "config.json").write_text(json.dumps(CONFIG))
    for folder, words in [
        (tmp_path / "nowhere", "nowhere"), (empty, r"config\.json"), (half, "weights|safetensors"),
    ]:  # fmt: skip
        config = DraftConfig(draft=str(folder), target=WorkerConfig(model="default"))
        with pytest.raises(ModelError, match=words):
            loading.load(config, lambda phase, fraction: None)


def test_the_request_crosses_whole():
    """What the draft decides by is what the target decides by."""
    from swiftspec_daemon.engine.drafts.rules import RequestStates, pack
    from swiftspec_daemon.engine.generation import Vocabulary
    from swiftspec_daemon.speculation.pairing_messages import Begin, Epoch, Plan

    vocabulary = Vocabulary.build(toy.token_bytes(), [toy.EOS], 300)
    request = Generate(
        id=3, prompt=[5, 6], max_tokens=9, temperature=0.5, top_k=3, top_p=0.5, min_p=0.1,
        repetition_penalty=1.5, logit_bias={7: 1.0}, seed=4, required=b"ab", stop_ids=[8],
        stop=[b"x"], logprobs=2,
    )  # fmt: skip
    begun = Begin(Epoch(1, 1, 1), "", [5, 6, 99, 100], 2, pack(request), Plan(1, 1, 0, 0))
    mine = RequestStates(vocabulary).begin(begun)
    theirs = vocabulary.rules(request).begin([5, 6], 9).follow([99, 100])
    assert mine.rules.sampling == theirs.rules.sampling
    assert (mine.position, mine.room) == (theirs.position, theirs.room) == (4, 7)
    assert mine.rules.ends == theirs.rules.ends == {toy.EOS, 8}
    assert (mine.rules.required, mine.rules.stops) == (b"ab", (b"x",))
    assert sorted(mine.seen) == sorted(theirs.seen) == [5, 6, 99, 100]
