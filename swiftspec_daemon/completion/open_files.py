"""Tells the engine what stands in open files, so that drafts may copy from there too.

A file is sent when it is opened, and again, if it has changed, when the user goes on in another
one; nothing happens at a keystroke. All waits until no completion runs, and is tokenised piece by
piece in a thread. Nothing of it is logged or written. Knows no sockets and no drafts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from swiftspec_daemon.completion.snapshot import plain, text_id
from swiftspec_daemon.completion.tokenizer import CHEAP, Tokenizer
from swiftspec_daemon.documents import Document
from swiftspec_daemon.engine.interface import Engine, EngineStatus
from swiftspec_daemon.engine.messages import Forget, Remember
from swiftspec_daemon.errors import SwiftSpecError

_log = logging.getLogger(__name__)

MOST_FILES = 16
"""The files used last; more do not wait to be sent."""
MOST_TEXT = 32_768
"""Code points; of a longer file the beginning is sent."""


class _File:
    """A document as its clients have it open, the one used last being the last."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.sent: tuple[Document, int] | None = None
        """What was sent, and its version."""

    @property
    def up_to_date(self) -> bool:
        document = self.documents[-1]
        return self.sent is not None and self.sent == (document, document.version)


class OpenFiles:
    """The open files of all clients."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Callable[[], Awaitable[Tokenizer]],
        quiet: Callable[[], Awaitable[object]],
        *,
        enabled: bool,
    ) -> None:
        """`quiet` waits until no completion runs. Unless `enabled`, nothing is ever done."""
        self._engine = engine
        self._tokenizer = tokenizer
        self._quiet = quiet
        self._enabled = enabled
        self._files: dict[str, _File] = {}
        """By name; the one used last is last."""
        self._current: dict[int, Document] = {}
        """By client: where the user is."""
        self._waiting: dict[str, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._ready = False
        if enabled:
            self._ready = engine.status.state == "ready"
            engine.on_status(self._engine_changed)

    async def settled(self) -> None:
        """Wait until nothing is left to send."""
        if self._sending is not None:
            await asyncio.wait([self._sending])

    def opened(self, document: Document) -> None:
        """A client has opened a document."""
        name = text_id(document)
        if self._enabled and name:
            self._use(name, document)
            self._send([name])

    def completing(self, document: Document, client: int) -> None:
        """The user is in this document; where another one was left, what changed is sent."""
        name = text_id(document)
        if name not in self._files or self._current.get(client) is document:
            return
        self._current[client] = document
        self._use(name, document)
        self._send([name for name, file in self._files.items() if not file.up_to_date])

    def closed(self, document: Document) -> None:
        """A client has closed a document; it is forgotten when no other one has it open."""
        name = text_id(document)
        file = self._files.get(name)
        for client, current in list(self._current.items()):
            if current is document:
                del self._current[client]
        if file is None or document not in file.documents:
            return
        file.documents.remove(document)
        if not file.documents:
            del self._files[name]
            self._waiting.pop(name, None)
            self._engine.inform(Forget(text_id=name))

    def _use(self, name: str, document: Document) -> None:
        file = self._files.pop(name, None) or _File()
        self._files[name] = file
        if document in file.documents:
            file.documents.remove(document)
        file.documents.append(document)

    def _engine_changed(self, status: EngineStatus) -> None:
        """A worker that has just become ready knows nothing yet."""
        ready, self._ready = self._ready, status.state == "ready"
        if self._ready and not ready:
            for file in self._files.values():
                file.sent = None
            self._send(list(self._files)[-MOST_FILES:])

    # --- sending --------------------------------------------------------------------------------

    def _send(self, names: list[str]) -> None:
        for name in names:
            self._waiting.pop(name, None)
            self._waiting[name] = None
        while len(self._waiting) > MOST_FILES:
            del self._waiting[next(iter(self._waiting))]
        if self._waiting and self._ready and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send_waiting(), name="open files")

    async def _send_waiting(self) -> None:
        try:
            tokenizer = await self._tokenizer()
            while self._waiting and self._ready:
                name = next(iter(self._waiting))
                del self._waiting[name]
                await self._send_one(name, tokenizer)
        except SwiftSpecError as error:  # completions say the same to those who ask for them
            _log.info("open files are not sent to the engine: %s", error)
        except Exception as error:  # the edge: completions must not suffer; its words may be text
            _log.error("sending open files failed: %s", type(error).__name__)

    async def _send_one(self, name: str, tokenizer: Tokenizer) -> None:
        file = self._files[name]
        document = file.documents[-1]
        if file.up_to_date or document in self._current.values():
            return  # what the user is in will be sent when it is left
        sent = (document, document.version)
        tokens: list[int] = []
        for piece in _pieces(plain(document.slice(0, MOST_TEXT))):
            await self._quiet()
            if document not in file.documents:
                return
            tokens += await asyncio.to_thread(tokenizer.encode, piece, space=False)
        await self._quiet()
        if self._ready and document in file.documents:
            file.sent = sent
            self._engine.inform(Remember(text_id=name, tokens=tokens))


def _pieces(text: str) -> Iterator[str]:
    """`text` in pieces that are cheap to encode, which end behind a line end where they can.

    A token across their borders is lost: for copying it does not matter.
    """
    start = 0
    while start < len(text):
        end = min(start + CHEAP, len(text))
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end
