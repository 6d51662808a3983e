"""A running server on a port of its own, with a scripted engine, and a client that speaks JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
import websockets
from completion_fakes import FakeTokenizer, answer

from swiftspec_daemon.completion.service import CompletionService
from swiftspec_daemon.engine.scripted import ScriptedEngine
from swiftspec_daemon.server.app import create_app
from swiftspec_daemon.server.lifecycle import listen
from swiftspec_daemon.server.web import WebServer
from swiftspec_daemon.settings import ServerSettings, Settings

TOKEN = "t0ken_for-tests-" + "x" * 20
PAGE = "http://localhost:4173"
"""An allowed origin."""
LIMIT = 4 * 1024 * 1024
PATIENCE_S = 30


@dataclass
class Server:
    """What a test sees of a server."""

    port: int
    engine: ScriptedEngine
    service: CompletionService
    stops: list[bool] = field(default_factory=list)
    """Wishes to end, as `when_idle`."""
    token: str = TOKEN

    @property
    def host(self):
        return f"127.0.0.1:{self.port}"

    async def connect(self, *, hello=True, encoding="utf-16", headers=None, **options):
        """A websocket, greeted unless told otherwise."""
        given = {"Authorization": f"Bearer {TOKEN}"} if headers is None else headers
        options.setdefault("subprotocols", ["swiftspec.v1"])
        connection = await websockets.connect(
            f"ws://{self.host}/v1/ws",
            additional_headers=given,
            compression=None,
            max_size=None,
            proxy=None,
            **options,
        )
        client = Client(connection)
        if hello:
            await client.send(type="hello", client="tests/1", position_encodings=[encoding])
            assert (await client.receive())["type"] == "welcome"
        return client

    async def http(self, method, path, *, headers=None, body=b"", token=TOKEN):
        """Status, headers and body of a bare HTTP/1.1 request."""
        lines = {"Host": self.host, "Connection": "close", "Content-Length": str(len(body))}
        if token:
            lines["Authorization"] = f"Bearer {token}"
        lines.update(headers or {})
        head = "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v is not None)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        async with asyncio.timeout(PATIENCE_S):
            reply = await reader.read()
        writer.close()
        top, _, content = reply.partition(b"\r\n\r\n")
        status_line, *header_lines = top.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in header_lines)
        return int(status_line.split()[1]), {k.lower(): v for k, v in pairs}, content


class Client:
    """One connection's end, in plain JSON."""

    def __init__(self, connection):
        self.connection = connection

    async def send(self, **message):
        await self.connection.send(json.dumps(message))

    async def receive(self):
        async with asyncio.timeout(PATIENCE_S):
            return json.loads(await self.connection.recv())

    async def open(self, text, uri="file:///a.py", version=1, language="python"):
        await self.send(type="open", uri=uri, text=text, version=version, language=language)

    async def ask(self, line=0, character=0, uri="file:///a.py", id=1, **fields):
        position = _position((line, character))
        await self.send(type="complete", id=id, uri=uri, position=position, **fields)

    async def answer(self, id=1):
        """All messages about a completion, up to its `done`."""
        messages = []
        while not messages or messages[-1]["type"] != "done":
            message = await self.receive()
            assert message["type"] != "error", message
            if message.get("id") == id:
                messages.append(message)
        return messages

    async def change(self, *edits, version, uri="file:///a.py"):
        """Edits as ((line, character), (line, character), text)."""
        wire = [
            {"start": _position(start), "end": _position(end), "text": text}
            for start, end, text in edits
        ]
        await self.send(type="change", uri=uri, version=version, edits=wire)

    async def complete(self, *position, id=1, **fields):
        """Ask and wait: the `done` message."""
        await self.ask(*position, id=id, **fields)
        return (await self.answer(id))[-1]

    async def close(self):
        await self.connection.close()


def _position(place):
    return {"line": place[0], "character": place[1]}


@contextlib.asynccontextmanager
async def running_server(script, *, settings=None, tokenizer=None, **engine_options):
    settings = settings or Settings(
        server=ServerSettings(allowed_origins=[PAGE], max_message_bytes=LIMIT)
    )
    engine = ScriptedEngine(script, **engine_options)
    service = CompletionService(engine, lambda: tokenizer or FakeTokenizer(), settings)
    stops = []
    app = create_app(service, engine, settings, TOKEN, stops.append)

    async def idle():
        return None

    web = WebServer(app, max_message_bytes=settings.server.max_message_bytes, wait_idle=idle)
    with listen("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(web.run_on(listener))
        await web.listening()
        try:
            yield Server(listener.getsockname()[1], engine, service, stops)
        finally:
            web.should_exit = True
            await serving
            await engine.stop()


@pytest.fixture
def serve():
    """`running_server`, for tests with a script of their own."""
    return running_server


@pytest.fixture
async def server():
    """A server whose engine always says the same two lines."""
    async with running_server(answer("foo(1)\n    return x\n")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_server():
    """As `server`, one for all tests of a module that runs in one event loop."""
    async with running_server(answer("foo(1)\n    return x\n")) as running:
        yield running
