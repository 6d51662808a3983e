"""Documents that the daemon does not take: the others go on, and nothing is tried for ever."""

from swiftspec_daemon.protocol import messages as wire

URI = "file:///project/a.py"


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
