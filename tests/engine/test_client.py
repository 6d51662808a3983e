"""The daemon's side of the worker: requests, cancellation, loss and recovery, unloading."""

import asyncio
import contextlib
import os

import psutil
import pytest

from swiftspec_daemon.engine import client as client_module
from swiftspec_daemon.engine import toy
from swiftspec_daemon.engine.client import EngineClient
from swiftspec_daemon.engine.config import WorkerConfig
from swiftspec_daemon.engine.messages import Finished, Generate, Priority, Tokens
from swiftspec_daemon.engine.recovery import BackOff, error_from_code
from swiftspec_daemon.errors import (
    ContextTooLong,
    EngineError,
    ModelError,
    ModelNotFound,
    SwiftSpecError,
    UsageError,
)
from swiftspec_daemon.parallel.processes import StopTimes
from swiftspec_daemon.settings import ModelSettings

from .naive import run
from .waiting import until

PROMPT = toy.encode(b"def add(a, b):\n    return a + b\n\ndef sub(")


@pytest.fixture
async def start():
    """Make engines that are stopped when the test ends, with their workers gone."""
    engines = []

    def make(model="toy:", back_off=None, idle_unload_s=0.0, **config):
        engine = EngineClient(
            WorkerConfig(model=model, **config),
            back_off=back_off or BackOff(0.0),
            idle_unload_s=idle_unload_s,
            stop_times=StopTimes(ask=20),
        )
        engines.append(engine)
        return engine

    yield make
    pids = [engine.status.worker_pid for engine in engines]
    for engine in engines:
        await engine.stop()
    assert not any(psutil.pid_exists(pid) for pid in pids if pid)


def request(prompt=PROMPT, **fields):
    return Generate(**{"id": 0, "prompt": prompt, "max_tokens": 5} | fields)


async def collect(engine, wanted):
    """All tokens of a request, and its Finished."""
    tokens: list[int] = []
    async for event in engine.generate(wanted):
        if isinstance(event, Finished):
            return tokens, event
        tokens += event.ids
    raise AssertionError("no Finished")


async def until_state(engine, *states):
    await until(engine, lambda status: status.state in states)


async def test_first_request_loads_and_says_what_a_fresh_model_says(start):
    engine = start("toy:load_ms=100")
    states = []
    engine.on_status(lambda status: states.append((status.state, status.phase)))
    assert engine.status.state == "unloaded"
    tokens, finished = await collect(engine, request())
    assert (tokens, finished.reason) == run(toy.ToyOptions(), request())
    assert ("loading", "reading weights") in states
    assert states[-1][0] == "ready"
    assert engine.status.ready.model == "toy"
    assert engine.status.running == 0
    assert psutil.Process(engine.status.worker_pid).ppid() == os.getpid()


async def test_closing_the_generator_cancels_and_keeps_the_kv(start):
    engine = start("toy:step_ms=5")
    wanted = request(max_tokens=400, sequence="doc")
    async with contextlib.aclosing(engine.generate(wanted)) as events:
        said = [event.ids[0] async for event, _ in zip_async(events, range(3))]
    _, finished = await collect(engine, request([*PROMPT, *said, 5], sequence="doc"))
    assert finished.usage.cached_tokens >= len(PROMPT) + len(said) - 1
    assert finished.usage.queue_ms < 1000
    assert engine.status.running == 0


async def zip_async(events, others):
    for other in others:
        yield await anext(events), other


async def test_a_cancelled_task_cancels_its_request(start):
    engine = start("toy:step_ms=5")
    await engine.ready()
    task = asyncio.create_task(collect(engine, request(max_tokens=400)))
    await until(engine, lambda status: status.running)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(engine, lambda status: not status.running)


async def test_requests_side_by_side_get_their_own_tokens(start):
    engine = start("toy:step_ms=1")
    wanted = [request([5 + i, 6], max_tokens=8, seed=i, temperature=i % 2) for i in range(6)]
    answers = await asyncio.gather(*(collect(engine, one) for one in wanted))
    assert [tokens for tokens, _ in answers] == [run(toy.ToyOptions(), one)[0] for one in wanted]


async def test_a_low_priority_is_suspended_and_says_the_same(start):
    engine = start("toy:step_ms=3")
    low = request(max_tokens=40, priority=Priority.RAW)
    events = engine.generate(low)
    tokens = [*(await anext(events)).ids]
    _, first = await collect(engine, request([9, 8], priority=Priority.INVOKED))
    assert first.usage.queue_ms < 500
    async for event in events:
        if isinstance(event, Tokens):
            tokens += event.ids
    assert tokens == run(toy.ToyOptions(), low)[0]


async def test_look_ahead_is_dropped(start):
    engine = start("toy:step_ms=3")
    look_ahead = asyncio.create_task(
        collect(engine, request(max_tokens=400, priority=Priority.LOOK_AHEAD))
    )
    await until(engine, lambda status: status.running)
    await collect(engine, request([9, 8]))
    _, finished = await look_ahead
    assert finished.reason == "dropped"


async def test_fifty_quick_cancels(start):
    engine = start("toy:step_ms=1")
    await engine.ready()
    for cycle in range(50):
        events = engine.generate(request([*PROMPT, cycle + 5], max_tokens=400, sequence="doc"))
        if cycle % 3:
            await anext(events)
            await events.aclose()
        else:
            task = asyncio.create_task(anext(events))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    tokens, _ = await collect(engine, request(sequence="doc"))
    assert tokens == run(toy.ToyOptions(), request())[0]
    assert engine.status.running == 0


async def test_errors_of_a_request_come_in_its_finished(start):
    engine = start("toy:context=32")
    _, finished = await collect(engine, request([5] * 40))
    assert (finished.reason, finished.code) == ("error", "context_too_long")
    assert (await collect(engine, request([5])))[1].reason == "length"


@pytest.mark.parametrize("how", ["abort", "kill"])
async def test_a_lost_worker_is_an_error_and_the_next_request_starts_another(start, how):
    engine = start("toy:step_ms=5,crash_id=299")
    events = engine.generate(request(max_tokens=400))
    await anext(events)
    pid = engine.status.worker_pid
    if how == "kill":
        psutil.Process(pid).kill()
    else:
        crash = asyncio.create_task(collect(engine, request([299], priority=Priority.INVOKED)))
    with pytest.raises(EngineError, match="ended unexpectedly by signal") as caught:
        async for _ in events:
            pass
    assert "next request starts it again" in caught.value.hint
    if how == "abort":
        with pytest.raises(EngineError):
            await crash
    assert engine.status.state == "failed"
    assert engine.status.code == "engine_error"
    tokens, _ = await collect(engine, request())
    assert tokens == run(toy.ToyOptions(), request())[0]
    assert engine.status.worker_pid != pid


async def test_a_bug_in_the_worker_is_told_and_ends_it(start):
    engine = start("toy:bug_id=299")
    await engine.ready()
    pid = engine.status.worker_pid
    with pytest.raises(EngineError, match="worker failed: ZeroDivisionError: a bug in the toy"):
        await collect(engine, request([299]))
    assert engine.status.state == "failed"
    assert not psutil.pid_exists(pid)
    assert (await collect(engine, request()))[1].reason == "length"


async def test_a_failed_load_is_the_models_error_and_is_not_repeated_at_once(start):
    engine = start("toy:fail_load=true", back_off=BackOff(first_s=600))
    starts = []
    engine.on_status(lambda s: starts.append(1) if s.phase == "starting" else None)
    with pytest.raises(ModelError, match="refuses to load"):
        await engine.ready()
    with pytest.raises(ModelError, match="refuses to load"):
        await collect(engine, request())
    begun = len(starts)
    for _ in range(5):
        with pytest.raises(ModelError, match="next try is possible in") as caught:
            await collect(engine, request())
    assert "Ask for another one" in caught.value.hint
    assert len(starts) == begun
    assert engine.status.state == "failed"


async def test_a_cancel_while_loading_does_not_stop_the_loading(start):
    engine = start("toy:load_ms=300")
    waiting = asyncio.create_task(collect(engine, request()))
    await until_state(engine, "loading")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until_state(engine, "ready", "failed")
    assert engine.status.state == "ready"


async def test_unload_lets_requests_end_and_the_next_one_loads_again(start):
    engine = start("toy:step_ms=3")
    events = engine.generate(request(max_tokens=20))
    await anext(events)
    pid = engine.status.worker_pid
    unloading = asyncio.create_task(engine.unload())
    await asyncio.sleep(0)
    late = asyncio.create_task(collect(engine, request([7])))
    rest = [event async for event in events]
    assert rest[-1].reason == "length"
    await unloading
    assert not psutil.pid_exists(pid)
    tokens, _ = await late
    assert tokens == run(toy.ToyOptions(), request([7]))[0]
    assert engine.status.worker_pid not in (None, pid)


async def test_unload_while_loading_serves_who_waits(start):
    engine = start("toy:load_ms=200")
    waiting = asyncio.create_task(collect(engine, request()))
    await until_state(engine, "loading")
    await engine.unload()
    assert (await waiting)[1].reason == "length"


async def test_idle_unload_and_return(start):
    engine = start(idle_unload_s=0.2)
    await collect(engine, request())
    pid = engine.status.worker_pid
    await until_state(engine, "unloaded")
    assert not psutil.pid_exists(pid)
    tokens, _ = await collect(engine, request())
    assert tokens == run(toy.ToyOptions(), request())[0]


async def test_stop_ends_requests_as_cancelled(start):
    engine = start("toy:step_ms=5")
    events = engine.generate(request(max_tokens=400))
    await anext(events)
    stopping = asyncio.create_task(engine.stop())
    rest = [event async for event in events]
    assert rest[-1].reason == "cancelled"
    await stopping
    assert engine.status.state == "unloaded"
    with pytest.raises(EngineError, match="stopped"):
        await engine.ready()
    await engine.stop()


@pytest.mark.parametrize("when", ["at once", "loading"])
async def test_stop_before_ready(start, when):
    engine = start("toy:load_ms=10000")
    waiting = asyncio.create_task(engine.ready())
    if when == "loading":
        await until(engine, lambda status: status.fraction)
    else:
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await engine.stop()
    with pytest.raises(EngineError, match="stopped while"):
        await waiting


async def test_a_listener_that_fails_is_no_harm(start, caplog):
    engine = start()
    engine.on_status(lambda status: 1 / 0)
    assert (await collect(engine, request()))[1].reason == "length"
    assert "status callback failed" in caplog.text


async def test_nonsense_from_the_worker_is_an_error(start, monkeypatch, tmp_path):
    (tmp_path / "nonsense_worker.py").write_text(
        "import os, time\nos.write(1, b'\\2\\0\\0\\0\\xc1\\xc1')\ntime.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(client_module, "WORKER_MODULE", "nonsense_worker")
    with pytest.raises(EngineError, match="answers nonsense"):
        await start().ready()


async def test_a_worker_that_cannot_be_started_is_an_error(start, monkeypatch):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(EngineError, match="cannot be started"):
        await start().ready()


def test_back_off_grows_and_forgets():
    back_off = BackOff(first_s=1, longest_s=5)
    cause = ModelNotFound("No such model.", "Name another.")

    def possible_at(now):
        with contextlib.suppress(ModelNotFound):
            back_off.check(now, cause)
            return True
        return False

    back_off.failed(100)
    assert possible_at(100)
    waits = []
    for _ in range(6):
        back_off.failed(100)
        waits.append(next(t for t in range(100) if possible_at(100 + t)))
    assert waits == [1, 2, 4, 5, 5, 5]
    back_off.succeeded()
    back_off.failed(200)
    assert possible_at(200)


def test_errors_keep_their_kind():
    assert type(error_from_code("context_too_long", "m")) is ContextTooLong
    assert type(error_from_code("model_error", "m")) is ModelError
    assert type(error_from_code("no_such_code", "m")) is EngineError
    assert isinstance(error_from_code("internal", "m"), SwiftSpecError)


def test_config_from_settings():
    settings = ModelSettings(target="x", backend="native", context=128, threads=2, kv_slots=3)
    config = WorkerConfig.from_settings(settings)
    assert (config.model, config.backend, config.context) == ("x", "native", 128)
    assert (config.threads, config.kv_slots) == (2, 3)


@pytest.mark.parametrize("fields", [{"seed": 2**70}, {"sequence": "\ud800"}])
async def test_a_request_that_cannot_be_sent_leaves_nothing_behind(start, fields):
    engine = start(idle_unload_s=0.05)
    with pytest.raises(UsageError):
        await collect(engine, request(**fields))
    assert engine.status.running == 0
    await until_state(engine, "unloaded")  # it is not waited for
    tokens, _ = await collect(engine, request())
    assert len(tokens) == 5
