"""Messages in a byte stream: headers with a Content-Length, an empty line, that many bytes.

Reads the base protocol of the Language Server Protocol as clients really write it: names in any
letter case, blanks around names and values, further headers in any order, lines that end in LF
alone, empty lines between messages. Knows nothing of what the bytes of a message mean.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Protocol

from swiftspec_daemon.errors import ProtocolError

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_HEADER_BYTES = 64 * 1024
"""All headers of a message together; also the limit that a source of bytes needs for its lines."""

_NAME = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+")  # a token of RFC 9110, section 5.6.2
_LENGTH = b"content-length"


class Source(Protocol):
    """What bytes are read from: an `asyncio.StreamReader`, or a thread with its methods."""

    def readline(self) -> Awaitable[bytes]:
        """A line with its end; less at the end of the input; ValueError if it is too long."""

    def readexactly(self, n: int, /) -> Awaitable[bytes]:
        """`n` bytes; less, or EOFError, at the end of the input."""


class FramingError(ProtocolError):
    """The headers do not tell where the next message begins: nothing after them can be read.

    The reason never holds what was read, which may be text of a document.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The bridge ends, because the editor's messages cannot be told apart: {reason}; "
            "restart the language server from the editor."
        )


async def read_frame(source: Source) -> bytes | None:
    """The body of the next message; None at the end of the input.

    Raises FramingError, and EOFError if the input ends inside a message.
    """
    length = await _read_length(source)
    if length is None:
        return None
    body = await source.readexactly(length)
    if len(body) < length:
        raise EOFError
    return body


async def _read_length(source: Source) -> int | None:
    """The length of a body, in bytes, from the headers before it; None at the end of the input."""
    length: int | None = None
    size = headers = 0
    while line := await _read_line(source):
        if not line.endswith(b"\n"):
            raise EOFError
        size += len(line)
        if size > MAX_HEADER_BYTES:
            raise FramingError("the headers of a message are longer than 64 KiB")
        if line.strip():
            headers += 1
            given = _length_in(line)
            if None not in (given, length) and given != length:
                raise FramingError("a message has two different Content-Lengths")
            length = length if given is None else given
        elif headers:
            if length is None:
                raise FramingError("a message has no Content-Length")
            return length
    if headers:
        raise EOFError
    return None


async def _read_line(source: Source) -> bytes:
    try:
        return await source.readline()
    except ValueError:
        raise FramingError("a header is longer than 64 KiB") from None


def _length_in(line: bytes) -> int | None:
    """The number of bytes that a header line announces; None if it is another header."""
    name, colon, value = (part.strip() for part in line.partition(b":"))
    if not colon or _NAME.fullmatch(name) is None:
        raise FramingError("a line is not a header")
    if name.lower() != _LENGTH:
        return None
    if not value.isdigit():
        raise FramingError("a Content-Length is not a number of bytes")
    digits = value.lstrip(b"0") or b"0"
    # Python refuses to convert thousands of digits.
    if len(digits) > len(str(MAX_BODY_BYTES)) or int(digits) > MAX_BODY_BYTES:
        raise FramingError("a Content-Length is above 64 MiB")
    return int(digits)
