"""Prompts: windows, token healing, special tokens, and the cache of beginnings."""

from __future__ import annotations

import pytest
from completion_fakes import BOS, EOS, FIM, FakeTokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftspec_daemon.completion.prompt import PromptBuilder
from swiftspec_daemon.completion.snapshot import Snapshot
from swiftspec_daemon.completion.stopping import Surroundings
from swiftspec_daemon.completion.tokenizer import CachedEncoder
from swiftspec_daemon.documents import Document


def take(text, offset=None, reach=10_000):
    document = Document(text)
    return Snapshot.take(document, len(text) if offset is None else offset, reach)


def build(text, offset=None, *, budget=1000, **options):
    tokenizer = FakeTokenizer(**options)
    prompt = PromptBuilder(tokenizer).build(take(text, offset), budget)
    return tokenizer.decode(prompt.ids), prompt


@pytest.mark.parametrize(
    ("uri", "head"),
    [
        ("file:///home/me/a%20b.py", "a b.py\n"),
        ("file:///home/me/Makefile", ""),
        ("untitled:Untitled-1", ""),
        ("file:///a%0Ab.py", ""),
        ("file://[broken/x.py", ""),
        ("", ""),
    ],
)
def test_the_files_name_stands_before_the_text_where_there_is_a_separator(uri, head):
    snapshot = Snapshot.take(Document("def f():", uri=uri), 8, 100)
    for file_sep in (True, False):
        tokenizer = FakeTokenizer(file_sep=file_sep)
        ids = PromptBuilder(tokenizer).build(snapshot, 100).ids
        expected = [FIM, *head.encode()] if head and file_sep else []
        assert ids[: len(expected)] == expected
        assert (FIM in ids) == bool(expected)
        assert tokenizer.decode(ids).endswith("def f()")


# --- snapshots ----------------------------------------------------------------------------------


def test_a_snapshot_knows_what_stands_around_the_cursor():
    text = "a\r\n  foo(x)\r\n\r\n    bar()\r\n"
    snapshot = take(text, text.index("(x") + 1)
    assert snapshot.around == Surroundings("  foo(", "x)", "    bar()")
    assert (snapshot.eol, snapshot.cursor) == ("\r\n", text.index("(x") + 1)


def test_a_snapshot_does_not_change_with_its_document():
    document = Document("before")
    snapshot = Snapshot.take(document, 6, 100)
    document.replace("after", 1)
    assert snapshot.before == "before"


@given(st.text("ab\n", min_size=0, max_size=400), st.integers(16, 200))
def test_a_window_is_the_end_of_the_text_and_not_too_long(text, size):
    window = take(text).window(size)
    assert text.endswith(window)
    assert len(window) <= size
    if len(text) > size:
        # Half of the size, less what the search for a line start may skip.
        assert len(window) >= size // 2 - size // 4 - 1
    else:
        assert window == text


def test_a_window_starts_at_a_line_start_and_stays_there_while_typing():
    lines = "".join(f"line number {n}\n" for n in range(100))
    starts = set()
    for typed in range(60):
        text = lines + "x" * typed
        window = take(text).window(400)
        starts.add(len(text) - len(window))
        assert window.startswith("line number")
    assert len(starts) == 1
    starts = {
        len(text) - len(take(text).window(400))
        for text in (lines + "y = 1\n" * n for n in range(100))
    }
    assert 3 <= len(starts) <= 5  # 600 characters in steps of 200


def test_a_window_inside_one_long_line():
    text = "x" * 100_000
    assert 200 <= len(take(text).window(400)) <= 400


# --- token healing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept", "required"),
    [
        ("def foo", "def ", b"foo"),  # the last token may go on: "foo" -> "foobar"
        ("x = pri", "x =" + " ", b"pri"),
        ("x = 1\n    ", "x = 1", b"\n    "),
        ("x = ", "x", b" = "),  # this tokenizer joins punctuation with line ends
        ("x = 1  \n\n  ", "x = 1", b"  \n\n  "),
        ("foo():\n", "foo()", b":\n"),
        ("\n\n", "", b"\n\n"),
        ("a\r\n\tb\r\n\t", "a\n\tb", b"\n\t"),
        ("你", "你".encode()[:2].decode("utf-8", "replace"), "你".encode()[2:]),
    ],
)
def test_what_may_be_a_part_is_left_to_the_model(text, kept, required):
    prompt_text, prompt = build(text)
    assert prompt_text == kept
    assert prompt.required == required
    assert prompt.healing_tokens >= 2


def test_tokenizers_that_never_join_punctuation_and_line_ends_keep_punctuation():
    assert build("foo():\n", words=False)[0] == "foo():"


@given(st.text("a(: \n\té😀\ud83d", max_size=60))
def test_prompt_and_required_bytes_are_the_text(text):
    tokenizer = FakeTokenizer()
    prompt = PromptBuilder(tokenizer).build(take(text), 1000)
    said = b"".join(map(tokenizer.token_bytes, prompt.ids)) + prompt.required
    assert said == text.replace("\ud83d", "\ufffd").encode()
    assert prompt.ids


def test_very_much_white_space_stays_in_the_prompt():
    text, prompt = build("x = 1" + "\n" * 1000)
    assert 128 <= len(prompt.required) <= 130
    assert text + prompt.required.decode() == "x = 1" + "\n" * 1000


# --- special tokens -----------------------------------------------------------------------------


def test_bos_is_put_once_where_the_model_wants_it():
    assert build("foo x", add_bos=True)[1].ids[0] == BOS
    assert build("foo x", add_bos=True)[1].ids.count(BOS) == 1
    assert BOS not in build("foo x", add_bos=False)[1].ids


def test_an_empty_document_still_gives_a_token():
    assert build("")[1].ids == [BOS]
    assert build("", add_bos=True)[1].ids == [BOS]
    assert build("", bos_id=None)[1].ids == [EOS]
    assert build("")[1].required == b""


def test_text_that_looks_like_a_special_token_is_text():
    _, prompt = build("x = '<|fim_middle|>' + y")
    assert FIM not in prompt.ids


# --- budgets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["foo = value\n" * 2000, "你好\n" * 3000, "x" * 9000, "😀" * 9000])
@pytest.mark.parametrize("budget", [2, 3, 64, 500])
def test_a_prompt_fits_its_budget(text, budget):
    prompt_text, prompt = build(text, budget=budget, add_bos=True)
    assert 1 <= len(prompt.ids) <= budget
    said = prompt_text.encode() + prompt.required
    assert budget < 64 or len(said) >= budget // 5


def test_the_window_of_dense_text_stays_while_typing():
    starts = []
    for lines in range(1000, 1100):
        text = "你好吗\n" * lines + "x"
        _, prompt = build(text, budget=400)
        starts.append(len(text.encode()) - len(prompt.ids) - len(prompt.required))
    assert starts == sorted(starts)
    assert len(set(starts)) <= 10  # 1000 bytes in steps of about 120


# --- the cache ----------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from(["foo", " x", "\n    ", ":\n", "):\n", "1", "\n\n", "é"]),
                min_size=900, max_size=1500))  # fmt: skip
def test_cached_ids_are_the_tokenizers(words):
    text = "".join(words)
    encoder = CachedEncoder(FakeTokenizer())
    for end in range(len(text) - 6, len(text)):
        assert encoder.encode(text[:end]) == FakeTokenizer().encode(text[:end])


def test_typing_encodes_little():
    tokenizer = FakeTokenizer()
    encoder = CachedEncoder(tokenizer)
    text = "value = foo(1)\nx = 2\n" * 500
    assert not encoder.cheap(text)
    encoder.encode(text)
    tokenizer.encoded = 0
    for typed in range(1, 100):
        assert encoder.cheap(text + "y" * typed)
        encoder.encode(text + "y" * typed)
    assert tokenizer.encoded < 100 * 2500


class _Joining(FakeTokenizer):
    """Says something else where a text is divided."""

    def encode(self, text, *, space=True):
        return [0, *super().encode(text)] if space else [1, *super().encode(text)]


def test_a_tokenizer_that_cannot_be_divided_is_left_alone():
    encoder = CachedEncoder(_Joining())
    text = "value = foo(1)\nx = 2\n" * 500
    for end in range(len(text) - 20, len(text)):
        assert encoder.encode(text[:end]) == _Joining().encode(text[:end])
