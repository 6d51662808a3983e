"""What a completion sees of its document, taken when it is asked for.

The document may change while the model loads or writes; the snapshot does not. Knows no tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from swiftspec_daemon.completion.stopping import Surroundings
from swiftspec_daemon.documents import Document

_AFTER = 4096
"""Code points after the cursor that are looked at."""
_LONGEST_NAME = 100
_LINE_END = re.compile("\r\n|\n|\r")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Text around a cursor."""

    before: str
    """As in the document, up to the cursor; not from the document's start if that is far."""
    start: int
    """Where `before` begins in the document, in code points."""
    around: Surroundings
    eol: str
    language: str
    name: str
    """The file's name without its folder; empty if the document has none."""
    text_id: str
    """`text_id` of the document."""

    @property
    def cursor(self) -> int:
        """Offset in the document, in code points."""
        return self.start + len(self.before)

    @classmethod
    def take(cls, document: Document, offset: int, reach: int) -> Snapshot:
        """The text up to `reach` code points before `offset`, and what follows it."""
        start = max(0, offset - reach)
        before = document.slice(start, offset)
        after = plain(document.slice(offset, offset + _AFTER))
        line_after, *below = after.split("\n")
        around = Surroundings(
            line_before=plain(before[-_AFTER:]).rpartition("\n")[2],
            line_after=line_after,
            next_line=next(filter(str.strip, below), ""),
        )
        name = _file_name(document.uri)
        return cls(before, start, around, document.eol, document.language, name, text_id(document))

    def window(self, size: int) -> str:
        """Text before the cursor, about half of `size` code points to all of it, for a model.

        It starts at the document's start or at a line start near a multiple of half of `size`, so
        the start stays where it is while the user types and moves in large steps. `size` is at
        most what the snapshot was taken with.
        """
        if self.cursor <= size:
            return plain(self.before)
        step = max(1, size // 2)
        start = -(-(self.cursor - size) // step) * step - self.start
        # From one before, so that a start that is a line's start stays.
        line_end = _LINE_END.search(self.before, max(0, start - 1), start + step // 2)
        return plain(self.before[line_end.end() if line_end else start :])


def text_id(document: Document) -> str:
    """The document's name for the engine, the same in all clients; empty if it has none."""
    return ascii(document.uri) if document.uri else ""


def _file_name(uri: str) -> str:
    try:
        name = unquote(urlsplit(uri).path).rpartition("/")[2]
    except ValueError:  # not a URI
        return ""
    return name if "." in name and len(name) <= _LONGEST_NAME and name.isprintable() else ""


def plain(text: str) -> str:
    """`text` as models know it: lines end with "\\n", and no half characters."""
    return _SURROGATE.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
