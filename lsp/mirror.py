"""Keeps the daemon's copies of the open documents in step, and asks for completions of them.

All that is sent goes through one queue, so that the daemon sees edits and requests in the order
in which the editor made them. Knows documents and messages; when there is a connection is
`link.py`'s business.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from swiftspec_daemon.errors import DaemonNotRunning, DocumentError, SwiftSpecError
from swiftspec_daemon.protocol import messages as wire

from . import params
from .documents import OpenDocument, OpenDocuments, after

if TYPE_CHECKING:
    from swiftspec_daemon.client import AsyncClient, Completion

_log = logging.getLogger(__name__)

_LARGEST_MESSAGE = 15 * 1024 * 1024
"""Bytes of JSON text; by default the daemon ends a connection that sends more than 16 MiB."""
_MOST_BYTES_PER_CHARACTER = 6
NOT_TAKEN = "the daemon does not take this document: it is too large, or too many are open"


class Mirror:
    """What the daemon knows of the editor's documents, on the present connection."""

    def __init__(self, documents: OpenDocuments) -> None:
        self._documents = documents
        self._order = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.client: AsyncClient | None = None

    async def attach(self, client: AsyncClient) -> None:
        """Take a new connection into use: all documents are opened on it."""
        client.on_error(self._on_error)
        async with self._order:
            for document in self._documents:
                await self._open(client, document)
            self.client = client

    def detach(self, *, refused: bool = False) -> None:
        """The connection is lost; `refused`: because the daemon did not take what we sent."""
        self.client = None
        if refused:
            # Perhaps its limit is lower than ours: without the largest document it may go on.
            sent = [d for d in self._documents if d.sent_edition is not None]
            if sent:
                max(sent, key=lambda document: len(document.text)).refused = True
        for document in self._documents:
            document.sent_edition = None

    async def opened(self, document: OpenDocument) -> None:
        """The editor has opened a document."""
        await self.tell(lambda client: self._open(client, document))

    async def changed(self, document: OpenDocument, change: params.Change) -> None:
        """A document has just been edited by `change`."""
        edition = document.edition
        await self.tell(lambda client: self._change(client, document, change, edition))

    async def closed(self, uri: str) -> None:
        """The editor has closed a document."""
        await self.tell(lambda client: client.close_document(uri))

    async def tell(self, send: Callable[[AsyncClient], Awaitable[None]]) -> None:
        """Send in our turn; nothing happens without a connection."""
        async with self._order:
            if self.client is None:
                return
            try:
                await send(self.client)
            except SwiftSpecError as error:
                _log.debug("not told: %s", error.message)

    async def ask(
        self, client: AsyncClient, document: OpenDocument, request: params.CompletionRequest
    ) -> Completion:
        """Ask for a completion of a document.

        A position outside the document is moved into it, as editors may be a moment ahead. With a
        selected entry of the editor's menu the daemon sees the document as if that entry
        were taken, for this request alone. Raises DaemonNotRunning, or DocumentError if the
        daemon does not take the document.
        """
        chosen = request.selected
        # Before waiting for our turn, when the text is still the one that the request is about.
        position = self._documents.cursor(document, request.position).position
        if chosen is not None:
            start = self._documents.cursor(document, chosen.start).position
            chosen = dataclasses.replace(chosen, start=start)
        replaced = self._documents.between(document, chosen.start, chosen.end) if chosen else ""
        async with self._order:
            if client is not self.client:
                raise DaemonNotRunning("The connection to the daemon is lost.")
            if document.sent_edition is None:
                await self._open(client, document)
            if document.refused:
                raise DocumentError(NOT_TAKEN)
            if chosen is None:
                return await self._complete(client, document, request, position)
            end = after(chosen.start, chosen.text, self._documents.width)
            await self._edit(client, document, chosen.start, chosen.end, chosen.text)
            completion = await self._complete(client, document, request, end)
            await self._edit(client, document, chosen.start, end, replaced)
            return completion

    # --- messages, in our turn ------------------------------------------------------------------

    async def _open(self, client: AsyncClient, document: OpenDocument) -> None:
        text = document.text.text
        document.refused = document.refused or not _fits(text)
        if document.refused:
            return
        document.sent_edition = document.edition
        document.sent_version += 1
        document.opened_version = document.sent_version
        await client.open(document.uri, text, document.sent_version, document.text.language)

    async def _change(
        self, client: AsyncClient, document: OpenDocument, change: params.Change, edition: int
    ) -> None:
        if document.sent_edition is None or document.sent_edition >= edition:
            return  # it will be opened with these edits, or was
        if change.text is not None or not _fits(*(edit.text for edit in change.edits)):
            await self._open(client, document)
            return
        document.sent_edition = edition
        document.sent_version += 1
        await client.change(document.uri, document.sent_version, change.edits)

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

    # --- errors ---------------------------------------------------------------------------------

    def _on_error(self, error: wire.Error) -> None:
        document = self._documents.get(error.uri or "")
        if error.code != DocumentError.code or document is None:
            return
        if document.sent_version == document.opened_version:
            # Nothing was sent since its text: the daemon does not want it, and would not again.
            _log.warning("the daemon does not take a document: %s", error.message)
            document.refused, document.sent_edition = True, None
            return
        _log.info("the daemon has lost track of a document; opening it again")
        task = asyncio.create_task(self.opened(document))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _fits(*texts: str) -> bool:
    """Whether texts fit into one message, however many characters have to be escaped."""
    if sum(map(len, texts)) * _MOST_BYTES_PER_CHARACTER <= _LARGEST_MESSAGE:
        return True
    return sum(len(msgspec.json.encode(text)) for text in texts) <= _LARGEST_MESSAGE
