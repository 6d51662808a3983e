"""Fetching before loading: order, failures, and giving up."""

import asyncio
import threading

import pytest

from swiftspec_daemon.engine.messages import Generate
from swiftspec_daemon.engine.scripted import ScriptedEngine
from swiftspec_daemon.errors import DownloadError, EngineError
from swiftspec_daemon.server import fetching
from swiftspec_daemon.server.fetching import FetchingEngine

REQUEST = Generate(id=0, prompt=[1], max_tokens=8)


class Download:
    """A fetch that waits until it may go on."""

    def __init__(self) -> None:
        self.calls = 0
        self.proceed = threading.Event()
        self.error: Exception | None = None

    def __call__(self, progress) -> None:
        self.calls += 1
        progress("downloading", 0.5)
        while not self.proceed.wait(0.01):
            progress("downloading", 0.5)
        if self.error is not None:
            raise self.error


@pytest.fixture
def download():
    fetch = Download()
    yield fetch
    fetch.proceed.set()


async def until(engine, condition):
    """Wait for a status of which `condition` holds."""
    met = asyncio.Event()
    engine.on_status(lambda status: met.set() if condition(status) else None)
    if not condition(engine.status):
        await asyncio.wait_for(met.wait(), 20)


async def test_the_model_is_loaded_once_its_files_are_there(download):
    inner = ScriptedEngine(lambda request: [7, 8])
    engine = FetchingEngine(inner, download)
    assert engine.status.state == "unloaded"
    await engine.start()
    await until(engine, lambda status: status.phase == "downloading")
    assert (engine.status.state, engine.status.fraction) == ("loading", 0.5)
    assert inner.status.state == "unloaded"
    download.proceed.set()
    assert (await engine.ready()).model == "scripted"
    assert engine.status.state == "ready"
    await engine.start()
    assert download.calls == 1


async def test_a_request_waits_for_the_files(download):
    engine = FetchingEngine(ScriptedEngine(lambda request: [7, 8]), download)
    ids = []

    async def ask():
        async for answer in engine.generate(REQUEST):
            ids.extend(getattr(answer, "ids", []))

    request = asyncio.create_task(ask())
    await until(engine, lambda status: status.phase == "downloading")
    assert ids == []
    download.proceed.set()
    await asyncio.wait_for(request, 20)
    assert ids == [7, 8]


async def test_another_thread_waits_for_the_files(download):
    engine = FetchingEngine(ScriptedEngine(lambda request: []), download)
    with pytest.raises(EngineError, match="started"):
        engine.wait_files()
    await engine.start()
    waiting = asyncio.create_task(asyncio.to_thread(engine.wait_files))
    await until(engine, lambda status: status.phase == "downloading")
    assert not waiting.done()
    download.proceed.set()
    await asyncio.wait_for(waiting, 20)
    engine.wait_files()


async def test_giving_up_a_request_does_not_stop_the_download(download):
    engine = FetchingEngine(ScriptedEngine(lambda request: []), download)
    request = asyncio.create_task(engine.ready())
    await until(engine, lambda status: status.phase == "downloading")
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    download.proceed.set()
    await engine.ready()
    assert download.calls == 1


async def test_closing_a_request_cancels_it_at_the_engine(download):
    inner = ScriptedEngine(lambda request: [1, 2, 3])
    engine = FetchingEngine(inner, download)
    download.proceed.set()
    answers = engine.generate(REQUEST)
    await anext(answers)
    await answers.aclose()
    assert len(inner.cancelled) == 1


async def test_a_failure_is_told_to_all_and_tried_again_later(download, monkeypatch):
    engine = FetchingEngine(ScriptedEngine(lambda request: []), download)
    download.error = DownloadError("No network.", "Plug it in.")
    download.proceed.set()
    with pytest.raises(DownloadError, match="No network"):
        await engine.ready()
    status = engine.status
    assert (status.state, status.code) == ("failed", "download_failed")
    assert (status.message, status.hint) == ("No network.", "Plug it in.")
    with pytest.raises(DownloadError, match="No network"):
        await engine.ready()
    assert download.calls == 1
    monkeypatch.setattr(fetching, "RETRY_AFTER_S", 0.0)
    download.error = None
    await engine.ready()
    assert download.calls == 2
    assert engine.status.state == "ready"


async def test_what_should_not_happen_is_an_engine_error(download):
    engine = FetchingEngine(ScriptedEngine(lambda request: []), download)
    download.error = RuntimeError("boom")
    download.proceed.set()
    with pytest.raises(EngineError, match="boom"):
        await engine.ready()


async def test_stopping_during_the_download(download):
    engine = FetchingEngine(ScriptedEngine(lambda request: []), download)
    await engine.start()
    await until(engine, lambda status: status.phase == "downloading")
    request = asyncio.create_task(engine.ready())
    await engine.stop()
    with pytest.raises(EngineError, match="stopped"):
        await request
