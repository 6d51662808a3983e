"""Frames survive any chunking, and nonsense is refused."""

import asyncio
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon.errors import ProtocolError
from swiftspec_daemon.parallel.frames import (
    MAX_FRAME_BYTES,
    read_frames,
    receive_frame,
    write_all,
)


def frame(body):
    return len(body).to_bytes(4, "little") + body


def written_in_pieces(data, sizes):
    """The reading end of a pipe into which a thread writes `data` piece by piece."""
    reading, writing = os.pipe()

    def write():
        rest = data
        for size in sizes:
            write_all(writing, rest[:size])
            rest = rest[size:]
        write_all(writing, rest)
        os.close(writing)

    threading.Thread(target=write).start()
    return reading


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=10), st.lists(st.integers(1, 50), max_size=30))
def test_bodies_arrive_whole(bodies, sizes):
    reading = written_in_pieces(b"".join(map(frame, bodies)), sizes)
    assert list(read_frames(reading)) == bodies
    os.close(reading)


def test_a_body_larger_than_the_pipe():
    body = os.urandom(1_000_000)
    reading = written_in_pieces(frame(body), [])
    assert list(read_frames(reading)) == [body]
    os.close(reading)


def test_an_incomplete_frame_at_the_end_is_dropped():
    reading = written_in_pieces(frame(b"whole") + frame(b"cut off")[:-1], [])
    assert list(read_frames(reading)) == [b"whole"]
    os.close(reading)


def test_an_absurd_length_is_refused():
    reading = written_in_pieces((MAX_FRAME_BYTES + 1).to_bytes(4, "little"), [])
    with pytest.raises(ProtocolError, match="claims"):
        list(read_frames(reading))
    os.close(reading)


async def test_receive():
    reader = asyncio.StreamReader()
    reader.feed_data(frame(b"one") + frame(b"") + frame(b"cut off")[:-1])
    reader.feed_eof()
    assert [await receive_frame(reader) for _ in range(3)] == [b"one", b"", None]
    reader = asyncio.StreamReader()
    reader.feed_data(b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError):
        await receive_frame(reader)
