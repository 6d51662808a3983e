"""Inline and streaming completions through the bridge, and how they end."""

import asyncio

import pytest

from swiftspec_daemon.protocol import messages as wire

URI = "file:///project/a.py"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def daemon(shared_daemon):
    return shared_daemon


@pytest.fixture
def editor(shared_editor):
    return shared_editor


async def test_an_item_has_the_text_a_range_and_the_accept_command(daemon, editor):
    daemon.text = "(n):\n    return n"
    editor.open(URI, "x = 1\ndef fib")
    result = await editor.inline(URI, 1, 7, context={"triggerKind": 2})
    (item,) = result["items"]
    assert item["insertText"] == "(n):\n    return n"
    here = {"line": 1, "character": 7}
    assert item["range"] == {"start": here, "end": here}
    ((request, before),) = daemon.seen
    assert before == "x = 1\ndef fib"
    assert request.trigger == "automatic"
    assert daemon.documents[URI].language == "python"

    await editor.request("workspace/executeCommand", item["command"])
    await daemon.until(lambda: daemon.of_kind(wire.Accepted))
    assert daemon.of_kind(wire.Accepted) == [wire.Accepted(id=request.id)]


CONTEXTS = [
    ({"context": {"triggerKind": 0}}, "invoked"),
    ({"context": {"triggerKind": 1}}, "invoked"),
    ({"context": {"triggerKind": 2}}, "automatic"),
    ({"context": {"triggerKind": "never"}}, "automatic"),
    ({"context": None}, "automatic"),
    ({}, "automatic"),
    ({"context": {"triggerKind": 2}, "formattingOptions": {"tabSize": 4}}, "automatic"),
]


async def test_contexts_are_read_leniently(daemon, editor):
    editor.open(URI, "a")
    for context, trigger in CONTEXTS:
        result = await editor.inline(URI, 0, 1, **context)
        assert result["items"][0]["insertText"] == "hello"
        assert daemon.seen[-1][0].trigger == trigger, context


POSITIONS = [
    ({"line": 10**6, "character": 10**6}, (1, 2)),
    ({"line": 2**70, "character": 0}, (1, 2)),
    ({"line": 0, "character": 10**6}, (0, 3)),
    ({"line": 0, "character": 2.0}, (0, 2)),
    ({"line": -1, "character": -1}, (0, 0)),
    ({"line": 1}, (1, 0)),
    ({"line": None, "character": "2"}, (0, 0)),
    ({"line": float("nan"), "character": float("inf")}, (0, 0)),
    ({}, (0, 0)),
    (None, (0, 0)),
]


async def test_positions_are_clamped_to_the_document(daemon, editor):
    editor.open(URI, "abc\nde")
    for position, clamped in POSITIONS:
        params = {"textDocument": {"uri": URI}, "position": position}
        result = await editor.request("textDocument/inlineCompletion", params)
        start = result["items"][0]["range"]["start"]
        assert (start["line"], start["character"]) == clamped, position


NOT_OPEN = [
    {"textDocument": {"uri": "file:///never/opened"}, "position": {"line": 0, "character": 0}},
    {"textDocument": None},
    {},
    None,
    [1, 2],
]


async def test_an_unknown_document_is_answered_by_null(editor):
    for params in NOT_OPEN:
        assert await editor.request("textDocument/inlineCompletion", params) is None, params
    assert editor.of_method("window/showMessage") == []


async def test_an_empty_completion_is_null(daemon, editor):
    daemon.text = ""
    editor.open(URI, "a")
    assert await editor.inline(URI, 0, 1) is None


async def test_any_scheme_will_do(editor):
    for uri in ("untitled:Untitled-1", "vscode-notebook-cell:/a#X", "zip:///a/b"):
        editor.open(uri, "a")
        assert (await editor.inline(uri, 0, 1))["items"], uri


async def test_a_cancelled_request_is_cancelled_at_the_daemon_too(daemon, lsp, editor):
    daemon.script = lsp.answer_when_cancelled
    editor.open(URI, "a")
    answer = editor.inline(URI, 0, 1)
    await daemon.until(lambda: daemon.seen)
    editor.notify("$/cancelRequest", {"id": answer.number})
    with pytest.raises(lsp.RpcFailure) as failure:
        await answer
    assert failure.value.code == -32800
    await daemon.until(lambda: daemon.of_kind(wire.Cancel))
    assert daemon.of_kind(wire.Cancel)[0].id == daemon.seen[0][0].id


async def test_the_next_request_of_a_document_cancels_the_one_before(daemon, lsp, editor):
    daemon.script = lsp.answer_when_cancelled
    editor.open(URI, "a")
    editor.open("file:///other", "b")
    other = editor.inline("file:///other", 0, 1)
    first = editor.inline(URI, 0, 1)
    await daemon.until(lambda: len(daemon.seen) == 2)
    daemon.script = lsp.answer_at_once
    second = editor.inline(URI, 0, 1)
    with pytest.raises(lsp.RpcFailure) as failure:
        await first
    assert failure.value.code == -32800
    assert (await second)["items"]
    assert not other.done()
    other.cancel()


async def test_a_request_that_another_client_superseded_counts_as_cancelled(daemon, lsp, editor):
    async def superseded(daemon, socket, request):
        await daemon.send(socket, wire.Done(id=request.id, reason="superseded"))

    daemon.script = superseded
    editor.open(URI, "a")
    with pytest.raises(lsp.RpcFailure) as failure:
        await editor.inline(URI, 0, 1)
    assert failure.value.code == -32800


async def test_thirty_fast_keys_leave_one_running_request(daemon, lsp, editor):
    daemon.script = lsp.answer_when_cancelled
    editor.open(URI, "")
    answers = []
    for number in range(30):
        editor.change(URI, 0, number, "x")
        answers.append(editor.inline(URI, 0, number + 1))
    with pytest.raises(lsp.RpcFailure):
        await answers[28]
    assert [answer.exception().code for answer in answers[:29]] == [-32800] * 29
    await daemon.until(lambda: daemon.seen and daemon.seen[-1][1] == "x" * 30)
    # The daemon supersedes by itself; what matters is that the last request was left alone.
    last = daemon.seen[-1][0].id
    assert last not in {message.id for message in daemon.of_kind(wire.Cancel)}
    assert not answers[29].done()
    answers[29].cancel()


async def test_a_completion_that_failed_is_null_and_no_notice(daemon, editor):
    async def fail(daemon, socket, request):
        done = wire.Done(id=request.id, reason="error", code="engine_error", message="Broken.")
        await daemon.send(socket, done)

    daemon.script = fail
    editor.open(URI, "a")
    assert await editor.inline(URI, 0, 1) is None
    assert editor.of_method("window/showMessage") == []


async def test_a_document_that_the_daemon_lost_is_opened_again(daemon, lsp, editor):
    async def lost(daemon, socket, request):
        daemon.script = lsp.answer_at_once
        done = wire.Done(id=request.id, reason="error", code="document_error", message="Which?")
        await daemon.send(socket, done)

    daemon.script = lost
    editor.open(URI, "a")
    assert (await editor.inline(URI, 0, 1))["items"]
    assert [message.text for message in daemon.of_kind(wire.OpenDocument)] == ["a", "a"]


async def test_document_errors_outside_requests_open_the_document_again(daemon, editor):
    editor.open(URI, "a")
    editor.change(URI, 0, 1, "b")
    await daemon.until(lambda: daemon.of_kind(wire.ChangeDocument))
    (socket,) = daemon.sockets
    await daemon.send(socket, wire.Error(code="document_error", message="Which?", uri=URI))
    await daemon.until(lambda: len(daemon.of_kind(wire.OpenDocument)) == 2)
    assert daemon.of_kind(wire.OpenDocument)[1].text == "ab"


# --- a selected entry of the editor's own menu --------------------------------------------------


async def test_a_selected_entry_is_extended_in_its_range(daemon, editor):
    daemon.text = "(x)"
    editor.open(URI, "one\nfoo.pr\ntwo")
    start, end = {"line": 1, "character": 4}, {"line": 1, "character": 6}
    selected = {"range": {"start": start, "end": end}, "text": "print"}
    context = {"triggerKind": 2, "selectedCompletionInfo": selected}
    result = await editor.inline(URI, 1, 6, context=context)
    assert result["items"][0]["insertText"] == "print(x)"
    assert result["items"][0]["range"] == {"start": start, "end": end}
    assert daemon.seen[0][1] == "one\nfoo.print"

    # The document is as it was, and stays in step with what is typed.
    editor.change(URI, 1, 6, "o")
    await editor.inline(URI, 1, 7)
    assert daemon.documents[URI].text == "one\nfoo.pro\ntwo"
    assert daemon.seen[1][1] == "one\nfoo.pro"


# --- streaming ----------------------------------------------------------------------------------


async def test_streaming_sends_deltas_then_the_whole(daemon, lsp, editor):
    async def stream(daemon, socket, request):
        for piece in ("ab", "c\nd", "e"):
            await daemon.send(socket, wire.Delta(id=request.id, text=piece))
            if piece == "c\nd":
                await daemon.send(socket, wire.FirstLine(id=request.id, text="abc"))
        timings = wire.Timings(total_ms=3.0, new_tokens=3)
        done = wire.Done(id=request.id, reason="length", text="abc\nde", timings=timings)
        await daemon.send(socket, done)

    daemon.script = stream
    editor.open(URI, "x")
    params = lsp.at(URI, 0, 1, partialToken="t1", maxLines=3, maxTokens=9, triggerKind=1)
    answer = await editor.request("swiftspec/complete", params)
    assert answer["text"] == "abc\nde"
    assert answer["reason"] == "length"
    assert answer["timings"]["total_ms"] == 3.0
    deltas = editor.of_method("swiftspec/delta")
    assert [delta["text"] for delta in deltas] == ["ab", "c\nd", "", "e"]
    assert [delta.get("firstLine", False) for delta in deltas] == [False, False, True, False]
    assert {delta["token"] for delta in deltas} == {"t1"}
    assert {delta["id"] for delta in deltas} == {answer["id"]}
    request = daemon.seen[0][0]
    assert (request.max_lines, request.max_tokens, request.trigger) == (3, 9, "invoked")


async def test_streaming_without_a_token_only_answers(editor, lsp):
    editor.open(URI, "x")
    answer = await editor.request("swiftspec/complete", lsp.at(URI, 0, 1))
    assert answer["text"] == "hello"
    assert editor.of_method("swiftspec/delta") == []


async def test_streaming_says_why_there_is_nothing(editor, lsp):
    answer = await editor.request("swiftspec/complete", lsp.at(URI, 0, 1))
    assert answer == {
        "id": None,
        "text": "",
        "reason": "empty",
        "message": "the document is not open",
    }


async def test_feedback_reaches_the_daemon(daemon, editor, lsp):
    editor.open(URI, "x")
    answer = await editor.request("swiftspec/complete", lsp.at(URI, 0, 1))
    number = daemon.seen[0][0].id
    for kind, characters in (("shown", None), ("accepted", 3), ("rejected", None)):
        told = {"id": answer["id"], "kind": kind, "characters": characters}
        editor.notify("swiftspec/feedback", told)
    await daemon.until(lambda: daemon.of_kind(wire.Rejected))
    assert daemon.of_kind(wire.Shown) == [wire.Shown(id=number)]
    assert daemon.of_kind(wire.Accepted) == [wire.Accepted(id=number, characters=3)]
    assert daemon.of_kind(wire.Rejected) == [wire.Rejected(id=number)]


async def test_odd_feedback_is_ignored(editor):
    for told in (None, {}, {"id": 5}, {"id": "x-y"}, {"id": "1-99", "kind": 3}):
        editor.notify("swiftspec/feedback", told)
    assert (await editor.request("swiftspec/status", None))["state"] == "ready"


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        {"command": "other.command", "arguments": ["1-1"]},
        {"command": "swiftspec.accept"},
        {"command": "swiftspec.accept", "arguments": []},
        {"command": "swiftspec.accept", "arguments": {"id": "1-1"}},
        {"command": "swiftspec.accept", "arguments": [1]},
    ],
)
async def test_commands_that_are_none_are_refused(editor, lsp, told):
    with pytest.raises(lsp.RpcFailure) as refused:
        await editor.request("workspace/executeCommand", told)
    assert refused.value.code == -32602
    of_the_past = {"command": "swiftspec.accept", "arguments": ["0-99"]}
    assert await editor.request("workspace/executeCommand", of_the_past) is None


@pytest.mark.parametrize("place", [(2, 99), (3, 0), (99, 4), (2**31, 2**31)])
async def test_a_position_outside_the_document_is_moved_into_it(daemon, editor, lsp, place):
    editor.open(URI, "one\ntwo\nthree")
    end = {"line": 2, "character": 5}
    (item,) = (await editor.inline(URI, *place))["items"]
    assert item["range"] == {"start": end, "end": end}
    answer = await editor.request("swiftspec/complete", lsp.at(URI, *place))
    assert answer["text"] == daemon.text
    menu = await editor.request("textDocument/completion", lsp.at(URI, *place))
    assert menu["items"]
    # what the daemon is asked is inside, so that nothing has to be opened again
    assert [request.position for request, _ in daemon.seen] == [wire.Position(2, 5)] * 3
    assert len(daemon.of_kind(wire.OpenDocument)) == 1


async def test_answers_come_while_others_wait(daemon, lsp, editor):
    daemon.script = lsp.answer_when_cancelled
    editor.open(URI, "a")
    waiting = editor.inline(URI, 0, 1)
    await daemon.until(lambda: daemon.seen)
    async with asyncio.timeout(5):
        assert (await editor.request("swiftspec/status", None))["state"] == "ready"
    assert not waiting.done()
    waiting.cancel()
