"""Turns the text of a completion into the items that editors expect.

Items are plain JSON objects. Knows positions and texts; knows nothing of connections.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from swiftspec_daemon.protocol.messages import Position

from .capabilities import ACCEPT_COMMAND
from .documents import Cursor
from .params import SelectedCompletion

_WORD_END = re.compile(r"\w*\Z")
_TEXT_KIND = 1
_LAST = "\uffff"
"""Sorts behind what other servers offer."""


def range_of(start: Position, end: Position) -> dict[str, Any]:
    """An LSP range."""
    return {
        "start": {"line": start.line, "character": start.character},
        "end": {"line": end.line, "character": end.character},
    }


def accept_command(completion_id: str) -> dict[str, Any]:
    """The command that the editor executes once the user has taken the item."""
    return {
        "title": "Accept the completion",
        "command": ACCEPT_COMMAND,
        "arguments": [completion_id],
    }


def inline_item(
    completion_id: str, text: str, position: Position, selected: SelectedCompletion | None
) -> dict[str, Any]:
    """An `InlineCompletionItem`. It always has a range: some editors fail without one.

    With a selected menu entry it replaces the entry's range and starts with the entry's text, as
    the protocol demands.
    """
    if selected is not None:
        text = selected.text + text
        where = range_of(selected.start, selected.end)
    else:
        where = range_of(position, position)
    return {
        "insertText": text,
        "range": where,
        "command": accept_command(completion_id),
    }


def plain_item(
    completion_id: str, text: str, cursor: Cursor, width: Callable[[str], int]
) -> dict[str, Any] | None:
    """A `CompletionItem` for editors that have only a menu, or None if it would show nothing.

    Its range begins at the word before the cursor, because editors match what is typed against
    the text of the range. `width` gives the code units of a text.
    """
    before = cursor.line[: cursor.column]
    match = _WORD_END.search(before)
    word = match.group() if match else ""
    whole = word + text
    first_line = next(filter(str.strip, whole.splitlines()), "").strip()
    if not first_line:
        return None
    start = Position(cursor.position.line, cursor.position.character - width(word))
    return {
        "label": first_line,
        "kind": _TEXT_KIND,
        "detail": "SwiftSpec",
        "documentation": whole,
        "filterText": whole,
        "sortText": _LAST,
        "textEdit": {"range": range_of(start, cursor.position), "newText": whole},
        "command": accept_command(completion_id),
    }
