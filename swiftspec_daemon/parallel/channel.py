"""Frames over a pair of pipes for a loop that also computes: what is there now, or within a time.

One thread, no polling while idle: the system wakes the waiting side. A write never blocks for
long, so a stopped reader cannot stop the writer. POSIX only (Windows cannot wait for a pipe).
Knows nothing of what the frames mean.
"""

from __future__ import annotations

import os
import select

from swiftspec_daemon.parallel.frames import HEADER_BYTES, body_length

_READ_BYTES = 1 << 16


class ChannelClosed(Exception):
    """The other side is gone, or does not take what it is sent."""


class FrameChannel:
    """One end of two pipes."""

    def __init__(self, read_descriptor: int, write_descriptor: int) -> None:
        """Takes both over; the write end becomes non-blocking."""
        self._read = read_descriptor
        self._write = write_descriptor
        os.set_blocking(read_descriptor, False)
        os.set_blocking(write_descriptor, False)
        self._buffer = bytearray()

    def send(self, frame: bytes, timeout_s: float = 0.0) -> None:
        """Write a whole frame. Raises ChannelClosed if it does not fit within `timeout_s`."""
        view = memoryview(frame)
        while view:
            try:
                view = view[os.write(self._write, view) :]
            except BlockingIOError:
                if not select.select([], [self._write], [], timeout_s)[1]:
                    raise ChannelClosed("the other side does not read") from None
            except (BrokenPipeError, ConnectionError) as error:
                raise ChannelClosed("the other side is gone") from error

    def receive(self, timeout_s: float | None) -> list[bytes]:
        """Bodies of the frames that are there; waits up to `timeout_s` (None: for ever) for one.

        Raises ChannelClosed when the other side has closed, ProtocolError for an absurd length.
        """
        frames = self._take()
        if frames:
            timeout_s = 0.0
        wait = None if timeout_s is None else max(timeout_s, 0.0)
        if not select.select([self._read], [], [], wait)[0]:
            return frames
        self._fill()
        return frames + self._take()

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self._read)
        os.close(self._write)

    def _fill(self) -> None:
        while True:
            try:
                chunk = os.read(self._read, _READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                raise ChannelClosed("the other side is gone")
            self._buffer += chunk
            if len(chunk) < _READ_BYTES:
                return

    def _take(self) -> list[bytes]:
        frames = []
        start = 0
        while len(self._buffer) - start >= HEADER_BYTES:
            body = start + HEADER_BYTES
            end = body + body_length(self._buffer[start:body])
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[body:end]))
            start = end
        del self._buffer[:start]
        return frames
