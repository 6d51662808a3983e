"""Where a suggestion says again what stands after the cursor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.completion import overlap


@pytest.mark.parametrize(
    ("line", "other", "same"),
    [
        ("  return x", "return x", True),
        ("return  x+1", "    return x + 1", True),
        ("}", "}", True),
        ("  }", "}", False),  # another depth
        ("}  ", "}", True),
        ("end", "end", True),
        ("  end", "end", False),
        ("", "", False),
        ("   ", "   ", False),
        ("return x", "return y", False),
    ],
)
def test_same_line(line, other, same):
    assert overlap.same_line(line, other) is same


@given(st.text("ab1} \t", max_size=8), st.text("ab1} \t", max_size=8))
def test_a_line_that_becomes_the_other_could_become_it_all_along(line, other):
    if overlap.same_line(line, other):
        for end in range(len(line) + 1):
            assert overlap.may_become(line[:end], other)


@pytest.mark.parametrize(
    ("text", "after", "kept"),
    [
        ("a, b)", ")", "a, b"),
        ("a", ")", "a"),
        ("{ person: string }) {", ") {", "{ person: string }"),
        ("g(a)", ")", "g(a)"),
        ("g(a))", ")", "g(a)"),
        ("[1, 2]);", ");", "[1, 2]"),
        ("foo();", ";", "foo()"),
        ("x y", "y z", "x "),
        ("abc", "xabc", "abc"),
        ("", ")", ""),
    ],
)
def test_the_end_that_repeats_is_found(text, after, kept):
    assert text[: overlap.start(text, after, final=True)] == kept


@given(st.text("a() ", max_size=10), st.text("a() ", min_size=1, max_size=5))
def test_what_is_cut_begins_what_is_after(text, after):
    for final in (True, False):
        cut = text[overlap.start(text, after, final=final) :]
        assert "".join(after.split()).startswith("".join(cut.split()))


@given(st.text("a() ", max_size=10), st.text("a() ", min_size=1, max_size=5))
def test_what_is_held_back_includes_all_that_is_cut_later(text, after):
    cut = overlap.start(text, after, final=True)
    for end in range(cut, len(text) + 1):
        assert overlap.start(text[:end], after, final=False) <= cut
