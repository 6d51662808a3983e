"""Turns the codes of wire errors back into the exceptions of `swiftspec_daemon.errors`.

Knows nothing of connections.
"""

from __future__ import annotations

from collections.abc import Iterator

from swiftspec_daemon.errors import SwiftSpecError


def error_for(code: str, message: str, hint: str = "") -> SwiftSpecError:
    """The exception whose `code` this is; a plain SwiftSpecError for codes we do not know."""
    for kind in _kinds(SwiftSpecError):
        if kind.code == code:
            return kind(message, hint)
    return SwiftSpecError(message or f"The daemon answered with the error {code!r}.", hint)


def _kinds(kind: type[SwiftSpecError]) -> Iterator[type[SwiftSpecError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)
