"""JSON-RPC over stdio: pygls's dispatcher without typed parameters, on non-blocking pipes.

Parameters stay plain JSON values, because editors send fields that the specification does not
have and leave out fields that it requires; `params.py` reads them leniently. Only dispatch,
cancellation and writing of pygls are used: not its reader, which skips bad messages without an
answer and follows one spelling of the headers only, and none of its workspace, which would keep a
second copy of every document. Knows nothing of what the methods do.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import cattrs
from lsprotocol.types import CancelParams, ResponseErrorMessage
from pygls.exceptions import JsonRpcException, JsonRpcInvalidRequest, JsonRpcParseError
from pygls.io_ import StdinAsyncReader, StdoutWriter
from pygls.protocol import JsonRPCProtocol
from pygls.protocol.json_rpc import JsonRPCNotification, JsonRPCRequestMessage
from pygls.server import JsonRPCServer

from .framing import MAX_HEADER_BYTES, Source, read_frame

_log = logging.getLogger(__name__)
_CANCEL = "$/cancelRequest"

Message = JsonRPCRequestMessage | JsonRPCNotification
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

    def receive(self, body: bytes) -> None:
        """Dispatch the message of a frame; answer it by an error if it is none.

        That error has no id, even if the message has one: what is wrong may be just that.
        """
        try:
            message = parse(body)
        except JsonRpcException as error:
            # The message may hold the user's text: it is not logged.
            _log.warning("refused a message: %s", error.message)
            self._send_data(ResponseErrorMessage(id=None, error=error.to_response_error()))
        else:
            if message is not None:
                self.handle_message(message)


def parse(body: bytes) -> Message | None:
    """The JSON-RPC 2.0 message in the body of a frame, with parameters as plain JSON values.

    None for a response, which answers nothing, since we send no requests. Raises
    JsonRpcParseError if it is not JSON in UTF-8, and JsonRpcInvalidRequest if it is no message of
    the Language Server Protocol, which has no batches.
    """
    try:
        given = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):  # not UTF-8, not JSON; nested too deep
        raise JsonRpcParseError("The message is not JSON in UTF-8.") from None
    if not isinstance(given, dict) or given.get("jsonrpc") != JsonRPCProtocol.VERSION:
        raise JsonRpcInvalidRequest("The message is not a JSON-RPC 2.0 object.")
    if not _is_id(given.get("id")):
        raise JsonRpcInvalidRequest("The id is neither a string nor a number.")
    if "method" not in given and ("result" in given or "error" in given):
        return None
    method, params = given.get("method"), given.get("params")
    if not isinstance(method, str):
        raise JsonRpcInvalidRequest("The message has no method.")
    if "id" in given:
        return JsonRPCRequestMessage(given["id"], method, JsonRPCProtocol.VERSION, params)
    if method == _CANCEL:
        cancelled = params.get("id") if isinstance(params, dict) else None
        params = CancelParams(id=cancelled if isinstance(cancelled, int | str) else "")
    return JsonRPCNotification(method, JsonRPCProtocol.VERSION, params)


def _is_id(value: Any) -> bool:
    """Whether a request may have this id, and its answer can repeat it.

    Python's decoder takes NaN and Infinity, which are not JSON. In parameters they do no harm.
    """
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int | str) and not isinstance(value, bool))


class RpcServer(JsonRPCServer):
    """One JSON-RPC peer on the process's standard input and output."""

    protocol: _Protocol

    def __init__(self) -> None:
        super().__init__(_Protocol, cattrs.Converter)
        self._ended = asyncio.Event()

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
        self._ended.set()

    async def serve(self) -> None:
        """Read and dispatch messages until `stop` or the end of the input.

        Raises FramingError if it cannot be told where the next message begins.
        """
        source = await _open_input(sys.stdin.buffer)
        self.protocol.set_writer(await _open_output(sys.stdout.buffer))
        reading = asyncio.create_task(self._read(source))
        ended = asyncio.create_task(self._ended.wait())
        await asyncio.wait({reading, ended}, return_when=asyncio.FIRST_COMPLETED)
        for task in (reading, ended):
            task.cancel()
        outcome, _ = await asyncio.gather(reading, ended, return_exceptions=True)
        if isinstance(outcome, EOFError | OSError):
            _log.warning("the input ended inside a message: %s", type(outcome).__name__)
        elif isinstance(outcome, Exception):
            raise outcome

    async def _read(self, source: Source) -> None:
        while not self._ended.is_set():
            body = await read_frame(source)
            if body is None:
                return
            try:
                self.protocol.receive(body)
            except Exception as error:  # one message must not end the others
                # Its text may be the user's, and so may the error's.
                _log.error("a message could not be handled: %s", type(error).__name__)


class _PipeWriter:
    """Writes without blocking: an editor that does not read cannot stop the event loop."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self._transport.close()


async def _open_input(stream: BinaryIO) -> Source:
    """An asynchronous reader; one with a thread where the stream is no pipe, and on Windows."""
    if sys.platform != "win32":
        reader = asyncio.StreamReader(limit=MAX_HEADER_BYTES)
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
