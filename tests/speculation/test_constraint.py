"""The byte-prefix constraint against brute force, on vocabularies and Unicode of all widths."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from swiftspec_daemon.speculation.constraint import PrefixConstraint, TokenTable
from swiftspec_daemon.speculation.stops import StopMatcher

small_bytes = st.lists(st.sampled_from([0, 97, 98, 0xC3, 0xFF]), max_size=4).map(bytes)
vocabularies = st.lists(small_bytes, min_size=1, max_size=40)
texts = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from("aé中😀\n \U0010ffff")), max_size=12
)


def brute_force(token_bytes, excluded, rest):
    return {
        i
        for i, text in enumerate(token_bytes)
        if text and i not in excluded and (text.startswith(rest) or rest.startswith(text))
    }


@given(vocabularies, small_bytes.filter(bool), st.sets(st.integers(0, 40), max_size=5))
def test_allowed_is_what_brute_force_finds(token_bytes, rest, excluded):
    constraint = PrefixConstraint(TokenTable(token_bytes, excluded), rest)
    expected = brute_force(token_bytes, excluded, rest)
    allowed = constraint.allowed()
    if allowed is None:
        assert not expected
    else:
        assert sorted(allowed.tolist()) == sorted(expected)


@given(texts.filter(bool), st.lists(texts, max_size=30), st.data())
def test_any_walk_over_all_bytes_reaches_the_required_text(required, words, data):
    token_bytes = [b"", *(bytes([i]) for i in range(256)), *(w.encode() for w in words)]
    state = PrefixConstraint(TokenTable(token_bytes), required.encode())
    written = b""
    while state.open:
        allowed = state.allowed()
        assert allowed is not None  # single bytes always fit
        token = data.draw(st.sampled_from(allowed.tolist()))
        written += token_bytes[token]
        state = state.after(token)
    assert written.startswith(required.encode())
    assert state.allowed() is None


def test_special_and_excluded_tokens_never_fit():
    table = TokenTable([b"", b"a", b"ab", b"a"], excluded=[2])
    assert sorted(table.fitting(b"ab").tolist()) == [1, 3]


def test_given_up_where_no_token_fits():
    state = PrefixConstraint(TokenTable([b"x", b"y"]), b"z")
    assert state.open
    assert state.allowed() is None
    assert not state.released().open


def test_bytes_of_all_ones_have_no_successor():
    table = TokenTable([b"\xff", b"\xff\xff", b"\xfe", b"\xff\x00"])
    assert sorted(table.starting_with(b"\xff").tolist()) == [0, 1, 3]
    assert np.sort(table.starting_with(b"\xff\xff")).tolist() == [1]


two_letters = st.text("ab", max_size=4).map(str.encode)


@given(st.lists(two_letters.filter(bool), max_size=2), st.lists(two_letters), st.integers(0, 6))
def test_a_stop_string_is_found_with_the_token_that_completes_it(stops, tokens, skip):
    matcher = StopMatcher(tuple(stops), skip)
    text = b""
    for token in tokens:
        matcher, found = matcher.after(token)
        text += token
        assert found == any(stop in text[skip:] for stop in stops)
        if found:
            break


def test_a_stop_string_over_many_tokens():
    matcher = StopMatcher((b"abcd",))
    found = []
    for token in (b"xa", b"b", b"c", b"de"):
        matcher, stopped = matcher.after(token)
        found.append(stopped)
    assert found == [False, False, False, True]
