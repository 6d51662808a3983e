"""JSON-RPC over stdio: pygls's dispatcher without typed parameters, on non-blocking pipes.

Parameters stay plain JSON values, because editors send fields that the specification does not
have and leave out fields that it requires; `params.py` reads them leniently. Only framing,
dispatch and cancellation of pygls are used: none of its workspace, which would keep a second copy
of every document. Knows nothing of what the methods do.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

import cattrs
from lsprotocol.types import CancelParams
from pygls.exceptions import JsonRpcException
from pygls.io_ import StdinAsyncReader, StdoutWriter, run_async
from pygls.protocol import JsonRPCProtocol
from pygls.protocol.json_rpc import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
)
from pygls.server import JsonRPCServer

_log = logging.getLogger(__name__)
_CANCEL = "$/cancelRequest"
_MAX_HEADER_BYTES = 64 * 1024

Handler = Callable[[Any], Any]
"""Takes the parameters; a coroutine function can be cancelled by the client."""
Guard = Callable[[str], JsonRpcException | None]
"""Says why a method may not be called now; None if it may."""


class _Protocol(JsonRPCProtocol):
    """pygls's dispatcher over plain JSON parameters."""

    guard: Guard | None = None

    def _handle_request(self, msg_id: int | str, method_name: str, params: Any) -> None:
        refusal = self.guard(method_name) if self.guard is not None else None
        if refusal is not None:
            self._send_response(msg_id, None, refusal.to_response_error())
        else:
            super()._handle_request(msg_id, method_name, params)

    def _handle_notification(self, method_name: str, params: Any) -> None:
        if self.guard is None or self.guard(method_name) is None:
            super()._handle_notification(method_name, params)

    def structure_message(self, data: dict[str, Any]) -> Any:
        """A message object for a JSON-RPC message; any other JSON object as it is.

        Called by the JSON decoder for each object, innermost first.
        """
        if "jsonrpc" not in data:
            return data
        version, params = str(data["jsonrpc"]), data.get("params")
        method = data.get("method")
        if not isinstance(method, str):
            return JsonRPCResponseMessage(data.get("id", ""), version, data.get("result"))
        if "id" in data:
            return JsonRPCRequestMessage(data["id"], method, version, params)
        if method == _CANCEL:
            cancelled = params.get("id") if isinstance(params, dict) else None
            params = CancelParams(id=cancelled if isinstance(cancelled, int | str) else "")
        return JsonRPCNotification(method, version, params)


class RpcServer(JsonRPCServer):
    """One JSON-RPC peer on the process's standard input and output."""

    protocol: _Protocol

    def __init__(self) -> None:
        super().__init__(_Protocol, cattrs.Converter)
        self._stop = threading.Event()
        self._ended: asyncio.Event | None = None

    def handle(self, method: str, handler: Handler) -> None:
        """Answer `method` (a request or a notification) by `handler`."""
        self.protocol.fm.add_builtin_feature(method, handler)

    def set_guard(self, guard: Guard) -> None:
        """Ask `guard` before each message: a request is answered by its error, else skipped."""
        self.protocol.guard = guard

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self.protocol.notify(method, params)

    def stop(self) -> None:
        """End `serve` after the message that is being handled."""
        self._stop.set()
        if self._ended is not None:
            self._ended.set()

    async def serve(self) -> None:
        """Read and dispatch messages until `stop` or the end of the input."""
        self._ended = asyncio.Event()
        reader = await _open_input(sys.stdin.buffer)
        self.protocol.set_writer(await _open_output(sys.stdout.buffer))
        reading = asyncio.create_task(
            run_async(
                stop_event=self._stop,
                reader=reader,
                protocol=self.protocol,
                logger=_silent,
                error_handler=_report,
            )
        )
        ended = asyncio.create_task(self._ended.wait())
        await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
        for task in (reading, ended):
            task.cancel()
        results = await asyncio.gather(reading, ended, return_exceptions=True)
        if isinstance(results[0], Exception):
            _log.warning("the input ended inside a message: %s", type(results[0]).__name__)


class _PipeWriter:
    """Writes without blocking: an editor that does not read cannot stop the event loop."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self._transport.close()


async def _open_input(stream: BinaryIO) -> Any:
    """An asynchronous reader; one with a thread where the stream is no pipe, and on Windows."""
    if sys.platform != "win32":
        reader = asyncio.StreamReader(limit=_MAX_HEADER_BYTES)
        try:
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), stream
            )
        except ValueError:
            pass  # a regular file
        else:
            return reader
    return StdinAsyncReader(stream)


async def _open_output(stream: BinaryIO) -> Any:
    if sys.platform != "win32":
        try:
            transport, _ = await asyncio.get_running_loop().connect_write_pipe(
                asyncio.BaseProtocol, stream
            )
        except ValueError:
            pass
        else:
            return _PipeWriter(transport)
    return StdoutWriter(stream)


def _report(error: Exception, _source: type[Exception]) -> None:
    """A message that is not JSON-RPC is skipped. Its text may be the user's: it is not logged."""
    _log.warning("skipped a message that could not be read: %s", type(error).__name__)


_silent = logging.getLogger(__name__ + ".pygls")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False
