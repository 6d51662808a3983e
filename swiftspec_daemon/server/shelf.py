"""The documents that one client keeps open with us, and their versions.

A document that went out of step is put away, so that nothing is completed on a wrong text; the
error asks the client to open it again. Knows no completions.
"""

from __future__ import annotations

from typing import Protocol

from swiftspec_daemon.documents import Document
from swiftspec_daemon.errors import DocumentError
from swiftspec_daemon.protocol.messages import ChangeDocument, OpenDocument, PositionEncoding

MOST_DOCUMENTS = 1024
MOST_TEXT = 256 * 1024 * 1024
"""Code points, over all documents of a connection."""
_REOPEN = "Send `open` with the whole text."


class Watcher(Protocol):
    """Is told which documents are open."""

    def opened(self, document: Document) -> None: ...

    def closed(self, document: Document) -> None:
        """It was put away, for whatever reason."""


class Shelf:
    """Open documents by uri."""

    def __init__(
        self,
        watcher: Watcher | None = None,
        most_documents: int = MOST_DOCUMENTS,
        most_text: int = MOST_TEXT,
    ) -> None:
        self._watcher = watcher
        self._documents: dict[str, Document] = {}
        self._lost: set[str] = set()
        """Went out of step, and the client was told."""
        self._most_documents = most_documents
        self._most_text = most_text

    def __len__(self) -> int:
        return len(self._documents)

    def get(self, uri: str) -> Document:
        """Raises DocumentError if it is not open."""
        document = self._documents.get(uri)
        if document is None:
            raise DocumentError("This document is not open.", _REOPEN)
        return document

    def open(self, message: OpenDocument) -> None:
        """Take a document in, in place of one that has this uri. Raises DocumentError if full."""
        self.close(message.uri)
        if len(self._documents) >= self._most_documents:
            raise DocumentError(
                f"A connection can have {self._most_documents} documents open.", "Close some."
            )
        self._documents[message.uri] = Document(
            message.text, uri=message.uri, language=message.language, version=message.version
        )
        self._check_size(message.uri)
        if self._watcher is not None:
            self._watcher.opened(self._documents[message.uri])

    def change(self, message: ChangeDocument, encoding: PositionEncoding) -> None:
        """Edit a document. Raises DocumentError, after which it is no longer open.

        Further changes of such a document are ignored: one request to open it again is enough.
        """
        if message.uri in self._lost:
            return
        document = self.get(message.uri)
        try:
            _change(document, message, encoding)
        except DocumentError as error:
            self._drop(message.uri)
            self._lost.add(message.uri)
            raise DocumentError(error.message, _REOPEN) from None
        self._check_size(message.uri)

    def close(self, uri: str) -> None:
        """Put a document away, if it is open."""
        self._drop(uri)
        self._lost.discard(uri)

    def clear(self) -> None:
        """Put all documents away."""
        for uri in list(self._documents):
            self.close(uri)

    def _drop(self, uri: str) -> None:
        document = self._documents.pop(uri, None)
        if document is not None and self._watcher is not None:
            self._watcher.closed(document)

    def _check_size(self, uri: str) -> None:
        if sum(map(len, self._documents.values())) > self._most_text:
            self._drop(uri)
            raise DocumentError("The open documents are too large together.", "Close some.")


def _change(document: Document, message: ChangeDocument, encoding: PositionEncoding) -> None:
    if message.version <= document.version:
        raise DocumentError(
            f"Version {message.version} does not follow version {document.version}."
        )
    if message.text is not None:
        document.replace(message.text, message.version)
    else:
        document.apply(message.edits, message.version, encoding)
