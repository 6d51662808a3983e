"""The document class against a naive model: one str, scanned from its start."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon import documents
from swiftspec_daemon.documents import Document
from swiftspec_daemon.errors import DocumentError
from swiftspec_daemon.protocol.messages import Edit, Position

ENCODINGS = ("utf-8", "utf-16", "utf-32")
ALPHABET = "ab \t\r\né中μ😀\ud83d\ude00\x0b\u2028"

texts = st.lists(
    st.one_of(st.sampled_from(["\r\n", "\r", "\n", "x = 1\r\n"]), st.text(ALPHABET, max_size=6)),
    max_size=12,
).map("".join)
positions = st.builds(Position, st.integers(0, 9), st.integers(0, 14))
edits = st.lists(st.builds(Edit, start=positions, end=positions, text=texts), max_size=5)


def units(character: str, encoding: str) -> int:
    code = ord(character)
    if encoding == "utf-32":
        return 1
    if encoding == "utf-16":
        return 2 if code > 0xFFFF else 1
    return 1 + (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF)


def naive_lines(text: str) -> list[tuple[int, str]]:
    """Start and content of each line."""
    lines, start = [], 0
    for found in re.finditer("\r\n|\n|\r", text):
        lines.append((start, text[start : found.start()]))
        start = found.end()
    return [*lines, (start, text[start:])]


def naive_offset(text: str, position: Position, encoding: str) -> int:
    lines = naive_lines(text)
    if position.line >= len(lines):
        return len(text)
    start, content = lines[position.line]
    left = position.character
    for index, character in enumerate(content):
        left -= units(character, encoding)
        if left < 0:
            return start + index
    return start + len(content)


def naive_position(text: str, offset: int, encoding: str) -> Position:
    if text[max(offset - 1, 0) : offset + 1] == "\r\n":
        offset -= 1
    lines = naive_lines(text)
    number = max(n for n, (start, _) in enumerate(lines) if start <= offset)
    return Position(number, sum(units(c, encoding) for c in text[lines[number][0] : offset]))


@pytest.fixture(scope="class")
def tiny_blocks():
    """Short texts cross the borders between blocks."""
    saved = documents._TARGET, documents._MAX, documents._MIN
    documents._TARGET, documents._MAX, documents._MIN = 3, 5, 2
    yield
    documents._TARGET, documents._MAX, documents._MIN = saved


@pytest.mark.usefixtures("tiny_blocks")
class TestNaiveModel:
    @given(texts, st.sampled_from(ENCODINGS))
    def test_every_offset_and_line_agrees_with_the_naive_model(self, text, encoding):
        document = Document(text)
        assert document.text == text
        assert len(document) == len(text)
        lines = naive_lines(text)
        assert document.line_count == len(lines)
        assert [document.line(n) for n in range(document.line_count)] == [c for _, c in lines]
        for offset in range(len(text) + 1):
            position = document.position(offset, encoding)
            assert position == naive_position(text, offset, encoding)
            if text[max(offset - 1, 0) : offset + 1] != "\r\n":
                assert document.offset(position, encoding, strict=True) == offset

    @given(texts, positions, st.sampled_from(ENCODINGS))
    def test_any_position_is_clamped_as_in_the_naive_model(self, text, position, encoding):
        assert Document(text).offset(position, encoding) == naive_offset(text, position, encoding)

    @settings(max_examples=300)
    @given(texts, edits, st.sampled_from(ENCODINGS))
    def test_edits_agree_with_the_naive_model(self, text, changes, encoding):
        document = Document(text, version=1)
        document.position(len(text), encoding)
        document.apply(changes, 2, encoding)
        for edit in changes:
            start = naive_offset(text, edit.start, encoding)
            end = naive_offset(text, edit.end, encoding)
            text = text[: min(start, end)] + edit.text + text[max(start, end) :]
        assert document.text == text
        assert document.version == 2
        assert [document.line(n) for n in range(document.line_count)] == [
            content for _, content in naive_lines(text)
        ]
        for offset in range(len(text) + 1):
            assert document.position(offset, encoding) == naive_position(text, offset, encoding)

    @given(texts, st.integers(-3, 30), st.integers(-3, 30))
    def test_slice_agrees_with_str(self, text, start, end):
        assert Document(text).slice(start, end) == text[max(start, 0) : max(end, 0)]


def test_a_position_inside_a_code_point_rounds_down():
    document = Document("a😀b")
    assert [document.offset(Position(0, n), "utf-16") for n in range(5)] == [0, 1, 1, 2, 3]
    assert [document.offset(Position(0, n), "utf-8") for n in range(7)] == [0, 1, 1, 1, 1, 2, 3]


def test_edits_are_all_made_or_none():
    document = Document("one\ntwo\n", version=3)
    good = Edit(start=Position(0, 0), end=Position(0, 3), text="1")
    bad = Edit(start=Position(0, -1), end=Position(0, 0), text="x")
    with pytest.raises(DocumentError, match="negative"):
        document.apply([good, bad], 4)
    assert document.text == "one\ntwo\n"
    assert document.version == 3
    assert document.line(1) == "two"


def test_strict_refuses_a_line_that_is_not_there():
    document = Document("one\ntwo")
    assert document.offset(Position(1, 99), strict=True) == 7
    assert document.offset(Position(2, 0)) == 7
    with pytest.raises(DocumentError, match="2 lines"):
        document.offset(Position(2, 0), strict=True)
    with pytest.raises(DocumentError):
        document.line(2)


def test_replace():
    document = Document("one", uri="file:///a", language="python", version=1)
    document.replace("two\r\nthree", 5)
    assert (document.text, document.version, document.line_count) == ("two\r\nthree", 5, 2)


@pytest.mark.parametrize(
    ("text", "eol"),
    [
        ("", "\n"),
        ("one line", "\n"),
        ("a\nb\n", "\n"),
        ("a\r\nb\r\nc\n", "\r\n"),
        ("a\rb\r", "\r"),
        ("a\nb\r\n", "\n"),
    ],
)
def test_eol_is_what_most_lines_have(text, eol):
    assert Document(text).eol == eol


def _long_line() -> str:
    return "var μ=1;" * 250_000


def _many_lines() -> str:
    return "".join(f"    value_{n} = {n}\r\n" for n in range(100_000))


@pytest.mark.parametrize("make", [_long_line, _many_lines])
def test_large_texts_are_kept_right_through_many_edits(make):
    text = make()
    document = Document(text)
    for turn in range(200):
        offset = (turn * 7919 * 37) % len(text)
        position = document.position(offset, "utf-16")
        offset = document.offset(position, "utf-16")
        document.apply([Edit(start=position, end=position, text="😀\r\n"[turn % 3 :])], turn)
        text = text[:offset] + "😀\r\n"[turn % 3 :] + text[offset:]
    assert document.text == text
    assert document.line_count == len(naive_lines(text))


def test_typing_does_not_leave_crumbs():
    document = Document("x" * 50_000)
    for turn in range(3000):
        at = Position(0, (turn * 977) % (len(document) - 16))
        document.apply([Edit(start=at, end=Position(0, at.character + 16), text="")], turn)
    assert len(document) == 2000
    assert len(document._blocks) <= len(document) // documents._MIN + 1


def test_memory_is_about_the_text_once():
    text = _many_lines()
    tracemalloc.start()
    document = Document(text)
    for turn in range(100):
        at = document.position((turn * 7919 * 37) % len(text), "utf-16")
        document.apply([Edit(start=at, end=at, text="x")], turn)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(document) == len(text) + 100
    assert used < 1.1 * len(text)


def test_numpy_is_not_loaded():
    code = "import sys, swiftspec_daemon.documents; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
