"""How the bridge starts and ends, loses the daemon and finds it again, and bears bad input."""

import asyncio
import contextlib
import os

import pytest

from swiftspec_daemon.protocol import messages as wire

URI = "file:///project/a.py"


# --- initialize ---------------------------------------------------------------------------------


async def test_what_is_offered(start_editor):
    editor = await start_editor()
    result = await editor.initialize(clientInfo={"name": "Neovim", "version": "0.12.4"})
    assert result["serverInfo"]["name"] == "swiftspec"
    offered = result["capabilities"]
    assert offered["textDocumentSync"] == {"openClose": True, "change": 2}
    assert offered["inlineCompletionProvider"] == {}
    assert "completionProvider" not in offered
    assert offered["executeCommandProvider"] == {"commands": ["swiftspec.accept"]}


async def test_the_daemon_hears_who_the_editor_is(daemon, start_editor):
    editor = await start_editor()
    await editor.initialize(clientInfo={"name": "Neovim", "version": "0.12.4"})
    await editor.connected()
    assert daemon.hellos[0].client == "Neovim/0.12.4"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["utf-8", "utf-16", "utf-32"], "utf-8"),
        (["utf-32"], "utf-32"),
        (["utf-7", "utf-16"], "utf-16"),
        (["utf-7"], "utf-16"),
        ("utf-8", "utf-16"),
        (None, "utf-16"),
    ],
)
async def test_the_editors_first_position_encoding_is_used(daemon, start_editor, offered, chosen):
    editor = await start_editor()
    result = await editor.initialize(capabilities={"general": {"positionEncodings": offered}})
    assert result["capabilities"]["positionEncoding"] == chosen
    await editor.connected()
    assert daemon.hellos[0].position_encodings == [chosen]


@pytest.mark.parametrize("params", [None, {}, {"capabilities": None}, {"capabilities": []}])
async def test_odd_initialize_params_do_no_harm(start_editor, params):
    editor = await start_editor()
    result = await editor.request("initialize", params)
    assert result["capabilities"]["positionEncoding"] == "utf-16"


# --- the order of calls -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["textDocument/inlineCompletion", "swiftspec/status", "shutdown", "workspace/executeCommand"],
)
async def test_requests_before_initialize_are_refused(start_editor, lsp, method):
    editor = await start_editor()
    editor.open(URI, "skipped")
    with pytest.raises(lsp.RpcFailure) as failure:
        await editor.request(method, {})
    assert failure.value.code == -32002
    assert (await editor.initialize())["serverInfo"]["name"] == "swiftspec"
    answer = await editor.request("swiftspec/complete", lsp.at(URI, 0, 0))
    assert answer["message"] == "the document is not open"


async def test_initialize_comes_once(editor, lsp):
    with pytest.raises(lsp.RpcFailure) as failure:
        await editor.request("initialize", {"capabilities": {}})
    assert failure.value.code == -32600
    assert (await editor.request("swiftspec/status", None))["state"] == "ready"


@pytest.mark.parametrize(
    "method", ["textDocument/inlineCompletion", "swiftspec/status", "shutdown", "initialize"]
)
async def test_requests_after_shutdown_are_refused(editor, lsp, method):
    await editor.request("shutdown", None)
    with pytest.raises(lsp.RpcFailure) as failure:
        await editor.request(method, {})
    assert failure.value.code == -32600
    editor.notify("exit", None)
    assert await editor.gone() == 0


async def test_exit_before_initialize_ends_with_1(start_editor):
    editor = await start_editor()
    editor.notify("exit", None)
    assert await editor.gone() == 1


# --- the end ------------------------------------------------------------------------------------


async def test_exit_after_shutdown_ends_with_0(editor):
    assert await editor.end() == 0


async def test_exit_without_shutdown_ends_with_1(editor):
    editor.notify("exit", None)
    assert await editor.gone() == 1


async def test_the_end_of_input_ends_the_bridge_but_not_the_daemon(daemon, editor):
    editor.open(URI, "a")
    await daemon.until(lambda: daemon.documents)
    editor.process.stdin.close()
    assert await editor.gone(limit_s=5) == 1
    await daemon.until(lambda: not daemon.sockets)


async def test_the_end_of_input_inside_a_message_ends_the_bridge(editor):
    editor.send_raw(b'Content-Length: 5000\r\n\r\n{"jsonrpc"')
    editor.process.stdin.close()
    assert await editor.gone(limit_s=5) == 1


async def test_the_end_of_input_while_a_completion_runs_ends_the_bridge(daemon, lsp, editor):
    daemon.script = lsp.answer_when_cancelled
    editor.open(URI, "a")
    answer = editor.inline(URI, 0, 1)
    await daemon.until(lambda: daemon.seen)
    editor.process.stdin.close()
    assert await editor.gone(limit_s=5) == 1
    answer.cancel()


async def test_the_end_of_input_ends_the_bridge_while_it_waits_for_a_daemon(lsp, start_editor):
    waiting = asyncio.Event()

    async def trickle(reader, writer):
        waiting.set()
        writer.write(b"HTTP/1.1 200 OK\r\n")
        with contextlib.suppress(ConnectionError):
            while True:  # so that no timeout of the client helps
                writer.write(b"X-More: to come\r\n")
                await writer.drain()
                await asyncio.sleep(0.1)

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    async with server:
        editor = await start_editor()
        lsp.write_daemon_record(editor.home, server.sockets[0].getsockname()[1])
        await editor.initialize()
        await waiting.wait()
        editor.process.stdin.close()
        assert await editor.gone(limit_s=5) == 1


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's pidfd_open")
async def test_the_bridge_ends_with_the_editor_even_if_the_pipe_stays_open(start_editor):
    sleeper = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        editor = await start_editor()
        await editor.initialize(processId=sleeper.pid)
    finally:
        sleeper.kill()
        await sleeper.wait()
    assert await editor.gone(limit_s=5) == 1


async def test_an_editor_in_another_process_space_is_not_watched(start_editor):
    editor = await start_editor()
    await editor.initialize(processId=2**22 + 5)  # beyond what Linux gives out
    assert await editor.end() == 0


# --- the daemon goes and comes ------------------------------------------------------------------


async def test_without_a_daemon_answers_are_empty_and_there_is_one_notice(start_editor, lsp):
    editor = await start_editor()
    await editor.initialize()
    await editor.status_is("unreachable")
    editor.open(URI, "a")
    for _ in range(5):
        assert await editor.inline(URI, 0, 1) is None
    answer = await editor.request("swiftspec/complete", lsp.at(URI, 0, 1))
    assert answer["text"] == ""
    assert answer["message"].startswith("not reachable: ")
    (notice,) = editor.of_method("window/showMessage")
    assert notice["message"].startswith("SwiftSpec is not reachable: ")


async def test_a_restarted_daemon_is_told_all_documents(daemon, editor, lsp):
    editor.open(URI, "one\n")
    editor.open("file:///other", "2")
    editor.open("file:///closed", "3")
    first = await editor.request("swiftspec/complete", lsp.at(URI, 1, 0))
    await daemon.stop()
    await editor.status_is("unreachable")
    editor.change(URI, 1, 0, "two")
    editor.notify("textDocument/didClose", {"textDocument": {"uri": "file:///closed"}})
    assert await editor.inline(URI, 1, 3) is None

    editor.forget("swiftspec/didChangeStatus")
    await daemon.start()
    await editor.connected()
    assert {uri: document.text for uri, document in daemon.documents.items()} == {
        URI: "one\ntwo",
        "file:///other": "2",
    }
    assert daemon.documents[URI].language == "python"
    editor.change(URI, 1, 3, "!")
    assert (await editor.inline(URI, 1, 4))["items"]
    assert daemon.seen[-1][1] == "one\ntwo!"

    # What became of a completion of the old daemon says nothing about one of the new.
    editor.notify("swiftspec/feedback", {"id": first["id"], "kind": "rejected"})
    again = await editor.request("swiftspec/complete", lsp.at(URI, 1, 4))
    editor.notify("swiftspec/feedback", {"id": again["id"], "kind": "accepted"})
    await daemon.until(lambda: daemon.of_kind(wire.Accepted))
    assert daemon.of_kind(wire.Rejected) == []


async def test_one_notice_for_each_outage(daemon, editor):
    for outage in (1, 2):
        await daemon.stop()
        await editor.status_is("unreachable")
        await editor.request("swiftspec/status", None)  # so that a notice before it has come, too
        assert len(editor.of_method("window/showMessage")) == outage
        editor.forget("swiftspec/didChangeStatus")
        await daemon.start()
        await editor.connected()


async def test_a_completion_that_runs_when_the_daemon_dies_is_null(daemon, lsp, editor):
    daemon.script = lsp.answer_when_cancelled
    editor.open(URI, "a")
    answer = editor.inline(URI, 0, 1)
    await daemon.until(lambda: daemon.seen)
    await daemon.stop()
    async with asyncio.timeout(5):
        assert await answer is None
    await daemon.start()


async def test_edits_made_while_documents_are_opened_again_are_not_made_twice(daemon, editor):
    for number in range(50):
        editor.open(f"file:///{number}", "-" * 10_000)
    await daemon.until(lambda: len(daemon.documents) == 50)
    await daemon.stop()
    await daemon.start()
    for step in range(20):
        for number in range(50):
            editor.change(f"file:///{number}", 0, step, "x")
        await asyncio.sleep(0.02)
    await daemon.until(lambda: len(daemon.documents) == 50)
    expected = "x" * 20 + "-" * 10_000
    for number in range(50):
        assert (await editor.inline(f"file:///{number}", 0, 20)) is not None
    assert {document.text for document in daemon.documents.values()} == {expected}


async def test_the_state_of_the_model_is_told_with_its_reason(daemon, editor):
    loading = wire.ModelStatus(name="m", state="loading", phase="weights", fraction=0.62)
    daemon.model = loading
    await daemon.announce()
    told = await editor.status_is("loading")
    assert told["reason"] == "loading m (weights): 62 %"
    assert told["progress"] == 0.62
    assert await editor.request("swiftspec/status", None) == told

    daemon.model = wire.ModelStatus(
        name="m", state="failed", message="The file m is broken.", hint="Fetch it again."
    )
    await daemon.announce()
    await editor.status_is("failed")
    notice = await editor.notified("window/showMessage")
    assert notice["message"] == "SwiftSpec: The file m is broken. Fetch it again."


# --- bad input ----------------------------------------------------------------------------------


NONSENSE = [
    b'{"jsonrpc": "2.0", "id": 1, "result": null}',
    b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m"}}',
    b'{"jsonrpc": "2.0", "method": "$/cancelRequest"}',
    b'{"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": [1]}}',
    b'{"jsonrpc": "2.0", "method": "textDocument/didSave", "params": {}}',
    b'{"jsonrpc": "2.0", "method": "textDocument/didOpen"}',
    b'{"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": 1}}',
    b'{"jsonrpc": "2.0", "method": "textDocument/didChange", "params": 3}',
    b'{"jsonrpc": "2.0", "method": "textDocument/didClose", "params": {"textDocument": {}}}',
]


async def test_messages_that_make_no_sense_are_skipped(editor):
    for body in NONSENSE:
        editor.send_raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert (await editor.request("swiftspec/status", None))["state"] == "ready", body
    assert editor.refusals == []
    assert editor.of_method("window/showMessage") == []


async def test_an_unknown_request_is_refused(editor, lsp):
    with pytest.raises(lsp.RpcFailure) as failure:
        await editor.request("textDocument/hover", {})
    assert failure.value.code == -32601


async def test_the_log_holds_no_text_of_documents(daemon, start_editor):
    editor = await start_editor("--log-level", "debug")
    await editor.initialize()
    await editor.connected()
    daemon.text = "telltale_answer"
    editor.open(URI, "telltale_document")
    await editor.inline(URI, 0, 3)
    editor.send_raw(b"Content-Length: 12\r\n\r\ntelltale_raw")
    await daemon.stop()
    await editor.status_is("unreachable")
    await editor.end()
    stderr = await editor.clean_up()
    assert "not reachable" in stderr
    assert "telltale" not in stderr
    await daemon.start()


async def test_arguments_that_editors_add_are_accepted(start_editor):
    editor = await start_editor("--stdio")
    await editor.initialize()
    assert await editor.end() == 0
