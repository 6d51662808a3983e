"""The websocket endpoint: moves frames between an ASGI server and a `Connection`.

Knows sockets and limits; knows no message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from swiftspec_daemon.server.connection import Connection
from swiftspec_daemon.server.hub import Hub
from swiftspec_daemon.server.outbox import Outbox
from swiftspec_daemon.server.security import Refusal, accepted_subprotocol, refuse

_log = logging.getLogger(__name__)

_TOO_LARGE, _TOO_SLOW = 1009, 1013
"""Close codes: message too big (RFC 6455), try again later (IANA registry)."""
_CLOSE_S = 2.0


class WebSocketEndpoint:
    """ASGI application of `/v1/ws`. Requests have passed the security checks."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._largest = hub.settings.server.max_message_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            subprotocol = accepted_subprotocol(scope)
        except Refusal as refusal:
            await refuse(scope, send, refusal.status, refusal.error)
            return
        await receive()  # websocket.connect
        await send({"type": "websocket.accept", "subprotocol": subprotocol})
        await self._converse(receive, send)

    async def _converse(self, receive: Receive, send: Send) -> None:
        async def send_text(text: str) -> None:
            await send({"type": "websocket.send", "text": text})

        outbox = Outbox(send_text)
        connection = Connection(self._hub, outbox)
        reading = asyncio.create_task(self._read(connection, receive))
        writing = asyncio.create_task(outbox.run())
        overflow = asyncio.create_task(outbox.overflowed.wait())
        tasks = (reading, writing, overflow)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            connection.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        code, why = None, ""
        if outbox.overflowed.is_set():
            code, why = _TOO_SLOW, "too many messages wait to be read"
        elif not reading.cancelled() and reading.exception() is None:
            code, why = reading.result()
        else:
            _note_failure(reading, writing)
        if code is not None:
            _log.info("closing a connection with %d: %s", code, why)
            await _close(send, code, why)

    async def _read(self, connection: Connection, receive: Receive) -> tuple[int | None, str]:
        """Until the end: the code to close with and why, or None if the client has gone."""
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return None, ""
            text = message.get("text")
            if _size(message) > self._largest:
                return _TOO_LARGE, f"a message has more than {self._largest} bytes"
            if text is None:
                connection.receive_binary()
            else:
                connection.receive(text)


def _size(message: Message) -> int:
    """Bytes, or a little less than them for text that is not ASCII."""
    return len(message.get("text") or message.get("bytes") or b"")


async def _close(send: Send, code: int, why: str) -> None:
    # The client may be gone, or not read even this; the server drops the connection then.
    with contextlib.suppress(OSError, RuntimeError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await send({"type": "websocket.close", "code": code, "reason": why})


def _note_failure(*tasks: asyncio.Task[Any]) -> None:
    """Log why a task broke; a client that is gone while we write to it is no failure."""
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError | RuntimeError):
            _log.error("a connection broke", exc_info=error)
