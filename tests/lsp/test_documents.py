"""Documents in step: editor, bridge and daemon hold the same text, whatever is edited."""

import pytest

from swiftspec_daemon.documents import Document
from swiftspec_daemon.protocol import messages as wire

URI = "file:///project/a.py"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def daemon(shared_daemon):
    return shared_daemon


@pytest.fixture
def editor(shared_editor):
    return shared_editor


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
    never = "file:///project/never_opened.py"
    editor.change(never, 0, 0, "x")
    editor.notify("textDocument/didClose", {"textDocument": {"uri": never}})
    editor.open(URI, "a")
    assert (await editor.inline(URI, 0, 1))["items"]
    assert daemon.of_kind(wire.ChangeDocument) == []
    assert never not in {message.uri for message in daemon.of_kind(wire.CloseDocument)}


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
