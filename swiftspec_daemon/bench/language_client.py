"""The smallest language client that can ask a server for inline completions over stdio.

Speaks JSON-RPC frames to a child process, one request at a time; knows nothing of editors.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from swiftspec_daemon.errors import ProtocolError
from swiftspec_daemon.protocol.messages import Edit, Position

_ANSWER_S = 60.0


class LanguageClient:
    """A language server in a child process; made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._next_id = 0

    @classmethod
    async def start(cls, command: Sequence[str], environment: dict[str, str]) -> LanguageClient:
        """Start the server and go through the handshake. Raises ProtocolError."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            limit=2**24,
        )
        client = cls(process)
        capabilities = {
            "general": {"positionEncodings": ["utf-8"]},
            "textDocument": {"inlineCompletion": {}},
        }
        await client.request(
            "initialize", {"processId": None, "rootUri": None, "capabilities": capabilities}
        )
        await client.notify("initialized", {})
        return client

    @property
    def pid(self) -> int:
        """Of the server's process."""
        return self._process.pid

    async def open(self, uri: str, text: str) -> None:
        """Tell the server a document's text."""
        document = {"uri": uri, "languageId": "python", "version": 0, "text": text}
        await self.notify("textDocument/didOpen", {"textDocument": document})

    async def change(self, uri: str, version: int, edit: Edit) -> None:
        """Tell the server an edit."""
        change = {
            "range": {"start": _position(edit.start), "end": _position(edit.end)},
            "text": edit.text,
        }
        await self.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]},
        )

    async def inline_completion(self, uri: str, position: Position) -> list[dict[str, Any]]:
        """The items that the server offers; empty if it has none. Raises ProtocolError."""
        answer = await self.request(
            "textDocument/inlineCompletion",
            {
                "textDocument": {"uri": uri},
                "position": _position(position),
                "context": {"triggerKind": 2},
            },
        )
        items: list[dict[str, Any]] = answer["items"] if isinstance(answer, dict) else answer or []
        return items

    async def request(self, method: str, params: Any) -> Any:
        """Send a request and wait for its result; what else comes is skipped."""
        self._next_id += 1
        await self._send({"id": self._next_id, "method": method, "params": params})
        async with asyncio.timeout(_ANSWER_S):
            while True:
                message = await self._receive()
                if "method" in message and "id" in message:  # the server asks; it may have null
                    await self._send({"id": message["id"], "result": None})
                elif message.get("id") == self._next_id:
                    if "error" in message:
                        raise ProtocolError(f"{method} failed: {message['error']['message']}")
                    return message.get("result")

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        await self._send({"method": method, "params": params})

    async def stop(self) -> None:
        """End the server as an editor does, and wait until it is gone."""
        await self.request("shutdown", None)
        await self.notify("exit", None)
        async with asyncio.timeout(_ANSWER_S):
            await self._process.wait()

    async def kill(self) -> None:
        """End the server at once; does nothing if it has ended."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        await self._process.stdin.drain()

    async def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        length = 0
        try:
            while line := (await self._process.stdout.readuntil(b"\r\n")).strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            message: dict[str, Any] = json.loads(await self._process.stdout.readexactly(length))
        except (asyncio.IncompleteReadError, ValueError):
            raise ProtocolError("The language server ended or sent no JSON-RPC.") from None
        return message


def _position(position: Position) -> dict[str, int]:
    return {"line": position.line, "character": position.character}
