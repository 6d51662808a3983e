"""Tokens per second are counted over what they say, and nothing is measured that did not happen.

The clock is the script's: each answer says how long it took.
"""

from collections.abc import AsyncIterator

import pytest

from swiftspec_daemon.bench import engine_speed
from swiftspec_daemon.engine.messages import Finished, Generate, Tokens, Usage
from swiftspec_daemon.engine.scripted import Answer, ScriptedEngine
from swiftspec_daemon.errors import EngineError

Timed = tuple[float, Tokens | Finished]


class TimedEngine(ScriptedEngine):
    """Says events, each a number of seconds (by a clock of its own) after the one before."""

    def __init__(self, events: list[Timed], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__({})
        self.events = events
        self.now = 100.0
        monkeypatch.setattr(engine_speed.time, "perf_counter", lambda: self.now)

    async def generate(self, request: Generate) -> AsyncIterator[Tokens | Finished]:
        self.requests.append(request)
        for seconds, event in self.events:
            self.now += seconds
            yield event


def finished(cached: int = 0) -> Timed:
    return 9.0, Finished(id=1, reason="length", usage=Usage(cached_tokens=cached))


async def test_decode_leaves_the_first_token_and_its_time_out(monkeypatch: pytest.MonkeyPatch):
    events: list[Timed] = [(5.0, Tokens(id=1, ids=[7]))]
    events += [(0.5, Tokens(id=1, ids=[8])), (0.5, Tokens(id=1, ids=[9, 10])), finished()]
    engine = TimedEngine(events, monkeypatch)
    assert await engine_speed.decode_tok_s(engine, [1, 2], 4) == 3.0
    assert engine.requests[0].speculation == "off"  # it is the figure of plain decoding


async def test_decode_of_a_text_that_ends_early_is_an_error():
    engine = ScriptedEngine(lambda request: [5, 6, 7])
    with pytest.raises(EngineError, match="too few"):
        await engine_speed.decode_tok_s(engine, [1], 64)


async def test_prefill_counts_the_prompt_and_asks_for_no_tokens(monkeypatch: pytest.MonkeyPatch):
    engine = TimedEngine([finished()], monkeypatch)
    assert await engine_speed.prefill_tok_s(engine, range(450), "a") == 50.0
    request = engine.requests[0]
    assert (len(request.prompt), request.max_tokens, request.speculation) == (450, 0, "off")


async def test_prefill_of_a_cached_prompt_is_an_error(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(EngineError, match="12 prompt tokens were cached"):
        await engine_speed.prefill_tok_s(
            TimedEngine([finished(cached=12)], monkeypatch), range(99), "a"
        )


async def test_a_request_that_fails_is_an_error():
    engine = ScriptedEngine(
        lambda request: Answer(ids=[1, 2], reason="error", message="out of memory")
    )
    with pytest.raises(EngineError, match="out of memory"):
        await engine_speed.decode_tok_s(engine, [1], 8)
