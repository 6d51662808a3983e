"""The scripted engine keeps the interface's promises."""

import asyncio

import pytest

from swiftspec_daemon.engine.messages import Finished, Generate, Tokens
from swiftspec_daemon.engine.scripted import Answer, ScriptedEngine
from swiftspec_daemon.errors import EngineError, ModelNotFound

from .waiting import until


def request(**fields):
    return Generate(**{"id": 0, "prompt": [1, 2], "max_tokens": 10} | fields)


async def collect(engine, wanted):
    return [event async for event in engine.generate(wanted)]


def ids(events):
    return [token for event in events if isinstance(event, Tokens) for token in event.ids]


async def test_mapping_and_callable():
    by_prompt = ScriptedEngine({(1, 2): [7, 8, 9]})
    events = await collect(by_prompt, request())
    assert ids(events) == [7, 8, 9]
    assert events[-1].reason == "stop"
    assert events[-1].usage.new_tokens == 3
    assert ids(await collect(by_prompt, request(prompt=[5]))) == []
    by_call = ScriptedEngine(lambda r: [*r.prompt, r.max_tokens])
    assert ids(await collect(by_call, request())) == [1, 2, 10]
    assert [r.id for r in by_prompt.requests] == [1, 2]


@pytest.mark.parametrize(
    ("fields", "said", "reason"),
    [
        ({"max_tokens": 2}, [7, 8], "length"),
        ({"max_tokens": 3}, [7, 8, 9], "stop"),
        ({"max_tokens": 0}, [], "length"),
        ({"stop_ids": [9, 8]}, [7], "stop"),
    ],
)
async def test_limits(fields, said, reason):
    events = await collect(ScriptedEngine({(1, 2): [7, 8, 9]}), request(**fields))
    assert (ids(events), events[-1].reason) == (said, reason)


async def test_batches_and_delays():
    engine = ScriptedEngine(lambda r: Answer([1, 2, 3], batch=2, first_delay_s=0.01, delay_s=0.01))
    events = await collect(engine, request())
    assert [event.ids for event in events[:-1]] == [[1, 2], [3]]
    assert isinstance(events[-1], Finished)


async def test_failures():
    failing = ScriptedEngine(lambda r: Answer([1], fails=EngineError("The worker is lost.")))
    events = failing.generate(request())
    assert (await anext(events)).ids == [1]
    with pytest.raises(EngineError, match="lost"):
        await anext(events)
    assert failing.status.running == 0
    told = ScriptedEngine(lambda r: Answer(reason="error", code="overloaded", message="Full."))
    (end,) = await collect(told, request())
    assert (end.reason, end.code, end.message) == ("error", "overloaded", "Full.")
    absent = ScriptedEngine({}, load_error=ModelNotFound("No such model."))
    with pytest.raises(ModelNotFound):
        await collect(absent, request())
    assert absent.status.state == "failed"
    assert absent.status.code == "model_not_found"


async def test_closing_cancels():
    engine = ScriptedEngine(lambda r: Answer(range(100), delay_s=0.001))
    events = engine.generate(request(max_tokens=100))
    await anext(events)
    assert engine.status.running == 1
    await events.aclose()
    assert engine.cancelled == [1]
    assert engine.status.running == 0


async def test_stop_ends_requests_as_cancelled():
    engine = ScriptedEngine(lambda r: Answer([1, 2], delay_s=600))
    task = asyncio.create_task(collect(engine, request()))
    await until(engine, lambda status: status.running)
    await engine.stop()
    events = await task
    assert events[-1].reason == "cancelled"
    with pytest.raises(EngineError):
        await engine.start()


async def test_states():
    engine = ScriptedEngine({})
    states = []
    engine.on_status(lambda status: states.append(status.state))
    assert engine.status.state == "unloaded"
    await engine.ready()
    await engine.unload()
    await engine.ready()
    assert states == ["loading", "ready", "unloaded", "loading", "ready"]
