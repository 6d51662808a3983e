"""A websocket server that follows a script, so that the client is tested without a daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve

from swiftspec_daemon.protocol import messages as wire

TOKEN = "secret"
Handler = Callable[["FakeConnection"], Awaitable[None]]


class FakeConnection:
    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.received: list[wire.ClientMessage] = []

    async def send(self, message: wire.Message) -> None:
        await self.socket.send(msgspec.json.encode(message).decode())

    async def receive(self):
        message = msgspec.json.decode(await self.socket.recv(), type=wire.ClientMessage)
        self.received.append(message)
        return message

    async def expect(self, kind):
        message = await self.receive()
        assert isinstance(message, kind), message
        return message


@asynccontextmanager
async def fake_daemon(handler: Handler, *, greet: bool = True) -> AsyncIterator[str]:
    """The URL of a server that welcomes each client and then runs `handler`."""

    def authorize(socket: ServerConnection, request):
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return socket.respond(401, "no")
        return None

    async def serve_one(socket: ServerConnection) -> None:
        connection = FakeConnection(socket)
        if greet:
            hello = await connection.expect(wire.Hello)
            await connection.send(
                wire.Welcome(
                    protocol=1,
                    server="fake/9",
                    position_encoding=hello.position_encodings[0],
                    capabilities=["streaming"],
                )
            )
        await handler(connection)

    server: Server
    async with serve(
        serve_one,
        "127.0.0.1",
        0,
        process_request=authorize,
        subprotocols=[wire.SUBPROTOCOL],
        compression=None,
    ) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"ws://127.0.0.1:{port}/v1/ws"
