"""One websocket connection's conversation: its documents, its completions, its answers.

Gets frames and puts messages into an outbox; knows no sockets and logs no text. Whatever a client
sends is answered or ignored, and the conversation goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import msgspec

from swiftspec_daemon import __version__
from swiftspec_daemon.completion.events import (
    Completed,
    CompletionOptions,
    FirstLineKnown,
    TextAdded,
)
from swiftspec_daemon.completion.running import Completion
from swiftspec_daemon.errors import DocumentError, ProtocolError, SwiftSpecError, UsageError
from swiftspec_daemon.protocol import codec
from swiftspec_daemon.protocol.messages import (
    PROTOCOL_VERSION,
    Accepted,
    Cancel,
    ChangeDocument,
    ClientMessage,
    CloseDocument,
    Complete,
    Delta,
    Done,
    Error,
    FirstLine,
    GetStatus,
    Hello,
    OpenDocument,
    PositionEncoding,
    Rejected,
    Shown,
    Timings,
    Welcome,
)
from swiftspec_daemon.server.feedback import Feedback
from swiftspec_daemon.server.hub import Hub
from swiftspec_daemon.server.outbox import Outbox
from swiftspec_daemon.server.shelf import Shelf

_log = logging.getLogger(__name__)

CAPABILITIES = ["streaming", "first_line", "feedback", "status"]
UNKNOWN_MESSAGE = "unknown_message"
"""Code of the error for a `type` that this version does not have."""
_ENCODINGS: dict[str, PositionEncoding] = {"utf-8": "utf-8", "utf-16": "utf-16", "utf-32": "utf-32"}
_Id = int | str


class Connection:
    """From hello to the end."""

    def __init__(self, hub: Hub, outbox: Outbox) -> None:
        self._hub = hub
        self._outbox = outbox
        self._number = hub.join(self)
        self._encoding: PositionEncoding | None = None
        """Negotiated by hello; None before it."""
        self._shelf = Shelf(watcher=hub.service.open_files)
        self._feedback = Feedback(hub.service.statistics)
        self._running: dict[_Id, Completion] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscribed = False

    @property
    def document_count(self) -> int:
        return len(self._shelf)

    def model_changed(self) -> None:
        if self._subscribed:
            self._outbox.put(self._hub.status())

    def close(self) -> None:
        """The client is gone: its completions end."""
        self._hub.leave(self)
        self._shelf.clear()
        for completion in self._running.values():
            completion.cancel()
        for task in self._tasks:
            task.cancel()

    def receive_binary(self) -> None:
        """A binary frame has come."""
        self._refuse(ProtocolError("Binary frames mean nothing here.", "Send JSON as text frames."))

    def receive(self, frame: str) -> None:
        """A text frame has come."""
        try:
            message = codec.decode_client_message(frame)
        except msgspec.ValidationError as error:
            self._refuse_invalid(frame, error)
        except msgspec.DecodeError as error:
            self._refuse(ProtocolError(f"A message is not valid JSON: {error}."))
        else:
            self._obey(message)

    def _obey(self, message: ClientMessage) -> None:
        try:
            if isinstance(message, Hello):
                self._greet(message)
            elif self._encoding is None:
                self._refuse(ProtocolError("The first message must be hello."), message)
            else:
                self._handle(message, self._encoding)
        except SwiftSpecError as error:
            self._refuse(error, message)

    def _handle(self, message: ClientMessage, encoding: PositionEncoding) -> None:
        match message:
            case OpenDocument():
                self._cancel_in(message.uri)
                self._shelf.open(message)
            case ChangeDocument():
                self._shelf.change(message, encoding)
            case CloseDocument():
                self._cancel_in(message.uri)
                self._shelf.close(message.uri)
            case Complete():
                self._complete(message, encoding)
            case Cancel() if message.id in self._running:
                self._running[message.id].cancel()
            case Shown() | Accepted() | Rejected():
                self._feedback.record(message)
            case GetStatus():
                self._subscribed = self._subscribed or message.subscribe
                self._spawn(self._send_status())

    # --- hello and status -----------------------------------------------------------------------

    def _greet(self, hello: Hello) -> None:
        if self._encoding is not None:
            raise ProtocolError("There was a hello already.")
        if hello.protocol < PROTOCOL_VERSION:
            raise ProtocolError(
                f"Version {hello.protocol} of the protocol is not spoken here.",
                f"Update the client to version {PROTOCOL_VERSION}.",
            )
        spoken = (_ENCODINGS[name] for name in hello.position_encodings if name in _ENCODINGS)
        encoding: PositionEncoding = next(spoken, "utf-16")
        self._encoding = encoding
        # As ASCII, so that no client can write lines or escape codes into the log.
        _log.info("connection %d: %s", self._number, ascii(hello.client[:80]))
        self._outbox.put(
            Welcome(
                protocol=PROTOCOL_VERSION,
                server=f"swiftspec-daemon/{__version__}",
                position_encoding=encoding,
                capabilities=CAPABILITIES,
            )
        )

    async def _send_status(self) -> None:
        self._outbox.put(await self._hub.full_status())

    # --- completions ----------------------------------------------------------------------------

    def _complete(self, request: Complete, encoding: PositionEncoding) -> None:
        if request.id in self._running:
            raise UsageError("A completion with this id is running.", "Choose another id.")
        try:
            completion = self._start(request, encoding)
        except SwiftSpecError as error:
            self._outbox.put(
                Done(
                    id=request.id,
                    reason="error",
                    timings=Timings(total_ms=0.0),
                    code=error.code,
                    message=error.message,
                    hint=error.hint,
                )
            )
            return
        self._running[request.id] = completion
        self._feedback.begun(request.id)
        self._spawn(self._stream(request.id, completion))

    def _start(self, request: Complete, encoding: PositionEncoding) -> Completion:
        document = self._shelf.get(request.uri)
        if request.version is not None and request.version != document.version:
            raise DocumentError(
                f"The position is of version {request.version}, the document here is of version "
                f"{document.version}.",
                "Send the missing changes first, or open the document again.",
            )
        options = CompletionOptions(
            trigger=request.trigger,
            max_tokens=request.max_tokens,
            max_lines=request.max_lines,
            temperature=request.temperature,
            seed=request.seed,
            top_k=request.top_k,
            top_p=request.top_p,
            min_p=request.min_p,
            repetition_penalty=request.repetition_penalty,
            speculation=request.speculation,
        )
        offset = document.offset(request.position, encoding, strict=True)
        self._hub.service.open_files.completing(document, self._number)
        return self._hub.service.complete(
            document, offset, options, sequence=self._sequence(request.uri)
        )

    async def _stream(self, request: _Id, completion: Completion) -> None:
        async for event in completion:
            match event:
                case TextAdded(text):
                    self._outbox.put(Delta(id=request, text=text))
                case FirstLineKnown(text):
                    self._outbox.put(FirstLine(id=request, text=text))
                case Completed():
                    del self._running[request]
                    self._feedback.finished(request, len(event.text))
                    self._outbox.put(
                        Done(
                            id=request,
                            reason=event.reason,
                            text=event.text,
                            timings=event.timings,
                            speculation=event.speculation,
                            code=event.code,
                            message=event.message,
                            hint=event.hint,
                        )
                    )

    def _sequence(self, uri: str) -> str:
        """Names a document among all connections'."""
        return f"{self._number} {uri!a}"  # as ASCII: half characters cannot cross to the engine

    def _cancel_in(self, uri: str) -> None:
        self._hub.service.cancel(self._sequence(uri))

    # --- refusals -------------------------------------------------------------------------------

    def _refuse_invalid(self, frame: str, error: msgspec.ValidationError) -> None:
        kind = codec.message_type(frame)
        if kind is not None and "$.type" in str(error):
            message = "There is no message of this type."
            self._outbox.put(Error(code=UNKNOWN_MESSAGE, message=message, id=_id_of(frame)))
            return
        # The validation error names the place and the types, and no text of the client's.
        refusal = ProtocolError(f"A message is not as it should be: {error}.")
        self._outbox.put(
            Error(code=refusal.code, message=refusal.message, hint=refusal.hint, id=_id_of(frame))
        )

    def _refuse(self, error: SwiftSpecError, message: ClientMessage | None = None) -> None:
        self._outbox.put(
            Error(
                code=error.code,
                message=error.message,
                hint=error.hint,
                id=getattr(message, "id", None),
                uri=getattr(message, "uri", None),
            )
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _WithId(msgspec.Struct):
    id: int | str | None = None


def _id_of(frame: str) -> int | str | None:
    """The id in a frame that is no valid message, so that its sender can tell which it was."""
    try:
        return msgspec.json.decode(frame, type=_WithId).id
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
