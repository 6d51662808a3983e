"""A daemon that follows a script and an editor that speaks raw JSON-RPC, for the bridge's tests."""

from __future__ import annotations

import asyncio
import contextlib
import http
import itertools
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from swiftspec_daemon.documents import Document
from swiftspec_daemon.protocol import messages as wire
from swiftspec_daemon.protocol.record import DaemonRecord, write_record

TOKEN = "secret"
LIMIT_S = 30


class ScriptedDaemon:
    """Keeps documents as a daemon does, and answers completions by `script`.

    `script(daemon, socket, request)` sends what it likes; the default answers at once with `text`.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.text = "hello"
        self.script: Callable[[Any, Any, Any], Awaitable[None]] = answer_at_once
        self.model = wire.ModelStatus(name="scripted", state="ready")
        self.documents: dict[str, Document] = {}
        self.seen: list[tuple[wire.Complete, str]] = []
        """Each completion request with the text before its position."""
        self.received: list[Any] = []
        self.hellos: list[wire.Hello] = []
        self.sockets: set[ServerConnection] = set()
        self.encoding: wire.PositionEncoding = "utf-16"
        self.largest_message = 2**26
        self.most_documents = 1000
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._server: Any = None

    def reset(self) -> None:
        """Forget what was asked, and the script."""
        self.text, self.script = "hello", answer_at_once
        self.seen.clear()
        self.received.clear()

    async def start(self) -> None:
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            0,
            process_request=_health_and_key,
            subprotocols=[wire.SUBPROTOCOL],
            compression=None,
            max_size=2**26,
        )
        write_daemon_record(self.home, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        (self.home / "state" / "daemon.json").unlink(missing_ok=True)
        self._server.close()
        await self._server.wait_closed()
        self.documents.clear()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that the daemon was told makes `condition` true."""
        async with asyncio.timeout(LIMIT_S), self._changed:
            await self._changed.wait_for(condition)

    def of_kind(self, kind: type) -> list[Any]:
        return [message for message in self.received if isinstance(message, kind)]

    async def send(self, socket: ServerConnection, message: wire.Message) -> None:
        with contextlib.suppress(ConnectionClosed):
            await socket.send(msgspec.json.encode(message).decode())

    async def announce(self) -> None:
        """Tell every client the status."""
        for socket in list(self.sockets):
            await self.send(socket, self._status())

    def _status(self) -> wire.Status:
        return wire.Status(version="99.0", pid=1, uptime_s=1.0, model=self.model)

    async def _serve(self, socket: ServerConnection) -> None:
        self.sockets.add(socket)
        try:
            async for frame in socket:
                if len(frame) > self.largest_message:
                    await socket.close(1009, "too large")
                    break
                message = msgspec.json.decode(frame, type=wire.ClientMessage)
                await self._take(socket, message)
                async with self._changed:
                    self.received.append(message)
                    self._changed.notify_all()
        except ConnectionClosed:
            pass
        finally:
            self.sockets.discard(socket)
            async with self._changed:
                self._changed.notify_all()

    async def _take(self, socket: ServerConnection, message: Any) -> None:
        if isinstance(message, wire.Hello):
            self.hellos.append(message)
            self.encoding = message.position_encodings[0]
            welcome = wire.Welcome(protocol=1, server="fake/9", position_encoding=self.encoding)
            await self.send(socket, welcome)
        elif isinstance(message, wire.OpenDocument) and (
            len(self.documents) >= self.most_documents and message.uri not in self.documents
        ):
            error = wire.Error(code="document_error", message="Too many.", uri=message.uri)
            await self.send(socket, error)
        elif isinstance(message, wire.OpenDocument):
            document = Document(message.text, uri=message.uri, version=message.version)
            document.language = message.language
            self.documents[message.uri] = document
        elif isinstance(message, wire.ChangeDocument):
            document = self.documents[message.uri]
            assert message.version > document.version
            if message.text is not None:
                document.replace(message.text, message.version)
            else:
                document.apply(message.edits, message.version, self.encoding)
        elif isinstance(message, wire.CloseDocument):
            del self.documents[message.uri]
        elif isinstance(message, wire.GetStatus):
            await self.send(socket, self._status())
        elif isinstance(message, wire.Complete):
            document = self.documents.get(message.uri)
            if document is None:
                done = wire.Done(id=message.id, reason="error", code="document_error")
                await self.send(socket, done)
                return
            assert message.version == document.version
            before = document.slice(0, document.offset(message.position, self.encoding))
            self.seen.append((message, before))
            task = asyncio.create_task(self.script(self, socket, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def write_daemon_record(home: Path, port: int) -> None:
    """Make clients that look in `home` find a daemon at `port`."""
    for name in ("state", "config"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "config" / "token").write_text(TOKEN)
    record = DaemonRecord(
        pid=os.getpid(),
        host="127.0.0.1",
        port=port,
        version="99.0",
        protocol=wire.PROTOCOL_VERSION,
        started=0.0,
    )
    write_record(home / "state" / "daemon.json", record)


async def answer_at_once(daemon: ScriptedDaemon, socket: ServerConnection, request: Any) -> None:
    """One delta, the first line, the end."""
    text = daemon.text
    await daemon.send(socket, wire.Delta(id=request.id, text=text))
    await daemon.send(socket, wire.FirstLine(id=request.id, text=text.partition("\n")[0]))
    timings = wire.Timings(total_ms=1.5, new_tokens=2)
    done = wire.Done(id=request.id, reason="stop", text=text, timings=timings)
    await daemon.send(socket, done)


async def answer_when_cancelled(
    daemon: ScriptedDaemon, socket: ServerConnection, request: Any
) -> None:
    """A delta, then nothing until the client cancels."""
    await daemon.send(socket, wire.Delta(id=request.id, text=daemon.text))
    await daemon.until(lambda: any(m.id == request.id for m in daemon.of_kind(wire.Cancel)))
    await daemon.send(socket, wire.Done(id=request.id, reason="cancelled", text=daemon.text))


def _health_and_key(socket: ServerConnection, request: Any) -> Any:
    if request.path == "/health":
        return socket.respond(http.HTTPStatus.OK, "{}")
    if request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return socket.respond(http.HTTPStatus.UNAUTHORIZED, "no")
    return None


class RpcFailure(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code = error["code"]


class Editor:
    """The bridge as a process, and our end of its pipes."""

    def __init__(self, process: asyncio.subprocess.Process, home: Path) -> None:
        self.process = process
        self.home = home
        self.notifications: list[dict[str, Any]] = []
        self.refusals: list[dict[str, Any]] = []
        """The errors that have no id: answers to what was no request."""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1000)
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, home: Path, *arguments: str) -> Editor:
        environment = dict(os.environ, SWIFTSPEC_HOME=str(home))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "swiftspec_daemon", "lsp", "--no-start", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            limit=2**26,
        )
        return cls(process, home)

    async def initialize(self, **params: Any) -> dict[str, Any]:
        inline = {"textDocument": {"inlineCompletion": {}}}
        result = await self.request("initialize", {"capabilities": inline, **params})
        self.notify("initialized", {})
        return result

    async def connected(self) -> None:
        """Wait until the bridge has reached the daemon."""
        await self.status_is("ready")

    async def status_is(self, state: str) -> dict[str, Any]:
        return await self.notified(
            "swiftspec/didChangeStatus", lambda params: params["state"] == state
        )

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send_raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def send_raw(self, data: bytes) -> None:
        self.process.stdin.write(data)

    def notify(self, method: str, params: Any) -> None:
        self.send({"method": method, "params": params})

    def ask(self, method: str, params: Any, number: int | None = None) -> asyncio.Future[Any]:
        """Send a request; its answer, or RpcFailure, comes in the future."""
        number = next(self._ids) if number is None else number
        answer = self.expect(number)
        self.send({"id": number, "method": method, "params": params})
        return answer

    def expect(self, number: int) -> asyncio.Future[Any]:
        """The answer to a request that is sent in another way."""
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        answer.number = number
        return answer

    async def request(self, method: str, params: Any) -> Any:
        async with asyncio.timeout(LIMIT_S):
            return await self.ask(method, params)

    async def notified(
        self, method: str, condition: Callable[[Any], bool] = lambda params: True
    ) -> Any:
        """The parameters of the first such notification, past or to come."""

        def found() -> dict[str, Any] | None:
            for message in self.notifications:
                if message["method"] == method and condition(message["params"]):
                    return message
            return None

        async with asyncio.timeout(LIMIT_S), self._news:
            await self._news.wait_for(lambda: found() is not None)
        return found()["params"]

    def of_method(self, method: str) -> list[Any]:
        return [m["params"] for m in self.notifications if m["method"] == method]

    def forget(self, method: str) -> None:
        """Forget the notifications of a method, so that `notified` waits for new ones."""
        self.notifications = [m for m in self.notifications if m["method"] != method]

    async def _read(self) -> None:
        stream = self.process.stdout
        while header := await stream.readline():
            length = 0
            while header.strip():
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
                header = await stream.readline()
            message = json.loads(await stream.readexactly(length))
            if "method" in message:
                async with self._news:
                    self.notifications.append(message)
                    self._news.notify_all()
                continue
            if message["id"] is None:
                self.refusals.append(message["error"])
                continue
            answer = self._answers.pop(message["id"])
            if answer.cancelled():
                continue
            if "error" in message:
                answer.set_exception(RpcFailure(message["error"]))
            else:
                answer.set_result(message["result"])

    async def read_to_the_end(self) -> None:
        """Read all that the bridge has written before it ended."""
        async with asyncio.timeout(LIMIT_S):
            await self._reader

    # --- shorthands -----------------------------------------------------------------------------

    def open(self, uri: str, text: str, language: str = "python") -> None:
        item = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, uri: str, line: int, character: int, text: str, version: int = 2) -> None:
        where = {"line": line, "character": character}
        edit = {"range": {"start": where, "end": where}, "text": text}
        params = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [edit]}
        self.notify("textDocument/didChange", params)

    def inline(self, uri: str, line: int, character: int, **more: Any) -> asyncio.Future[Any]:
        return self.ask("textDocument/inlineCompletion", at(uri, line, character, **more))

    async def end(self) -> int:
        """Leave as a polite editor does; the exit status."""
        await self.request("shutdown", None)
        self.notify("exit", None)
        return await self.gone()

    async def gone(self, limit_s: float = LIMIT_S) -> int:
        async with asyncio.timeout(limit_s):
            return await self.process.wait()

    async def clean_up(self) -> str:
        """Make sure that the process is gone; what it wrote to standard error."""
        if self.process.returncode is None:
            self.process.kill()
        self.process.stdin.close()
        stderr = await self.process.stderr.read()
        await self.process.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        return stderr.decode()


def at(uri: str, line: int, character: int, **more: Any) -> dict[str, Any]:
    """Parameters of a request at a position."""
    position = {"line": line, "character": character}
    return {"textDocument": {"uri": uri}, "position": position, **more}
