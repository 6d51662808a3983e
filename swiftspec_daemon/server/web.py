"""The ASGI server around the app: uvicorn with our signals, limits and exit statuses.

Knows uvicorn; knows nothing of what the app answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from swiftspec_daemon.errors import ProtocolError

_log = logging.getLogger(__name__)

DRAIN_S = 2.0
"""How long running completions may take to end after the first Ctrl-C or a stop."""
CLOSE_S = 5
"""How long connections may take to close after that."""


_NO_HTTP = ProtocolError("The request is not valid HTTP.")


class _Http(H11Protocol):
    """As uvicorn's, but what is no HTTP (two `Host` headers are none) is answered in JSON too."""

    def send_400_response(self, msg: str) -> None:
        error = {"code": _NO_HTTP.code, "message": _NO_HTTP.message, "hint": _NO_HTTP.hint}
        headers = [("content-type", "application/json"), ("connection", "close")]
        answer = (
            h11.Response(status_code=400, headers=headers, reason="Bad Request"),
            h11.Data(data=json.dumps(error).encode()),
            h11.EndOfMessage(),
        )
        for event in answer:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class WebServer(uvicorn.Server):
    """Serves an app on one socket until it is told to stop.

    The first signal lets running completions end (for `DRAIN_S` at most), a second one ends all at
    once. `wait_idle` returns when no completion runs. `exit_status` is 0 after an orderly end, also
    by a signal; else 128 and the signal.
    """

    def __init__(
        self,
        app: Any,
        *,
        max_message_bytes: int,
        wait_idle: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=_Http,
                ws="websockets-sansio",
                ws_max_size=max_message_bytes,
                ws_per_message_deflate=False,
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=CLOSE_S,
                timeout_keep_alive=30,
            )
        )
        logging.getLogger("uvicorn.error").addFilter(_is_no_false_alarm)
        self.exit_status = 0
        self._wait_idle = wait_idle
        self._stopping: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listening = asyncio.Event()
        self._ending = asyncio.Event()

    async def run_on(self, listener: socket.socket) -> None:
        """Serve until the end."""
        self._loop = asyncio.get_running_loop()
        await self.serve(sockets=[listener])

    async def listening(self) -> None:
        """Wait until connections are accepted."""
        await self._listening.wait()

    async def ending(self) -> None:
        """Wait until it is told to end, other than when it is idle."""
        await self._ending.wait()

    def stop(self, *, when_idle: bool = False) -> None:
        """End soon, or, `when_idle`, as soon as no completion runs. May be called again."""
        if self._stopping is not None:
            self._stopping.cancel()
        if not when_idle:
            self._ending.set()
        self._stopping = asyncio.ensure_future(self._drain(None if when_idle else DRAIN_S))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """As uvicorn's, without raising the signal again: our exit status is our own."""
        names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
        numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._stopping is not None or self.should_exit:
            self.exit_status = 128 + sig
            self.force_exit = True
            self.should_exit = True
        elif self._loop is not None:
            # a signal handler runs between any two steps of the loop's thread
            self._loop.call_soon_threadsafe(self.stop)

    async def _drain(self, limit_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wait_idle()
        _log.info("stopping")
        self.should_exit = True


def _is_no_false_alarm(record: logging.LogRecord) -> bool:
    """uvicorn takes a websocket that is refused by an HTTP response for one left hanging."""
    return "without completing handshake" not in record.getMessage()
