"""The bridge's connection to the daemon: kept up, and told all open documents.

Reconnects by itself with growing pauses and opens every document again; starts a daemon at the
first connection and whenever a completion is wanted. Knows nothing of the editor's protocol.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from swiftspec_daemon.errors import DaemonNotRunning, DocumentError, SwiftSpecError
from swiftspec_daemon.protocol import messages as wire

from . import params, status
from .documents import OpenDocument, OpenDocuments, after
from .status import BridgeStatus

if TYPE_CHECKING:
    from swiftspec_daemon.client import AsyncClient, Completion

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_FIRST_CONNECTION_S = 2.0
"""How long the first request waits for the first connection."""

StatusCallback = Callable[[BridgeStatus], None]


class DaemonLink:
    """The connection, as the bridge sees it: there, or not there for the moment."""

    def __init__(
        self, documents: OpenDocuments, on_status: StatusCallback, *, start_daemon: bool = True
    ) -> None:
        self._documents = documents
        self._on_status = on_status
        self._may_start = start_daemon
        self._client: AsyncClient | None = None
        self._order = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._tried = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.status = status.CONNECTING
        self.generation = 0
        """How many connections there have been; ids of an earlier one mean nothing to this."""

    # --- the connection's life ------------------------------------------------------------------

    async def run(self, client_name: str) -> None:
        """Keep a connection up until cancelled."""
        pause = _FIRST_PAUSE_S
        start = self._may_start
        while True:
            try:
                client = await self._connect(client_name, start=start)
            except (SwiftSpecError, OSError) as error:
                self._failed(error)
            except Exception as error:  # the bridge must not stay silent for ever
                _log.exception("the connection failed in a way that it should not")
                self._failed(error)
            else:
                pause = _FIRST_PAUSE_S
                await client.wait_closed()
                self._lost()
            start = await self._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def ready(self) -> AsyncClient | None:
        """The connection, or None while there is none: at once, but for the first connection."""
        if self._client is None:
            self._wanted.set()
            if not self._tried.is_set():
                try:
                    async with asyncio.timeout(_FIRST_CONNECTION_S):
                        await self._tried.wait()
                except TimeoutError:
                    pass
        return self._client

    async def close(self) -> None:
        """End the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _connect(self, name: str, *, start: bool) -> AsyncClient:
        # Here, not above: the editor's first answer need not wait for the websocket library.
        from swiftspec_daemon.client import AsyncClient

        client = await AsyncClient.connect(
            start=start, client_name=name, position_encodings=[self._documents.encoding]
        )
        if client.position_encoding != self._documents.encoding:
            await client.close()
            raise DaemonNotRunning(
                f"The daemon does not speak {self._documents.encoding} positions.",
                "Stop the old daemon with `swiftspec stop`.",
            )
        client.on_error(self._on_error)
        async with self._order:
            for document in self._documents:
                await self._send_open(client, document)
            await client.on_status(self._on_daemon_status)
            self.generation += 1
            self._client = client
        self._wanted.clear()
        self._tried.set()
        return client

    async def _pause(self, seconds: float) -> bool:
        """Wait before the next attempt; returns whether that one may start a daemon.

        Only if a completion was wanted meanwhile: a daemon that the user has stopped stays
        stopped until then.
        """
        await asyncio.sleep(seconds * random.uniform(0.75, 1.25))  # not all bridges at once
        wanted = self._wanted.is_set()
        self._wanted.clear()
        return self._may_start and wanted

    def _failed(self, error: Exception) -> None:
        self._set_status(status.unreachable(error))
        self._tried.set()

    def _lost(self) -> None:
        self._client = None
        for document in self._documents:
            document.sent_edition = None
        _log.info("the connection to the daemon is lost")
        self._set_status(status.CONNECTING)

    def _on_daemon_status(self, message: wire.Status) -> None:
        self._set_status(status.of_daemon(message))

    def _set_status(self, new: BridgeStatus) -> None:
        if new != self.status:
            self.status = new
            self._on_status(new)

    def _on_error(self, error: wire.Error) -> None:
        document = self._documents.get(error.uri or "")
        if error.code == DocumentError.code and document is not None:
            _log.info("the daemon has lost track of a document; opening it again")
            task = asyncio.create_task(self.opened(document))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # --- completions ----------------------------------------------------------------------------

    async def ask(
        self, client: AsyncClient, document: OpenDocument, request: params.CompletionRequest
    ) -> Completion:
        """Ask for a completion of the document as it is now, at a position inside it.

        With a selected entry of the editor's menu the daemon sees the document as if that entry
        were taken, for this request alone. Raises DaemonNotRunning.
        """
        chosen = request.selected
        # Before waiting for our turn, when the text is still the one that the request is about.
        replaced = self._documents.between(document, chosen.start, chosen.end) if chosen else ""
        async with self._order:
            if document.sent_edition is None:
                await self._send_open(client, document)
            if chosen is None:
                return await self._complete(client, document, request, request.position)
            end = after(chosen.start, chosen.text, self._documents.width)
            await self._edit(client, document, chosen.start, chosen.end, chosen.text)
            completion = await self._complete(client, document, request, end)
            await self._edit(client, document, chosen.start, end, replaced)
            return completion

    async def _complete(
        self,
        client: AsyncClient,
        document: OpenDocument,
        request: params.CompletionRequest,
        position: wire.Position,
    ) -> Completion:
        return await client.complete(
            document.uri,
            position,
            version=document.sent_version,
            trigger=request.trigger,
            max_lines=request.max_lines,
            max_tokens=request.max_tokens,
        )

    async def _edit(
        self,
        client: AsyncClient,
        document: OpenDocument,
        start: wire.Position,
        end: wire.Position,
        text: str,
    ) -> None:
        """An edit that the editor did not make, as a version of its own."""
        document.sent_version += 1
        edit = wire.Edit(start=start, end=end, text=text)
        await client.change(document.uri, document.sent_version, [edit])

    # --- what is told to the daemon, in order ---------------------------------------------------

    async def opened(self, document: OpenDocument) -> None:
        """The editor has opened a document."""
        await self._tell(lambda client: self._send_open(client, document))

    async def changed(self, document: OpenDocument, change: params.Change) -> None:
        """A document has just been edited by `change`."""
        edition = document.edition

        async def send(client: AsyncClient) -> None:
            if document.sent_edition is None or document.sent_edition >= edition:
                return  # it will be opened with these edits, or was
            document.sent_edition = edition
            document.sent_version += 1
            if change.text is not None:
                await client.change(document.uri, document.sent_version, text=document.text.text)
            else:
                await client.change(document.uri, document.sent_version, change.edits)

        await self._tell(send)

    async def closed(self, uri: str) -> None:
        """The editor has closed a document."""
        await self._tell(lambda client: client.close_document(uri))

    async def feedback(
        self, generation: int, send: Callable[[AsyncClient], Awaitable[None]]
    ) -> None:
        """Tell what became of a completion, unless it belongs to an earlier connection."""
        if generation == self.generation:
            await self._tell(send)

    async def _tell(self, send: Callable[[AsyncClient], Awaitable[None]]) -> None:
        async with self._order:
            if self._client is None:
                return
            try:
                await send(self._client)
            except SwiftSpecError as error:
                _log.debug("not told: %s", error.message)

    async def _send_open(self, client: AsyncClient, document: OpenDocument) -> None:
        document.sent_edition = document.edition
        document.sent_version += 1
        text = document.text
        await client.open(text.uri, text.text, document.sent_version, text.language)
