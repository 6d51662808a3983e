"""The open documents of one editor, as the bridge keeps them for the daemon.

Each has version numbers of its own for the daemon, since editors may repeat or skip theirs and a
request may need an edit that no editor made. Knows edits and positions, not connections.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from swiftspec_daemon.documents import Document
from swiftspec_daemon.protocol.messages import Position, PositionEncoding

from . import params

_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass
class OpenDocument:
    """One document: its text now, and how much of that the daemon knows."""

    text: Document
    edition: int = 0
    """How many times the editor has changed it."""
    sent_edition: int | None = None
    """The edition that the daemon has on the present connection; None before it is opened there."""
    sent_version: int = 0
    """The version number that the daemon has for it; only grows."""
    opened_version: int = -1
    """The version at which the daemon was last sent the whole text."""
    refused: bool = False
    """The daemon does not take it; it is not offered again."""

    @property
    def uri(self) -> str:
        return self.text.uri


@dataclass(frozen=True)
class Cursor:
    """Where a completion is asked for; inside the document, whatever the editor sent."""

    position: Position
    line: str
    """The whole line, without its line end."""
    column: int
    """Of the cursor in `line`, in code points."""


class OpenDocuments:
    """All open documents by their URI."""

    def __init__(self, encoding: PositionEncoding = "utf-16") -> None:
        self.encoding: PositionEncoding = encoding
        self._documents: dict[str, OpenDocument] = {}

    def __iter__(self) -> Iterator[OpenDocument]:
        return iter(list(self._documents.values()))

    def get(self, uri: str) -> OpenDocument | None:
        """The document, or None if the editor never opened it."""
        return self._documents.get(uri)

    def open(self, uri: str, text: str, language: str) -> OpenDocument:
        """Take a document; one that was open under this URI is replaced."""
        old = self._documents.get(uri)
        document = OpenDocument(Document(text, uri=uri, language=language))
        document.sent_version = old.sent_version if old else 0
        self._documents[uri] = document
        return document

    def close(self, uri: str) -> None:
        """Forget a document; harmless if it is not open."""
        self._documents.pop(uri, None)

    def change(self, document: OpenDocument, change: params.Change) -> None:
        """Make the edits of one `didChange`."""
        document.edition += 1
        if change.text is not None:
            document.text.replace(change.text, document.edition)
        document.text.apply(change.edits, document.edition, self.encoding)

    def cursor(self, document: OpenDocument, position: Position) -> Cursor:
        """`position`, clamped to the document, and the line that it is in."""
        text = document.text
        offset = text.offset(position, self.encoding)
        inside = text.position(offset, self.encoding)
        start, end = text.line_span(inside.line)
        return Cursor(inside, text.slice(start, end), offset - start)

    def between(self, document: OpenDocument, start: Position, end: Position) -> str:
        """The text from `start` to `end`."""
        text = document.text
        return text.slice(text.offset(start, self.encoding), text.offset(end, self.encoding))

    def width(self, text: str) -> int:
        """Length of a piece of one line in code units of the editor's encoding."""
        if self.encoding == "utf-32" or text.isascii():
            return len(text)
        codec = "utf-8" if self.encoding == "utf-8" else "utf-16-le"
        return len(text.encode(codec, "replace")) // (1 if self.encoding == "utf-8" else 2)


def after(start: Position, text: str, width: Callable[[str], int]) -> Position:
    """The position at the end of `text` that was inserted at `start`."""
    lines = _LINE_END.split(text)
    if len(lines) == 1:
        return Position(start.line, start.character + width(text))
    return Position(start.line + len(lines) - 1, width(lines[-1]))
