"""The blocking client against a scripted websocket server."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from swiftspec_daemon.client import Client
from swiftspec_daemon.errors import DaemonNotRunning, EngineError
from swiftspec_daemon.protocol import messages as wire

START = wire.Position(0, 0)


@contextmanager
def running(fake, handler):
    """A fake daemon on a thread of its own; yields its URL."""
    started, url = threading.Event(), []

    async def main():
        stop = asyncio.Event()
        async with fake.fake_daemon(handler) as address:
            url.extend([address, asyncio.get_running_loop(), stop])
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    assert started.wait(20)
    try:
        yield url[0]
    finally:
        url[1].call_soon_threadsafe(url[2].set)
        thread.join()


def test_text_streams(fake):
    async def serve(connection):
        request = await connection.expect(wire.Complete)
        assert request.trigger == "invoked"
        for piece in ("a", "b"):
            await connection.send(wire.Delta(id=request.id, text=piece))
        await connection.send(wire.Done(id=request.id, reason="stop", text="ab"))
        await connection.socket.wait_closed()

    with running(fake, serve) as url, Client(url=url, token=fake.TOKEN) as client:
        completion = client.complete("u", START)
        assert list(completion) == ["a", "b"]
        assert completion.result().text == completion.text == "ab"


def test_a_failed_request_raises(fake):
    async def serve(connection):
        request = await connection.expect(wire.Complete)
        await connection.send(
            wire.Done(id=request.id, reason="error", code="engine_error", message="broken")
        )
        await connection.socket.wait_closed()

    with (
        running(fake, serve) as url,
        Client(url=url, token=fake.TOKEN) as client,
        pytest.raises(EngineError, match="broken"),
    ):
        list(client.complete("u", START))


def test_leaving_early_cancels(fake):
    cancelled = threading.Event()

    async def serve(connection):
        request = await connection.expect(wire.Complete)
        await connection.send(wire.Delta(id=request.id, text="a"))
        await connection.expect(wire.Cancel)
        cancelled.set()
        await connection.socket.wait_closed()

    with running(fake, serve) as url, Client(url=url, token=fake.TOKEN) as client:
        for _ in client.complete("u", START):
            break
        assert cancelled.wait(20)


def test_a_lost_daemon_is_an_error_not_a_hang(fake):
    async def vanish(connection):
        request = await connection.expect(wire.Complete)
        await connection.send(wire.Delta(id=request.id, text="a"))
        connection.socket.transport.abort()

    with (
        running(fake, vanish) as url,
        Client(url=url, token=fake.TOKEN) as client,
        pytest.raises(DaemonNotRunning),
    ):
        list(client.complete("u", START))


def test_a_closed_client_says_so(fake):
    async def nothing(connection):
        await connection.socket.wait_closed()

    with running(fake, nothing) as url:
        client = Client(url=url, token=fake.TOKEN)
        client.close()
        client.close()
        with pytest.raises(DaemonNotRunning, match="closed"):
            client.open("u", "x")
