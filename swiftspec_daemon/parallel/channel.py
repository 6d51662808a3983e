"""Frames over a pair of pipes for a loop that also computes: what is there now, or within a time.

One thread, no polling while idle: the system wakes the waiting side. A write never blocks for
long, so a stopped reader cannot stop the writer. POSIX only (Windows cannot wait for a pipe).
Knows nothing of what the frames mean.
"""

from __future__ import annotations

import os
import select
import time

from swiftspec_daemon.parallel.frames import HEADER_BYTES, body_length

_READ_BYTES = 1 << 16
_WRITE_BYTES = 1 << 16


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
        self._unsent = bytearray()

    @property
    def unsent(self) -> int:
        """Bytes of posted frames that the other side has no room for yet."""
        return len(self._unsent)

    def post(self, frame: bytes) -> None:
        """Take over a whole frame and write what there is room for; never waits.

        The rest goes out in later calls of `post` and `receive`: a pipe holds some 64 KiB, and a
        reader in the middle of a long computation is slow, not gone. Raises ChannelClosed.
        """
        self._unsent += frame
        self._flush()

    def send(self, frame: bytes, timeout_s: float = 0.0) -> None:
        """Write a whole frame. Raises ChannelClosed if the other side takes nothing for
        `timeout_s`."""
        self.post(frame)
        while self._unsent:
            if not select.select([], [self._write], [], timeout_s)[1]:
                raise ChannelClosed("the other side does not read")
            self._flush()

    def receive(self, timeout_s: float | None) -> list[bytes]:
        """Bodies of the frames that are there; waits up to `timeout_s` (None: for ever) for one.

        Writes what is unsent meanwhile. Raises ChannelClosed when the other side has closed and
        nothing of it is left to read, ProtocolError for an absurd length.
        """
        until = None if timeout_s is None else time.monotonic() + max(timeout_s, 0.0)
        wait = None if timeout_s is None else max(timeout_s, 0.0)
        while True:
            writing = [self._write] if self._unsent else []
            readable, writable, _ = select.select([self._read], writing, [], wait)
            if readable:
                self._fill()
                if frames := self._take():
                    return frames
            if writable:
                self._flush()
            if until is not None:
                wait = until - time.monotonic()
                if wait <= 0:
                    return []

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self._read)
        os.close(self._write)

    def _flush(self) -> None:
        """Write as much of what is unsent as there is room for."""
        try:
            while self._unsent:
                del self._unsent[: os.write(self._write, self._unsent[:_WRITE_BYTES])]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionError) as error:
            raise ChannelClosed("the other side is gone") from error

    def _fill(self) -> None:
        """Read what is there. Whoever has closed is gone once all it wrote has been read."""
        started = len(self._buffer)
        while True:
            try:
                chunk = os.read(self._read, _READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                if len(self._buffer) > started:
                    return
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
