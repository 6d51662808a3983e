"""Frames over pipes for a computing loop: whole frames in order, deadlines, and lost partners."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon.errors import ProtocolError
from swiftspec_daemon.parallel.channel import ChannelClosed, FrameChannel

pytestmark = pytest.mark.skipif(os.name != "posix", reason="waits for pipes, which is POSIX only")


def pair() -> tuple[FrameChannel, FrameChannel]:
    """Two ends that are connected."""
    left_read, right_write = os.pipe()
    right_read, left_write = os.pipe()
    return FrameChannel(left_read, left_write), FrameChannel(right_read, right_write)


@pytest.fixture
def ends() -> Iterator[tuple[FrameChannel, FrameChannel]]:
    left, right = pair()
    yield left, right
    left.close()
    right.close()


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 50))
def test_frames_arrive_whole_and_in_order_however_the_bytes_are_cut(
    bodies: list[bytes], piece: int
) -> None:
    read, write = os.pipe()
    unused_read, unused_write = os.pipe()
    channel = FrameChannel(read, unused_write)
    data = b"".join(map(frame, bodies))
    got: list[bytes] = []
    for start in range(0, len(data), piece):
        os.write(write, data[start : start + piece])
        got += channel.receive(0.0)
    assert got == bodies
    channel.close()
    for descriptor in (write, unused_read):
        os.close(descriptor)


def test_receive_returns_nothing_when_nothing_comes_in_time(
    ends: tuple[FrameChannel, FrameChannel],
) -> None:
    started = time.perf_counter()
    assert ends[0].receive(0.05) == []
    assert time.perf_counter() - started >= 0.04


def test_a_closed_partner_is_noticed_on_both_ways() -> None:
    left, right = pair()
    right.send(frame(b"last words"))
    right.close()
    assert left.receive(1.0) == [b"last words"]
    with pytest.raises(ChannelClosed):
        left.receive(1.0)
    with pytest.raises(ChannelClosed):
        left.send(frame(b"x"))
    left.close()


def test_a_partner_that_does_not_read_does_not_block_the_writer(
    ends: tuple[FrameChannel, FrameChannel],
) -> None:
    def fill() -> None:
        for _ in range(100):
            ends[0].send(frame(bytes(10_000)), timeout_s=0.01)

    with pytest.raises(ChannelClosed):
        fill()


def test_an_absurd_length_is_refused(ends: tuple[FrameChannel, FrameChannel]) -> None:
    ends[0].send(b"\xff\xff\xff\xff")
    with pytest.raises(ProtocolError):
        ends[1].receive(1.0)


ECHO = """
import sys
from swiftspec_daemon.parallel.channel import ChannelClosed, FrameChannel
channel = FrameChannel(0, 1)
try:
    while True:
        for body in channel.receive(None):
            channel.send(len(body).to_bytes(4, "little") + body, timeout_s=1.0)
except ChannelClosed:
    pass
"""


def test_another_process_echoes_and_ends_with_us() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    channel = FrameChannel(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno()))
    process.stdin.close()
    for number in range(100):
        channel.send(frame(str(number).encode()), timeout_s=1.0)
        got: list[bytes] = []
        while not got:
            got = channel.receive(10.0)
        assert got == [str(number).encode()]
    channel.close()
    process.stdout.close()
    assert process.wait(10) == 0
