"""Suggestions: what comes out, when, and that it is never taken back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon.completion.stopping import Suggestion, Surroundings


def whole(answer, *, before="", after="", next_line="", **options):
    """The final text of an answer that comes in one piece, and the suggestion."""
    data = answer if isinstance(answer, bytes) else answer.encode()
    suggestion = Suggestion(Surroundings(before, after, next_line), **options)
    text = suggestion.feed(data) + suggestion.finish()
    assert text == suggestion.text
    return text, suggestion


def text_of(answer, **options):
    return whole(answer, **options)[0]


# --- streaming ----------------------------------------------------------------------------------

pieces = st.sampled_from(
    ["x", " ", "\t", "\n", "\n", "\r\n", "foo(", ")", ") {", "}", "\n}", "`", "```", "\n```", "é",
     "😀", "\ufffd", "return x", "\n    return x", "    ", "a" * 50, "()", ";", "\n\n"]
)  # fmt: skip
answers = st.lists(st.one_of(pieces, st.sampled_from([b"\xff", b"\xe4\xb8"])), max_size=14).map(
    lambda parts: b"".join(p if isinstance(p, bytes) else p.encode() for p in parts)
)
arounds = st.builds(
    Surroundings,
    st.sampled_from(["", "    ", "\t", "def f():", "    ret", "foo("]),
    st.sampled_from(["", "", "  ", ")", ") {", "x);"]),
    st.sampled_from(["", "}", "    return x", "x", "        foo()"]),
)


@settings(max_examples=300)
@given(answers, arounds, st.sampled_from([1, 2, 3, 50]), st.sampled_from(["\n", "\r\n"]), st.data())
def test_the_text_does_not_depend_on_how_the_bytes_are_cut(answer, around, lines, eol, data):
    at_once = Suggestion(around, max_lines=lines, eol=eol)
    expected = at_once.feed(answer) + at_once.finish()
    stream = Suggestion(around, max_lines=lines, eol=eol)
    shown, first_line = "", None
    position = 0
    while position < len(answer) and stream.end is None:
        size = data.draw(st.integers(1, 5))
        shown += stream.feed(answer[position : position + size])
        position += size
        assert shown == stream.text
        if first_line is None and stream.first_line is not None:
            first_line = stream.first_line
            assert shown.startswith(first_line)
    shown += stream.finish()
    assert shown == stream.text == expected
    assert stream.first_line == at_once.first_line
    assert first_line is None or stream.first_line == first_line
    assert stream.end == at_once.end
    assert shown == shown.rstrip()
    assert (stream.first_line is None) == (shown == "")
    assert shown.count("\n") < lines
    assert "\r" not in shown.replace(eol, "")


def test_characters_come_out_whole():
    suggestion = Suggestion(Surroundings())
    data = "a😀b".encode()
    assert [suggestion.feed(data[i : i + 1]) for i in range(len(data))] == [
        "a", "", "", "", "😀", "b",
    ]  # fmt: skip


def test_text_ends_before_bytes_that_are_no_text():
    assert text_of(b"ab\xff cd\n") == "ab"
    assert text_of(b"ab\xf0\x9f\x98") == "ab"
    assert text_of(b"ab\ncd\xe4\xb8x") == "ab\ncd"


def test_the_first_line_is_announced_when_its_end_is_known():
    suggestion = Suggestion(Surroundings("x = "))
    assert suggestion.feed(b"foo(1)") == "foo(1)"
    assert suggestion.first_line is None
    assert suggestion.feed(b"\n") == ""
    assert suggestion.first_line == "foo(1)"
    assert suggestion.feed(b"y = 2\n") == "\ny = 2"
    assert suggestion.first_line == "foo(1)"


def test_the_first_line_is_the_first_that_is_not_blank():
    suggestion = Suggestion(Surroundings("def f():"))
    suggestion.feed(b"\n    return 1\n    x")
    assert suggestion.first_line == "\n    return 1"


# --- the beginning ------------------------------------------------------------------------------


def test_required_bytes_are_left_out():
    assert text_of("\n    return 1", before="    ", required=b"\n    ") == "return 1"
    assert text_of("print(x)", before="pri", required=b"pri") == "nt(x)"
    # The cursor is in the middle of a character's bytes for the tokenizer, not for the user.
    assert text_of("你好".encode(), required="你".encode()) == "好"


def test_an_answer_that_does_not_begin_as_required_is_empty():
    text, suggestion = whole("foo", required=b"bar")
    assert text == ""
    assert "before the cursor" in suggestion.why_empty
    text, suggestion = whole("fo", required=b"foo")
    assert text == ""
    assert "reached the cursor" in suggestion.why_empty


def test_blank_lines_at_the_beginning_are_dropped_on_a_blank_line():
    assert text_of("\n\n    x = 1\n    y", before="    ") == "x = 1\n    y"
    assert text_of("  \n\t\n  x", before="") == "  x"
    assert text_of("\n        x", before="    ") == "    x"
    assert text_of("\nx", before="    ") == "x"


def test_the_line_end_after_a_line_with_text_stays():
    assert text_of("\n    return 1", before="def f():") == "\n    return 1"
    assert text_of("\n\n\ndef g(): pass", before="x = 1") == "\n\n\ndef g(): pass"
    assert text_of("\n\n\n\n\n\nx", before="x = 1") == "\n\n\nx"


@pytest.mark.parametrize("answer", ["", "\n", "   ", "\n  \n\t\n", "\r\n"])
def test_white_space_alone_is_empty(answer):
    for before in ("", "    ", "x = 1"):
        text, suggestion = whole(answer, before=before)
        assert text == ""
        assert suggestion.first_line is None
        assert suggestion.why_empty


# --- the end ------------------------------------------------------------------------------------


def test_lines_are_counted():
    text, suggestion = whole("a\nb\nc\nd", max_lines=2)
    assert (text, suggestion.end) == ("a\nb", "lines")
    text, suggestion = whole("a\nb", max_lines=2)
    assert (text, suggestion.end) == ("a\nb", "stop")


def test_one_line_after_a_line_with_text_does_not_go_below():
    text, suggestion = whole("\n    return 1", before="def f():", max_lines=1)
    assert (text, suggestion.end) == ("", "lines")
    assert "next line" in suggestion.why_empty


def test_white_space_at_the_end_is_cut():
    assert text_of("x = 1  \n  \n") == "x = 1"


def test_indentation_stays_as_written():
    assert text_of("if x:\n\treturn\n  y") == "if x:\n\treturn\n  y"


def test_line_ends_are_the_documents():
    text, suggestion = whole("a\nb\r\nc", eol="\r\n")
    assert text == "a\r\nb\r\nc"
    assert suggestion.first_line == "a"


def test_a_fence_at_a_line_start_ends_the_text():
    assert text_of("x = 1\n```\nThis code") == "x = 1"
    assert text_of("x = 1\n  ```python") == "x = 1"
    assert text_of("```python\nx = 1") == ""
    assert text_of('"""```"""') == '"""```"""'
    assert text_of("``` y", before="x = '") == "``` y"
    assert text_of("x\n```\ny", fences=False) == "x\n```\ny"


def test_a_fence_is_never_shown():
    suggestion = Suggestion(Surroundings())
    assert suggestion.feed(b"x\n``") == "x"
    assert suggestion.feed(b"`\n") == ""
    assert suggestion.text == "x"


def test_endless_repetition_ends_the_text():
    assert text_of("foo()\n" * 20) == "foo()\nfoo()"
    assert text_of("a = 1\nb = 2\n" * 20) == "a = 1\nb = 2\na = 1\nb = 2"
    assert len(text_of("x = [" + "0, " * 400)) <= 5 + 48 + 2
    assert text_of("0" * 400) == "0" * 48
    assert text_of("# " + "-" * 77) == "# " + "-" * 77
    assert text_of("# " + "-" * 400) == "# " + "-" * 96
    assert text_of("a\nb\n" * 2) == "a\nb\na\nb"


def test_closing_brackets_at_different_depths_are_no_repetition():
    answer = "x\n      }\n    }\n  }\n}"
    assert text_of(answer) == answer


# --- what is there already ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "answer", "text"),
    [
        # less indented than the cursor's line, after a blank line: the next block
        ("        x = 1", "\n        y = 2\n\n    def g(self):", "\n        y = 2"),
        ("\t\tx := 1", "\n\t\ty := 2\n\n\tfunc()", "\n\t\ty := 2"),
        # back at the margin after an indented line
        ("def f():", "\n    return 1\n\n\ndef g():", "\n    return 1"),
        ("", "def f():\n    return 1\n\ndef g():", "def f():\n    return 1"),
        # not after a blank line: the block's own end
        ("    x = 1;", "\n}\n", "\n}"),
        # as deep as the cursor's line: it goes on
        ("    x = 1", "\n\n    y = 2\n", "\n\n    y = 2"),
        ("import os", "\n\nimport sys\n", "\n\nimport sys"),
    ],
)
def test_the_next_block_of_the_file_is_not_suggested(before, answer, text):
    assert text_of(answer, before=before) == text


def test_the_rest_of_the_line_is_not_repeated():
    # Qwen3-Coder, Codestral and DeepSeek say the suffix again.
    assert text_of("{ person: string }) {", before="f(", after=") {") == "{ person: string }"
    assert text_of("{ person: string }){", before="f(", after=") {") == "{ person: string }"
    assert text_of("a, b)", before="f(", after=")") == "a, b"
    assert text_of("a)  ;", before="f(", after=");") == "a"


def test_brackets_that_the_suggestion_opened_are_closed():
    assert text_of("g(a)", before="f(", after=")") == "g(a)"
    assert text_of("g(a))", before="f(", after=")") == "g(a)"
    assert text_of("[x for x in (1, 2)]", before="f(", after=")") == "[x for x in (1, 2)]"


def test_inside_a_line_one_line_is_suggested():
    text, suggestion = whole("a, b\n    more", before="f(", after=")")
    assert (text, suggestion.end) == ("a, b", "lines")


def test_a_suggestion_that_only_repeats_the_rest_of_the_line_is_empty():
    text, suggestion = whole(") {", before="f(x", after=") {")
    assert text == ""
    assert "repeat" in suggestion.why_empty


def test_blanks_after_the_cursor_are_not_the_rest_of_a_line():
    assert text_of("a\nb", after="   ") == "a\nb"


def test_the_line_below_is_not_repeated():
    body = "    return total / count"
    assert text_of("    total = 1\n" + body + "\n", next_line=body) == "    total = 1"
    assert text_of("return  total/count", before="    ", next_line=body) == ""
    assert text_of("turn total / count", before="    re", next_line=body) == ""
    assert text_of("return 1;\n}", before="  ", next_line="}") == "return 1;"
    nested = "if (x) {\n    y();\n  }"
    assert text_of(nested + "\n}", before="  ", next_line="}") == nested


def test_a_copy_of_the_line_below_is_never_shown():
    suggestion = Suggestion(Surroundings("", "", "return total"))
    assert suggestion.feed(b"x = 1\nreturn tot") == "x = 1"
    assert suggestion.feed(b"al") == ""
    assert suggestion.feed(b"s") == "\nreturn totals"


def test_the_default_indentation_of_the_line_below_does_not_matter():
    text, suggestion = whole("return foo(x)", before="", next_line="        return foo(x)")
    assert text == ""
    assert "below" in suggestion.why_empty
