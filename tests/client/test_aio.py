"""The asynchronous client against a scripted websocket server."""

import asyncio

import pytest

from swiftspec_daemon.client import AsyncClient
from swiftspec_daemon.errors import DaemonNotRunning, ProtocolError, Unauthorized, UsageError
from swiftspec_daemon.protocol import codec
from swiftspec_daemon.protocol import messages as wire

START = wire.Position(0, 0)


async def answer_one(connection):
    """Stream "ab\\n", "c" to the first request and wait for the client to leave."""
    request = await connection.expect(wire.Complete)
    await connection.send(wire.Delta(id=request.id, text="ab\n"))
    await connection.send(wire.FirstLine(id=request.id, text="ab"))
    await connection.send(wire.Delta(id=request.id, text="c"))
    await connection.send(wire.Done(id=request.id, reason="stop", text="ab\nc"))
    await connection.socket.wait_closed()


async def test_a_completion_streams_and_ends(fake):
    async with (
        fake.fake_daemon(answer_one) as url,
        AsyncClient.connect(url=url, token=fake.TOKEN) as client,
    ):
        completion = await client.complete("file:///a", START)
        events = [event async for event in completion]
        assert [type(event) for event in events] == [
            wire.Delta,
            wire.FirstLine,
            wire.Delta,
            wire.Done,
        ]
        assert completion.text == "ab\nc"
        assert (await completion.result()).reason == "stop"


async def test_the_greeting_names_client_and_encodings(fake):
    async def nothing(connection):
        await connection.socket.wait_closed()

    async with fake.fake_daemon(nothing) as url:
        client = await AsyncClient.connect(
            url=url, token=fake.TOKEN, position_encodings=("utf-8", "utf-16")
        )
        assert client.position_encoding == "utf-8"
        assert client.server == "fake/9"
        assert client.capabilities == ["streaming"]
        await client.close()
        assert client.is_closed


async def test_documents_and_feedback_arrive_in_order(fake):
    received = asyncio.Event()
    seen = []

    async def collect(connection):
        while not isinstance(await connection.receive(), wire.Rejected):
            pass
        seen.extend(connection.received)
        received.set()

    edit = wire.Edit(start=START, end=START, text="y")
    async with (
        fake.fake_daemon(collect) as url,
        AsyncClient.connect(url=url, token=fake.TOKEN) as client,
    ):
        await client.open("u", "x", 1, "python")
        await client.change("u", 2, [edit])
        await client.change("u", 3, text="whole")
        await client.close_document("u")
        await client.shown(7)
        await client.accepted(7, 3)
        await client.rejected(8)
        await asyncio.wait_for(received.wait(), 20)
    assert seen[1:] == [
        wire.OpenDocument(uri="u", text="x", version=1, language="python"),
        wire.ChangeDocument(uri="u", version=2, edits=[edit]),
        wire.ChangeDocument(uri="u", version=3, text="whole"),
        wire.CloseDocument(uri="u"),
        wire.Shown(id=7),
        wire.Accepted(id=7, characters=3),
        wire.Rejected(id=8),
    ]


@pytest.mark.parametrize("way", ["break", "with", "task"])
async def test_leaving_early_cancels(fake, way):
    cancelled = asyncio.Event()

    async def stream(connection):
        request = await connection.expect(wire.Complete)
        await connection.send(wire.Delta(id=request.id, text="a"))
        assert await connection.expect(wire.Cancel) == wire.Cancel(id=request.id)
        cancelled.set()
        await connection.send(wire.Done(id=request.id, reason="cancelled", text="a"))
        await connection.socket.wait_closed()

    async with (
        fake.fake_daemon(stream) as url,
        AsyncClient.connect(url=url, token=fake.TOKEN) as client,
    ):
        completion = await client.complete("u", START)
        if way == "break":
            async for _ in completion:
                break
        elif way == "with":
            async with completion:
                pass
        else:
            arrived = asyncio.Event()

            async def read():
                async for _ in completion:
                    arrived.set()

            task = asyncio.create_task(read())
            await asyncio.wait_for(arrived.wait(), 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.wait_for(cancelled.wait(), 20)
        assert (await completion.result()).reason == "cancelled"


async def test_a_lost_connection_ends_everything_that_waits(fake):
    async def vanish(connection):
        await connection.expect(wire.Complete)
        await connection.expect(wire.GetStatus)
        connection.socket.transport.abort()

    told = []
    async with fake.fake_daemon(vanish) as url:
        client = await AsyncClient.connect(url=url, token=fake.TOKEN)
        client.on_close(told.append)
        completion = await client.complete("u", START)
        status = asyncio.create_task(client.status())
        with pytest.raises(DaemonNotRunning, match="lost"):
            async for _ in completion:
                pass
        with pytest.raises(DaemonNotRunning):
            await completion.result()
        with pytest.raises(DaemonNotRunning):
            await status
        with pytest.raises(DaemonNotRunning):
            await client.open("u", "x")
        await client.wait_closed()
        assert [type(error) for error in told] == [DaemonNotRunning]
        await client.close()


async def test_close_tells_without_an_error(fake):
    async def nothing(connection):
        await connection.socket.wait_closed()

    told = []
    async with fake.fake_daemon(nothing) as url:
        client = await AsyncClient.connect(url=url, token=fake.TOKEN)
        client.on_close(told.append)
        await client.close()
        client.on_close(told.append)
    assert told[0] is None
    assert len(told) == 2


async def test_status_once_and_by_subscription(fake):
    def status(uptime):
        model = wire.ModelStatus(name="m", state="loading")
        return wire.Status(version="9", pid=1, uptime_s=uptime, model=model)

    async def serve(connection):
        assert await connection.expect(wire.GetStatus) == wire.GetStatus()
        await connection.send(status(1))
        assert await connection.expect(wire.GetStatus) == wire.GetStatus(subscribe=True)
        await connection.send(status(2))
        await connection.send(status(3))
        await connection.socket.wait_closed()

    seen, whole = [], asyncio.Event()

    def note(message):
        seen.append(message.uptime_s)
        if len(seen) == 2:
            whole.set()

    async with (
        fake.fake_daemon(serve) as url,
        AsyncClient.connect(url=url, token=fake.TOKEN) as client,
    ):
        assert (await client.status()).uptime_s == 1
        await client.on_status(note)
        await asyncio.wait_for(whole.wait(), 20)
    assert seen == [2, 3]


async def test_errors_go_to_the_request_or_to_the_callback(fake):
    async def serve(connection):
        request = await connection.expect(wire.Complete)
        await connection.socket.send('{"type": "from the future", "x": 1}')
        await connection.socket.send("not json")
        await connection.send(wire.Error(code="document_error", message="lost track", uri="u"))
        await connection.send(wire.Error(code="invalid_request", message="no", id=request.id))
        await connection.socket.wait_closed()

    errors = []
    async with (
        fake.fake_daemon(serve) as url,
        AsyncClient.connect(url=url, token=fake.TOKEN) as client,
    ):
        client.on_error(errors.append)
        done = await (await client.complete("u", START)).result()
    assert (done.reason, done.code, done.message) == ("error", "invalid_request", "no")
    assert [(error.code, error.uri) for error in errors] == [("document_error", "u")]


async def test_lone_surrogates_cross(fake):
    received = asyncio.Queue()

    async def collect(connection):
        await received.put(codec.decode_client_message(await connection.socket.recv()))

    async with (
        fake.fake_daemon(collect) as url,
        AsyncClient.connect(url=url, token=fake.TOKEN) as client,
    ):
        await client.open("u", "a\ud800b")
        message = await asyncio.wait_for(received.get(), 20)
    assert message.text == "a\ud800b"


async def test_a_wrong_token(fake):
    async with fake.fake_daemon(answer_one) as url:
        with pytest.raises(Unauthorized):
            await AsyncClient.connect(url=url, token="wrong")


async def test_nobody_there(unused_tcp_port):
    with pytest.raises(DaemonNotRunning, match="No daemon answers"):
        await AsyncClient.connect(url=f"ws://127.0.0.1:{unused_tcp_port}/v1/ws", token="t")


async def test_another_kind_of_server():
    async def http(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(http, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ProtocolError, match="404"):
        await AsyncClient.connect(url=f"ws://127.0.0.1:{port}/", token="t")
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "nonsense"])
async def test_a_url_that_is_none(url):
    with pytest.raises(UsageError, match="websocket"):
        await AsyncClient.connect(url=url, token="t")


async def test_a_refused_greeting(fake):
    async def refuse(connection):
        await connection.expect(wire.Hello)
        await connection.send(wire.Error(code="protocol_error", message="too old"))
        await connection.socket.wait_closed()

    async with fake.fake_daemon(refuse, greet=False) as url:
        with pytest.raises(ProtocolError, match="too old"):
            await AsyncClient.connect(url=url, token=fake.TOKEN)
