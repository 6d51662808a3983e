"""Signals, stopping and exit statuses of the web server."""

import asyncio
import signal

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from swiftspec_daemon.server.lifecycle import listen
from swiftspec_daemon.server.web import WebServer


class Serving:
    """A web server on a free port; idle when `idle` is set."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("hello"))])
        self.web = WebServer(app, max_message_bytes=1000, wait_idle=self.idle.wait)
        self.listener = listen("127.0.0.1", 0)
        self.port = self.listener.getsockname()[1]

    async def start(self) -> None:
        self.task = asyncio.create_task(self.web.run_on(self.listener))
        await asyncio.wait_for(self.web.listening(), 20)

    async def get(self) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    async def ended(self) -> int:
        await asyncio.wait_for(self.task, 20)
        return self.web.exit_status


@pytest.fixture
async def serving():
    server = Serving()
    await server.start()
    yield server
    server.web.should_exit = server.web.force_exit = True
    await server.task


async def test_it_serves_and_stops(serving):
    answer = await serving.get()
    assert answer.endswith(b"hello")
    assert b"server:" not in answer.lower()
    serving.web.stop()
    assert await serving.ended() == 0
    with pytest.raises(ConnectionError):
        await serving.get()


async def test_when_idle_means_when_idle(serving):
    serving.idle.clear()
    serving.web.stop(when_idle=True)
    assert (await serving.get()).endswith(b"hello")
    assert not serving.web.should_exit
    serving.idle.set()
    assert await serving.ended() == 0


async def test_a_signal_ends_in_order(serving):
    signal.raise_signal(signal.SIGTERM)
    assert await serving.ended() == 0


async def test_a_second_signal_ends_at_once(serving):
    serving.idle.clear()
    serving.web.stop(when_idle=True)
    signal.raise_signal(signal.SIGINT)
    assert await serving.ended() == 130


async def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    server = Serving()
    await server.start()
    assert signal.getsignal(signal.SIGTERM) != before
    server.web.stop()
    await server.ended()
    assert signal.getsignal(signal.SIGTERM) == before
