"""Frames on a byte stream: a 4-byte little-endian length, then that many bytes.

Knows file descriptors and asyncio streams; knows nothing of what the bytes mean.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

from swiftspec_daemon.errors import ProtocolError

HEADER_BYTES = 4
MAX_FRAME_BYTES = 64 * 1024 * 1024
_READ_BYTES = 1 << 16


def body_length(header: bytes | bytearray) -> int:
    """What a frame's first bytes say of its length. Raises ProtocolError for an absurd one."""
    length = int.from_bytes(header, "little")
    if length > MAX_FRAME_BYTES:
        raise ProtocolError(f"A frame claims {length} bytes; at most {MAX_FRAME_BYTES} are taken.")
    return length


def read_frames(descriptor: int) -> Iterator[bytes]:
    """The bodies of the frames that arrive, until the other end closes. Blocks.

    An incomplete frame at the end is dropped. Raises ProtocolError for an absurd length.
    """
    buffer = bytearray()
    while chunk := os.read(descriptor, _READ_BYTES):
        buffer += chunk
        while len(buffer) >= HEADER_BYTES:
            end = HEADER_BYTES + body_length(bytes(buffer[:HEADER_BYTES]))
            if len(buffer) < end:
                break
            yield bytes(buffer[HEADER_BYTES:end])
            del buffer[:end]


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`. Blocks. Raises BrokenPipeError when the other end is gone."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


async def receive_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next frame; None when the other end has closed.

    Raises ProtocolError for an absurd length.
    """
    try:
        header = await reader.readexactly(HEADER_BYTES)
        return await reader.readexactly(body_length(header))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
