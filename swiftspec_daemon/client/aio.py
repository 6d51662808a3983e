"""The asynchronous client: one websocket connection to the daemon.

Knows the wire messages and the connection's life; knows nothing of editors, files or terminals.
It does not reconnect by itself: `on_close` tells, and a new client is cheap.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from swiftspec_daemon import __version__
from swiftspec_daemon.client import discovery
from swiftspec_daemon.client.failures import error_for
from swiftspec_daemon.client.stream import Completion
from swiftspec_daemon.errors import (
    DaemonNotRunning,
    ProtocolError,
    SwiftSpecError,
    Unauthorized,
    UsageError,
)
from swiftspec_daemon.protocol import codec
from swiftspec_daemon.protocol import messages as wire
from swiftspec_daemon.protocol.record import Endpoint
from swiftspec_daemon.protocol.speculation import Speculation

_log = logging.getLogger(__name__)

_HANDSHAKE_S = 15.0
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024

StatusCallback = Callable[[wire.Status], None]
ErrorCallback = Callable[[wire.Error], None]
CloseCallback = Callable[[SwiftSpecError | None], None]


class AsyncClient:
    """A connection to the daemon; made by `AsyncClient.connect`.

    All methods raise DaemonNotRunning once the connection is lost. Callbacks run on the event
    loop; they must not block.
    """

    def __init__(self, socket: ClientConnection, endpoint: Endpoint | None) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._completions: dict[int, Completion] = {}
        self._status_waiters: list[asyncio.Future[wire.Status]] = []
        self._status_callbacks: list[StatusCallback] = []
        self._error_callbacks: list[ErrorCallback] = []
        self._close_callbacks: list[CloseCallback] = []
        self._closing = False
        self._closed = asyncio.Event()
        self._error: SwiftSpecError | None = None
        self._reader: asyncio.Task[None] | None = None
        self._welcome: wire.Welcome | None = None
        self.endpoint = endpoint
        """Where the daemon was found; None if the caller gave the URL."""

    @classmethod
    def connect(
        cls,
        *,
        start: bool = True,
        url: str | None = None,
        token: str | None = None,
        client_name: str = "",
        position_encodings: Sequence[wire.PositionEncoding] = ("utf-32",),
        settings: Mapping[str, Any] | None = None,
    ) -> Connecting:
        """Connect; to be awaited, or used by `async with`.

        With `start`, a daemon is started in the background if none runs, with `settings` (dotted
        names to values). `url` and `token` name a daemon directly instead. `position_encodings`
        is in order of preference. Raises DaemonNotRunning, Unauthorized, ProtocolError, or what a
        new daemon failed with.
        """

        async def connecting() -> AsyncClient:
            endpoint = None
            if url is None:
                if start:
                    endpoint = await asyncio.to_thread(discovery.ensure_running, settings)
                else:
                    endpoint = await asyncio.to_thread(discovery.require)
            key = token if token is not None else (endpoint.token if endpoint else None)
            if key is None:
                key = discovery.read_token()
            address = url if url is not None else endpoint.url if endpoint else ""
            client = cls(await _open_socket(address, key), endpoint)
            await client._greet(client_name, list(position_encodings))
            return client

        return Connecting(connecting)

    # --- what the connection is ------------------------------------------------------------------

    @property
    def position_encoding(self) -> wire.PositionEncoding:
        """In which code units `Position.character` counts."""
        return self._greeting.position_encoding

    @property
    def server(self) -> str:
        """Name and version of the server."""
        return self._greeting.server

    @property
    def capabilities(self) -> list[str]:
        """What the server can do."""
        return self._greeting.capabilities

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, by either side."""
        return self._closed.is_set()

    # --- documents -------------------------------------------------------------------------------

    async def open(self, uri: str, text: str, version: int = 0, language: str = "") -> None:
        """Tell the daemon a document's text."""
        await self._send(wire.OpenDocument(uri=uri, text=text, version=version, language=language))

    async def change(
        self,
        uri: str,
        version: int,
        edits: Sequence[wire.Edit] = (),
        *,
        text: str | None = None,
    ) -> None:
        """Tell edits, each against the text that the one before it left, or the whole new text."""
        await self._send(
            wire.ChangeDocument(uri=uri, version=version, edits=list(edits), text=text)
        )

    async def close_document(self, uri: str) -> None:
        """Forget a document."""
        await self._send(wire.CloseDocument(uri=uri))

    # --- completions -----------------------------------------------------------------------------

    async def complete(
        self,
        uri: str,
        position: wire.Position,
        *,
        version: int | None = None,
        trigger: Literal["invoked", "automatic"] = "automatic",
        max_tokens: int | None = None,
        max_lines: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        speculation: Speculation | None = None,
    ) -> Completion:
        """Ask for a completion; it supersedes an earlier one of the same document."""
        completion = Completion(next(self._numbers), self._cancel)
        self._completions[completion.id] = completion
        request = wire.Complete(
            id=completion.id,
            uri=uri,
            position=position,
            version=version,
            trigger=trigger,
            max_tokens=max_tokens,
            max_lines=max_lines,
            temperature=temperature,
            seed=seed,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            speculation=speculation,
        )
        try:
            await self._send(request)
        except BaseException:
            self._completions.pop(completion.id, None)
            raise
        return completion

    async def shown(self, id: int, characters: int | None = None) -> None:
        """Say that the user has seen this many code points of a completion (all if None)."""
        await self._send(wire.Shown(id=id, characters=characters))

    async def accepted(self, id: int, characters: int | None = None) -> None:
        """Say that the user has taken this many code points of a completion (all if None)."""
        await self._send(wire.Accepted(id=id, characters=characters))

    async def rejected(self, id: int) -> None:
        """Say that the user has seen a completion and did not take it."""
        await self._send(wire.Rejected(id=id))

    # --- status and end --------------------------------------------------------------------------

    async def status(self) -> wire.Status:
        """What the daemon is doing."""
        waiter: asyncio.Future[wire.Status] = asyncio.get_running_loop().create_future()
        self._status_waiters.append(waiter)
        await self._send(wire.GetStatus())
        return await waiter

    async def on_status(self, callback: StatusCallback) -> None:
        """Call back with the status now and at each change."""
        self._status_callbacks.append(callback)
        await self._send(wire.GetStatus(subscribe=True))

    def on_error(self, callback: ErrorCallback) -> None:
        """Call back when the daemon could not obey a message that is no completion.

        With code "document_error" the daemon has lost track of `uri`: `open` it again.
        """
        self._error_callbacks.append(callback)

    def on_close(self, callback: CloseCallback) -> None:
        """Call back once when the connection has ended: with None after `close`, else with why."""
        if self._closed.is_set():
            callback(self._error)
        else:
            self._close_callbacks.append(callback)

    async def wait_closed(self) -> None:
        """Wait until the connection has ended, by either side."""
        await self._closed.wait()

    async def close(self) -> None:
        """End the connection; running completions end as lost."""
        self._closing = True
        await self._socket.close()
        if self._reader is not None:
            await asyncio.wait([self._reader])

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- the connection --------------------------------------------------------------------------

    @property
    def _greeting(self) -> wire.Welcome:
        assert self._welcome is not None
        return self._welcome

    async def _greet(self, name: str, encodings: list[wire.PositionEncoding]) -> None:
        try:
            hello = wire.Hello(client=name or f"python/{__version__}", position_encodings=encodings)
            await self._send(hello)
            async with asyncio.timeout(_HANDSHAKE_S):
                answer = _decode(await self._socket.recv())
            if isinstance(answer, wire.Error):
                raise error_for(answer.code, answer.message, answer.hint)
            if not isinstance(answer, wire.Welcome):
                raise ProtocolError("The daemon did not answer the greeting.", _OTHER_PROGRAM)
            self._welcome = answer
        except TimeoutError:
            await self._socket.close()
            raise DaemonNotRunning("The daemon does not answer.", "Restart it.") from None
        except ConnectionClosed as closed:
            raise _lost(closed) from None
        except SwiftSpecError:
            await self._socket.close()
            raise
        self._reader = asyncio.create_task(self._read(), name="swiftspec client")

    async def _send(self, message: wire.Message) -> None:
        if self._closed.is_set() or self._closing:
            raise self._error or DaemonNotRunning("The connection to the daemon is closed.")
        try:
            await self._socket.send(codec.encode(message))
        except ConnectionClosed as closed:
            raise _lost(closed) from None

    async def _cancel(self, number: int) -> None:
        try:
            await self._send(wire.Cancel(id=number))
        except DaemonNotRunning:
            _log.debug("no daemon left to cancel request %s at", number)

    async def _read(self) -> None:
        error: SwiftSpecError | None = None
        try:
            while True:
                message = _decode(await self._socket.recv())
                if message is not None:
                    self._dispatch(message)
        except ConnectionClosed as closed:
            error = _lost(closed)
        finally:
            self._end(error or DaemonNotRunning("The connection to the daemon is closed."))

    def _dispatch(self, message: wire.ServerMessage) -> None:
        if isinstance(message, wire.Delta | wire.FirstLine | wire.Done):
            last = isinstance(message, wire.Done)
            completion = self._known(message.id, forget=last)
            if completion is not None:
                completion.feed(message)
        elif isinstance(message, wire.Status):
            waiters, self._status_waiters = self._status_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(message)
            for on_status in self._status_callbacks:
                on_status(message)
        elif isinstance(message, wire.Error):
            self._dispatch_error(message)

    def _dispatch_error(self, message: wire.Error) -> None:
        completion = self._known(message.id, forget=True)
        if completion is not None:
            completion.feed(
                wire.Done(
                    id=completion.id,
                    reason="error",
                    text=completion.text,
                    code=message.code,
                    message=message.message,
                    hint=message.hint,
                )
            )
            return
        _log.info("the daemon answered with %s: %s", message.code, message.message)
        for on_error in self._error_callbacks:
            on_error(message)

    def _known(self, number: int | str | None, *, forget: bool) -> Completion | None:
        if not isinstance(number, int):
            return None
        return self._completions.pop(number, None) if forget else self._completions.get(number)

    def _end(self, error: SwiftSpecError) -> None:
        self._error = error
        self._closed.set()
        for completion in self._completions.values():
            completion.fail(error)
        self._completions.clear()
        for waiter in self._status_waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._status_waiters.clear()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for on_close in callbacks:
            on_close(None if self._closing else error)


class Connecting:
    """What `AsyncClient.connect` returns: await it, or enter it by `async with`."""

    def __init__(self, connecting: Callable[[], Awaitable[AsyncClient]]) -> None:
        self._connecting = connecting
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._connecting().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._client is not None
        await self._client.close()


_OTHER_PROGRAM = "Is another program listening there? See `swiftspec doctor`."


def _decode(frame: str | bytes) -> Any:
    """A message, or None for one that a newer daemon sends and we do not know."""
    try:
        return codec.decode_server_message(frame)
    except msgspec.DecodeError as error:
        _log.debug("skipped a message: %s", error)
        return None


async def _open_socket(url: str, token: str) -> ClientConnection:
    try:
        return await connect(
            url,
            additional_headers={"Authorization": f"Bearer {token}"},
            subprotocols=[Subprotocol(wire.SUBPROTOCOL)],
            compression=None,
            proxy=None,
            open_timeout=_HANDSHAKE_S,
            max_size=_MAX_MESSAGE_BYTES,
            max_queue=64,
            close_timeout=2,
        )
    except InvalidStatus as error:
        if error.response.status_code in (401, 403):
            raise Unauthorized(
                "The daemon refuses the token.",
                "Was it changed by `swiftspec token rotate`? Restart the daemon.",
            ) from None
        raise ProtocolError(
            f"{url} answered with HTTP status {error.response.status_code}.", _OTHER_PROGRAM
        ) from None
    except (ValueError, InvalidURI) as error:
        raise UsageError(f"{url!r} is not the address of a websocket: {error}.") from None
    except InvalidHandshake as error:
        raise ProtocolError(f"{url} does not speak websocket: {error}.", _OTHER_PROGRAM) from None
    except (OSError, EOFError, TimeoutError):
        raise DaemonNotRunning(
            f"No daemon answers at {url}.", "Start one with `swiftspec serve`."
        ) from None


def _lost(closed: ConnectionClosed) -> SwiftSpecError:
    reason = closed.rcvd.reason if closed.rcvd is not None else ""
    if closed.rcvd is not None and closed.rcvd.code in (1008, 1009, 1002, 1003, 1007):
        return ProtocolError(f"The daemon ended the connection: {reason or closed.rcvd.code}.")
    return DaemonNotRunning(
        "The connection to the daemon is lost" + (f": {reason}." if reason else "."),
        "Start it again with `swiftspec serve`.",
    )
