"""The methods of the bridge: what each message of the editor does.

Ties the open documents to the connection. Knows the Language Server Protocol's methods and ours
(`swiftspec/…`); how parameters are read and items are built is in `params.py` and `items.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec
from pygls.exceptions import JsonRpcInvalidParams

from swiftspec_daemon.errors import DocumentError, SwiftSpecError
from swiftspec_daemon.protocol.messages import Delta, Done, FirstLine, Position

from . import items, params
from .capabilities import ACCEPT_COMMAND
from .documents import OpenDocument, OpenDocuments
from .link import DaemonLink
from .mirror import NOT_TAKEN, Mirror
from .params import CompletionRequest
from .rpc import RpcServer
from .status import BridgeStatus

if TYPE_CHECKING:
    from swiftspec_daemon.client import AsyncClient, Completion

_log = logging.getLogger(__name__)
_WARNING = 2
_ENDED_BY_OTHERS = ("cancelled", "superseded")


class Bridge:
    """One editor's methods. Add them to a server by `register`."""

    def __init__(self, server: RpcServer, *, start_daemon: bool) -> None:
        self._server = server
        self._documents = OpenDocuments()
        self._mirror = Mirror(self._documents)
        self._link = DaemonLink(self._mirror, self._on_status, start_daemon=start_daemon)
        self._keeper: asyncio.Task[None] | None = None
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._in_trouble = False

    def register(self) -> None:
        """Add the methods to the server."""
        for method, handler in {
            "textDocument/didOpen": self._did_open,
            "textDocument/didChange": self._did_change,
            "textDocument/didClose": self._did_close,
            "textDocument/inlineCompletion": self._inline_completion,
            "textDocument/completion": self._plain_completion,
            "workspace/executeCommand": self._execute_command,
            "swiftspec/complete": self._complete,
            "swiftspec/feedback": self._feedback,
            "swiftspec/status": self._status,
        }.items():
            self._server.handle(method, handler)

    def start(self, client: params.Client) -> None:
        """Connect to the daemon, in the background."""
        self._documents.encoding = client.position_encoding
        if self._keeper is None:
            running = self._link.run(client.name, client.position_encoding)
            self._keeper = asyncio.create_task(running, name="daemon link")

    async def close(self) -> None:
        """End the connection."""
        if self._keeper is not None:
            self._keeper.cancel()
        await self._link.close()

    # --- documents ------------------------------------------------------------------------------

    async def _did_open(self, given: Any) -> None:
        opened = params.mapping(given, "textDocument")
        uri = params.string(opened.get("uri"))
        if uri:
            text = params.well_formed(params.string(opened.get("text")))
            language = params.string(opened.get("languageId"))
            await self._mirror.opened(self._documents.open(uri, text, language))

    async def _did_change(self, given: Any) -> None:
        document = self._documents.get(params.uri(given))
        if document is not None:
            change = params.change(given)
            self._documents.change(document, change)
            await self._mirror.changed(document, change)

    async def _did_close(self, given: Any) -> None:
        uri = params.uri(given)
        if self._documents.get(uri) is not None:
            self._supersede(uri)
            self._documents.close(uri)
            await self._mirror.closed(uri)

    # --- completions ----------------------------------------------------------------------------

    async def _inline_completion(self, given: Any) -> dict[str, Any] | None:
        request = params.completion_request(given)
        answer = await self._whole(request)
        if answer is None:
            return None
        position = self._clamped(request)
        return {"items": [items.inline_item(*answer, position, request.selected)]}

    async def _plain_completion(self, given: Any) -> dict[str, Any]:
        request = params.completion_request(given)
        answer = await self._whole(request)
        document = self._documents.get(request.uri)
        item = None
        if answer is not None and document is not None:
            cursor = self._documents.cursor(document, request.position)
            item = items.plain_item(*answer, cursor, self._documents.width)
        return {"isIncomplete": True, "items": [] if item is None else [item]}

    async def _complete(self, given: Any) -> dict[str, Any]:
        request = params.completion_request(given)
        token = request.partial_token
        async for completion, event in self._events(request):
            number = self._public_id(completion)
            if isinstance(event, Done):
                return _final(number, event)
            if token is not None:
                delta = {"token": token, "id": number, "text": ""}
                if isinstance(event, Delta):
                    delta["text"] = event.text
                else:
                    delta["firstLine"] = True
                self._server.notify("swiftspec/delta", delta)
        return {"id": None, "text": "", "reason": "empty", "message": self._why_silent(request)}

    async def _whole(self, request: CompletionRequest) -> tuple[str, str] | None:
        """Id and text of a completion that has something to show."""
        async for completion, event in self._events(request):
            if isinstance(event, Done) and event.text:
                return self._public_id(completion), event.text
        return None

    async def _events(
        self, request: CompletionRequest
    ) -> AsyncIterator[tuple[Completion, Delta | FirstLine | Done]]:
        """What arrives for a request; nothing if the daemon or the document is not there.

        Waits for a connection that is being made; nothing if the text was edited meanwhile.

        Supersedes the document's earlier request. Raises CancelledError, which the editor sees as
        "request cancelled", if another client supersedes this one.
        """
        self._supersede(request.uri)
        document = self._documents.get(request.uri)
        if document is None:
            return
        task = asyncio.current_task()
        assert task is not None
        self._running[request.uri] = task
        edition = document.edition
        try:
            client = await self._link.ready()
            if client is not None and document.edition == edition:
                async for pair in self._asked(client, document, request):
                    yield pair
        except SwiftSpecError as error:
            _log.info("a completion was lost: %s", error.message)
        finally:
            if self._running.get(request.uri) is task:
                del self._running[request.uri]

    async def _asked(
        self, client: AsyncClient, document: OpenDocument, request: CompletionRequest
    ) -> AsyncIterator[tuple[Completion, Delta | FirstLine | Done]]:
        """The events of one request; once more if the daemon has lost track of the document."""
        for attempt in (1, 2):
            async with await self._mirror.ask(client, document, request) as completion:
                async for event in completion:
                    if isinstance(event, Done):
                        if event.code == DocumentError.code and attempt == 1:
                            document.sent_edition = None
                            break
                        if event.reason in _ENDED_BY_OTHERS:
                            raise asyncio.CancelledError
                        if event.reason == "error":
                            _log.info("a completion failed: %s", event.code)
                    yield completion, event
                else:
                    return

    def _supersede(self, uri: str) -> None:
        """Cancel the request that runs for a document: not every editor does."""
        earlier = self._running.pop(uri, None)
        if earlier is not None:
            earlier.cancel()

    def _clamped(self, request: CompletionRequest) -> Position:
        document = self._documents.get(request.uri)
        if document is None:
            return request.position
        return self._documents.cursor(document, request.position).position

    def _why_silent(self, request: CompletionRequest) -> str:
        document = self._documents.get(request.uri)
        if document is None:
            return "the document is not open"
        return NOT_TAKEN if document.refused else self._link.status.reason

    # --- feedback and status --------------------------------------------------------------------

    def _public_id(self, completion: Completion) -> str:
        """The id that the editor sees: it tells connections apart."""
        return f"{self._link.generation}-{completion.id}"

    async def _execute_command(self, given: Any) -> None:
        command = params.mapping(given)
        arguments = command.get("arguments")
        if command.get("command") != ACCEPT_COMMAND:
            raise JsonRpcInvalidParams(f"The only command is {ACCEPT_COMMAND}.")
        if not isinstance(arguments, list) or not arguments or not isinstance(arguments[0], str):
            raise JsonRpcInvalidParams("The arguments are [id] or [id, characters].")
        number, characters = [*arguments, None][:2]
        await self._feedback({"id": number, "kind": "accepted", "characters": characters})

    async def _feedback(self, given: Any) -> None:
        told = params.mapping(given)
        generation, _, number = params.string(told.get("id")).partition("-")
        if not (generation.isdecimal() and number.isdecimal()):
            return
        characters = told.get("characters")
        count = characters if isinstance(characters, int) and characters >= 0 else None
        kind = told.get("kind")

        async def send(client: AsyncClient) -> None:
            if kind == "shown":
                await client.shown(int(number), count)
            elif kind == "accepted":
                await client.accepted(int(number), count)
            elif kind == "rejected":
                await client.rejected(int(number))

        if int(generation) == self._link.generation:
            await self._mirror.tell(send)

    def _status(self, _given: Any) -> dict[str, Any]:
        return self._link.status.to_json()

    def _on_status(self, status: BridgeStatus) -> None:
        """Tell the editor; a trouble also by one notice, until it is over."""
        self._server.notify("swiftspec/didChangeStatus", status.to_json())
        if status.is_trouble and not self._in_trouble:
            text = (
                f"SwiftSpec is {status.reason}"
                if status.state == "unreachable"
                else (f"SwiftSpec: {status.reason}")
            )
            notice = {"type": _WARNING, "message": f"{text} {status.hint}".strip()}
            self._server.notify("window/showMessage", notice)
        if status.is_trouble:
            _log.info("%s %s", status.reason, status.hint)
        if status.state != "connecting":
            self._in_trouble = status.is_trouble


def _final(number: str, done: Done) -> dict[str, Any]:
    """The response to `swiftspec/complete`."""
    answer: dict[str, Any] = {"id": number, "text": done.text, "reason": done.reason}
    if done.message:
        answer["message"] = f"{done.message} {done.hint}".strip()
    if done.timings is not None:
        answer["timings"] = msgspec.to_builtins(done.timings)
    return answer
