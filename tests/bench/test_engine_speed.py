"""Tokens per second are counted over what they say, and nothing is measured that did not happen."""

import pytest

from swiftspec_daemon.bench.engine_speed import decode_tok_s, prefill_tok_s
from swiftspec_daemon.engine.messages import Generate
from swiftspec_daemon.engine.scripted import Answer, ScriptedEngine
from swiftspec_daemon.errors import EngineError


async def test_decode_leaves_the_first_token_and_its_time_out():
    answer = Answer(ids=range(8), first_delay_s=0.5, delay_s=0.02)
    engine = ScriptedEngine(lambda request: answer)
    rate = await decode_tok_s(engine, [1, 2, 3], 8)
    assert 0 < rate <= 50  # each token comes at least 0.02 s after the one before it
    assert rate > 7 / 0.5  # with the first delay it would be slower than this


async def test_decode_of_a_text_that_ends_early_is_an_error():
    engine = ScriptedEngine(lambda request: [5, 6, 7])
    with pytest.raises(EngineError, match="too few"):
        await decode_tok_s(engine, [1], 64)


async def test_prefill_counts_the_prompt():
    def script(request: Generate) -> Answer:
        assert (len(request.prompt), request.max_tokens) == (512, 0)
        return Answer(first_delay_s=0.1)

    rate = await prefill_tok_s(ScriptedEngine(script), range(512), "a")
    assert 0 < rate <= 5120


async def test_a_request_that_fails_is_an_error():
    engine = ScriptedEngine(lambda request: Answer(reason="error", message="out of memory"))
    with pytest.raises(EngineError, match="out of memory"):
        await prefill_tok_s(engine, [1], "a")
