"""Documents in step: editor, bridge and daemon hold the same text, whatever is edited."""

import random

import pytest

from swiftspec_daemon.documents import Document
from swiftspec_daemon.protocol import messages as wire
from swiftspec_daemon.protocol.messages import Edit, Position

URI = "file:///project/a.py"
ALPHABET = ["a", "é", "語", "𝒳", "\n", "\r\n", "\t", " = "]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_random_edits_in_each_encoding(daemon, start_editor, encoding):
    editor = await start_editor()
    await editor.initialize(capabilities={"general": {"positionEncodings": [encoding]}})
    await editor.connected()
    rng = random.Random(5)
    text = "".join(rng.choices(ALPHABET, k=300))
    oracle = Document(text)
    editor.open(URI, text)
    for step in range(40):
        changes = []
        for _ in range(rng.randint(1, 3)):
            start, end = sorted(rng.sample(range(len(oracle) + 1), 2))
            end = min(end, start + 5)
            edges = [oracle.position(offset, encoding) for offset in (start, end)]
            new = "".join(rng.choices(ALPHABET, k=rng.randint(0, 4)))
            oracle.apply([Edit(start=edges[0], end=edges[1], text=new)], step, encoding)
            lsp_edges = [{"line": p.line, "character": p.character} for p in edges]
            changes.append({"range": {"start": lsp_edges[0], "end": lsp_edges[1]}, "text": new})
        params = {"textDocument": {"uri": URI, "version": step}, "contentChanges": changes}
        editor.notify("textDocument/didChange", params)
    cursor = oracle.position(len(oracle) // 2, encoding)
    result = await editor.inline(URI, cursor.line, cursor.character)
    assert daemon.documents[URI].text == oracle.text
    assert daemon.seen[0][1] == oracle.text[: oracle.offset(cursor, encoding)]
    start = result["items"][0]["range"]["start"]
    assert Position(start["line"], start["character"]) == cursor


async def test_whole_texts_and_edits_in_one_change(daemon, editor):
    editor.open(URI, "old")
    here = {"line": 0, "character": 3}
    changes = [
        {"range": {"start": here, "end": here}, "text": "er"},
        {"text": "new"},
        {"range": {"start": here, "end": here}, "text": "er"},
    ]
    params = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": changes}
    editor.notify("textDocument/didChange", params)
    await editor.inline(URI, 0, 5)
    assert daemon.documents[URI].text == "newer"


async def test_edits_with_ends_outside_the_document_or_swapped(daemon, editor):
    editor.open(URI, "abc\nd")
    for start, end, text in (((9, 9), (9, 9), "!"), ((0, 3), (0, 1), ""), ((-1, -5), (0, 0), ">")):
        edges = [{"line": line, "character": character} for line, character in (start, end)]
        change = {"range": {"start": edges[0], "end": edges[1]}, "text": text}
        params = {"textDocument": {"uri": URI}, "contentChanges": [change]}
        editor.notify("textDocument/didChange", params)
    await editor.inline(URI, 0, 0)
    assert daemon.documents[URI].text == ">a\nd!"


async def test_a_document_opened_twice_has_the_second_text(daemon, editor):
    editor.open(URI, "one")
    editor.open(URI, "two")
    editor.change(URI, 0, 3, "!")
    await editor.inline(URI, 0, 4)
    assert daemon.documents[URI].text == "two!"


async def test_changes_of_documents_that_are_not_open_are_ignored(daemon, editor):
    editor.change(URI, 0, 0, "x")
    editor.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
    editor.open(URI, "a")
    assert (await editor.inline(URI, 0, 1))["items"]
    assert daemon.of_kind(wire.ChangeDocument) == []
    assert daemon.of_kind(wire.CloseDocument) == []


async def test_lone_surrogates_become_replacement_characters(daemon, editor):
    editor.open(URI, 'x = "\ud800"')
    editor.change(URI, 0, 7, "\udc00")
    result = await editor.inline(URI, 0, 8)
    assert result["items"][0]["range"]["start"]["character"] == 8
    assert daemon.documents[URI].text == 'x = "\ufffd"\ufffd'


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("    return value\n" * 100_000, id="100,000 lines"),
        pytest.param("var a=1;" * 250_000, id="one 2 MB line"),
    ],
)
async def test_big_documents_are_sent_once_and_then_only_edits(daemon, editor, text):
    document = Document(text)
    editor.open(URI, text)
    middle = document.position(len(text) // 2)
    for step in range(5):
        editor.change(URI, middle.line, middle.character + step, "x")
        assert (await editor.inline(URI, middle.line, middle.character + step + 1))["items"]
    half = len(text) // 2
    assert daemon.documents[URI].text == text[:half] + "xxxxx" + text[half:]
    assert len(daemon.of_kind(wire.OpenDocument)) == 1
    changes = daemon.of_kind(wire.ChangeDocument)
    assert [len(change.edits) for change in changes] == [1] * 5
    assert all(change.text is None for change in changes)


# --- documents that the daemon does not take ----------------------------------------------------


async def test_a_document_above_the_message_limit_is_not_sent(daemon, editor, lsp):
    editor.open(URI, "x" * (16 * 2**20))
    editor.open("file:///small", "y")
    answer = await editor.request("swiftspec/complete", lsp.at(URI, 0, 3))
    assert answer["text"] == ""
    assert "too large" in answer["message"]
    assert (await editor.inline("file:///small", 0, 1))["items"]
    assert list(daemon.documents) == ["file:///small"]
    assert len(daemon.hellos) == 1


async def test_a_paste_above_the_message_limit_takes_the_document_out(daemon, editor):
    editor.open(URI, "x")
    assert (await editor.inline(URI, 0, 1))["items"]
    editor.change(URI, 0, 1, "x" * (16 * 2**20))
    assert await editor.inline(URI, 0, 1) is None
    assert len(daemon.hellos) == 1


async def test_where_the_daemons_limit_is_lower_the_largest_document_is_left_out(daemon, editor):
    daemon.largest_message = 50_000
    editor.open(URI, "x" * 30_000)
    assert (await editor.inline(URI, 0, 1))["items"]
    editor.forget("swiftspec/didChangeStatus")
    editor.open("file:///large", "y" * 60_000)
    await editor.connected()
    assert (await editor.inline(URI, 0, 1))["items"]
    assert await editor.inline("file:///large", 0, 1) is None
    assert list(daemon.documents) == [URI]
    assert len(daemon.hellos) == 2


async def test_a_document_that_is_refused_is_not_opened_for_ever(daemon, editor):
    daemon.most_documents = 1
    editor.open(URI, "x")
    editor.open("file:///second", "y")
    assert await editor.inline("file:///second", 0, 1) is None
    assert await editor.inline("file:///second", 0, 1) is None
    assert (await editor.inline(URI, 0, 1))["items"]
    opened = [message.uri for message in daemon.of_kind(wire.OpenDocument)]
    assert opened.count("file:///second") == 1
