"""FILE:LINE:COL and the files that people have."""

import io
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.cli.target import Target, locate, parse_target, read_source
from swiftspec_daemon.documents import Document
from swiftspec_daemon.errors import UsageError
from swiftspec_daemon.protocol.messages import Position

BIG = 10_000_000


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("a.py:3:7", Target("a.py", 3, 7)),
        ("a.py:3", Target("a.py", 3, None)),
        ("a.py", Target("a.py", None, None)),
        ("-:1:1", Target("-", 1, 1)),
        ("-", Target("-", None, None)),
        ("C:\\code\\a.py:3:7", Target("C:\\code\\a.py", 3, 7)),
        ("a:b:3", Target("a:b", 3, None)),
        ("a.py:x", Target("a.py:x", None, None)),
    ],
)
def test_a_target_is_taken_apart_from_the_right(argument, expected):
    assert parse_target(argument) == expected


def test_a_file_that_is_named_like_a_target_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:3").write_text("x")
    assert parse_target("a:3") == Target("a:3", None, None)
    assert parse_target("a:3:1") == Target("a", 3, 1)


@pytest.mark.parametrize("argument", ["a.py:0", "a.py:0:1", "a.py:1:0"])
def test_lines_and_columns_count_from_one(argument):
    with pytest.raises(UsageError, match="count from 1"):
        parse_target(argument)


@given(st.text(alphabet="ab\r\n😀é", max_size=40), st.data())
def test_every_place_in_a_text_is_found_and_none_outside(text, data):
    document = Document(text)
    line = data.draw(st.integers(1, document.line_count))
    length = len(document.line(line - 1))
    column = data.draw(st.integers(1, length + 1))
    assert locate(Target("f", line, column), document) == Position(line - 1, column - 1)
    assert locate(Target("f", line, None), document) == Position(line - 1, length)
    with pytest.raises(UsageError, match=f"{length} characters"):
        locate(Target("f", line, length + 2), document)
    with pytest.raises(UsageError, match=f"has {document.line_count} line"):
        locate(Target("f", document.line_count + 1, None), document)


def test_without_a_place_it_is_the_end_of_the_file():
    assert locate(Target("f", None, None), Document("a\nbc")) == Position(1, 2)
    assert locate(Target("f", None, None), Document("")) == Position(0, 0)


@pytest.mark.parametrize(
    ("raw", "text", "encoding"),
    [
        (b"", "", "utf-8"),
        ("é😀\r\n".encode(), "é😀\r\n", "utf-8"),
        ("é".encode("utf-8-sig"), "é", "utf-8"),
        (b"caf\xe9", "café", "latin-1"),
        (b"\xed\xa0\x80", "í\xa0\x80", "latin-1"),
    ],
)
def test_how_bytes_are_read(tmp_path, raw, text, encoding):
    file = tmp_path / "a.py"
    file.write_bytes(raw)
    source = read_source(str(file), max_bytes=BIG)
    assert (source.text, source.encoding, source.language) == (text, encoding, "python")
    assert source.uri == file.as_uri()


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x = 1")))
    source = read_source("-", max_bytes=BIG)
    assert (source.text, source.language) == ("x = 1", "")


def test_what_cannot_be_read(tmp_path):
    binary = tmp_path / "b"
    binary.write_bytes(b"\x7fELF\0\0")
    large = tmp_path / "l"
    large.write_bytes(b"x" * 101)
    with pytest.raises(UsageError, match="no file"):
        read_source(str(tmp_path / "missing"), max_bytes=BIG)
    with pytest.raises(UsageError, match="is a folder"):
        read_source(str(tmp_path), max_bytes=BIG)
    with pytest.raises(UsageError, match="NUL bytes"):
        read_source(str(binary), max_bytes=BIG)
    with pytest.raises(UsageError, match="larger than the 100 bytes"):
        read_source(str(large), max_bytes=100)
    with pytest.raises(UsageError, match="cannot be read"):
        read_source("a\0b", max_bytes=BIG)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="regular file"):
        read_source(str(tmp_path / "pipe"), max_bytes=BIG)
