"""The reader of frames, fed in arbitrary chunks."""

import asyncio
import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygls.io_ import StdinAsyncReader

from swiftspec_daemon.lsp.framing import (
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    FramingError,
    read_frame,
)


def frames(*chunks: bytes) -> list[bytes]:
    """The bodies in an input that arrives in `chunks` and then ends."""

    async def read() -> list[bytes]:
        source = asyncio.StreamReader(limit=MAX_HEADER_BYTES)

        async def feed() -> None:
            for chunk in chunks:
                source.feed_data(chunk)
                await asyncio.sleep(0)  # so that the reader sees each chunk by itself
            source.feed_eof()

        feeding = asyncio.create_task(feed())
        try:
            return await bodies_of(source)
        finally:
            await feeding

    return asyncio.run(read())


async def bodies_of(source) -> list[bytes]:
    found = []
    while (body := await read_frame(source)) is not None:
        found.append(body)
    return found


@st.composite
def spelled(draw, body: bytes) -> bytes:
    """A frame as some client might write it."""
    blank = st.text(" \t", max_size=3)
    end = draw(st.sampled_from(["\r\n", "\n"]))
    letters = st.sampled_from([str.upper, str.lower])
    name = "".join(draw(letters)(letter) for letter in "Content-Length")
    others = st.sampled_from(
        [
            "Content-Type: application/vscode-jsonrpc; charset=utf-8",
            "content-type:text/plain;charset=latin-1",
            "X-Empty:",
            "X-Colons: a:b:c",
            "X-Accent: é",
        ]
    )
    zeros = "0" * draw(st.integers(0, 3))
    length = f"{draw(blank)}{name}{draw(blank)}:{draw(blank)}{zeros}{len(body)}{draw(blank)}"
    headers = draw(st.permutations([length, *draw(st.lists(others, max_size=3))]))
    before = end * draw(st.integers(0, 2))
    return (before + "".join(header + end for header in headers) + end).encode() + body


def chunks_of(data: bytes, edges: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(edge % (len(data) + 1) for edge in edges)})
    return [data[start:end] for start, end in itertools.pairwise(marks)]


bodies = st.lists(st.binary(max_size=60) | st.just(b"Content-Length: 3\r\n\r\n"), max_size=4)
edges = st.lists(st.integers(0, 10_000), max_size=20)


@given(st.data(), bodies, edges)
def test_every_spelling_in_all_chunks(data, bodies, edges):
    stream = b"".join(data.draw(spelled(body)) for body in bodies)
    assert frames(*chunks_of(stream, edges)) == bodies


@given(st.data(), st.binary(max_size=30), edges)
def test_an_end_inside_a_message(data, body, edges):
    stream = data.draw(spelled(body))
    start = len(stream) - len(stream.lstrip(b"\r\n"))
    cut = data.draw(st.integers(start + 1, len(stream) - 1)) if len(stream) > start + 1 else start
    with pytest.raises(EOFError):
        frames(b"Content-Length: 2\r\n\r\n{}", *chunks_of(stream[:cut], edges))


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_anything_at_all_ends(chunks):
    try:
        found = frames(*chunks)
    except (FramingError, EOFError):
        return
    assert sum(map(len, found)) <= sum(map(len, chunks))


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"Content-Length: -5", "not a number"),
        (b"Content-Length: +5", "not a number"),
        (b"Content-Length: 5.0", "not a number"),
        (b"Content-Length: 0x5", "not a number"),
        (b"Content-Length: 1_0", "not a number"),
        ("Content-Length: ٥".encode(), "not a number"),
        (b"Content-Length:", "not a number"),
        (b"Content-Length: %d" % (MAX_BODY_BYTES + 1), "above 64 MiB"),
        (b"Content-Length: " + b"9" * 5000, "above 64 MiB"),
        (b"Content-Type: text/plain", "no Content-Length"),
        (b"Content-Length: 2\r\nContent-Length: 3", "two different"),
        (b"telltale", "not a header"),
        (b": 5", "not a header"),
        (b'{"telltale": 1}', "not a header"),
        (b"X: " + b"x" * MAX_HEADER_BYTES, "longer than 64 KiB"),
        (b"\r\n".join([b"X: telltale"] * 6000), "longer than 64 KiB"),
        (b"\r\n" * MAX_HEADER_BYTES, "longer than 64 KiB"),
    ],
)
def test_lost_framing(header, reason, ends):
    with pytest.raises(FramingError, match=reason) as failure:
        frames(b"Content-Length: 2\r\n\r\n{}", header + ends + ends)
    assert "telltale" not in str(failure.value)


def test_the_largest_length_is_taken():
    with pytest.raises(EOFError):
        frames(b"Content-Length: %d\r\n\r\n{}" % MAX_BODY_BYTES)


def test_the_same_length_twice():
    assert frames(b"Content-Length: 2\r\ncontent-length:02\r\n\r\n{}") == [b"{}"]


@pytest.mark.parametrize("tail", [b"Content-Length: 3\r\n\r\n{}", b"Content-Length", b"A: 1\r\n"])
async def test_a_source_that_returns_less_at_the_end(tail):
    """As the thread does that reads from files."""
    whole = b"Content-Length: 2\r\n\r\n{}"
    assert await bodies_of(StdinAsyncReader(io.BytesIO(whole * 2))) == [b"{}", b"{}"]
    with pytest.raises(EOFError):
        await bodies_of(StdinAsyncReader(io.BytesIO(whole + tail)))
