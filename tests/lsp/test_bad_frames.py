"""What the bridge answers to messages that are none, and how it ends when it has lost track."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from swiftspec_daemon.protocol import messages as wire

URI = "file:///project/a.py"
PARSE_ERROR, INVALID_REQUEST = -32700, -32600


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def status_request(number: int) -> bytes:
    return b'{"jsonrpc": "2.0", "id": %d, "method": "swiftspec/status"}' % number


NO_JSON = [
    b"",
    b"{",
    b" ",
    b"telltale",
    b'{"jsonrpc": "2.0", "id": 1, "method": "swiftspec/status"',
    b'{"jsonrpc": "2.0", "id": 1, "method": "swiftspec/status"}}',
    b'{"jsonrpc": "2.0", "id": %s, "method": "swiftspec/status"}' % (b"9" * 5000),
    b"[" * 100_000,
    b"\xff\xfe",
    b'{"jsonrpc": "2.0", "id": 1, "method": "swiftspec/status", "params": "\xe9"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "swiftspec/status", "params": "\xed\xa0\x80"}',
    status_request(1).decode().encode("utf-16"),
    b"\xef\xbb\xbf" + status_request(1),
]

NO_REQUEST = [
    b"[]",
    b"[" + status_request(1) + b"]",
    b"null",
    b"true",
    b"3",
    b'"telltale"',
    b"{}",
    b'{"id": 1, "method": "swiftspec/status"}',
    b'{"jsonrpc": "1.0", "id": 1, "method": "swiftspec/status"}',
    b'{"jsonrpc": 2.0, "id": 1, "method": "swiftspec/status"}',
    b'{"jsonrpc": ["2.0"], "id": 1, "method": "swiftspec/status"}',
    b'{"jsonrpc": "2.0"}',
    b'{"jsonrpc": "2.0", "id": 1}',
    b'{"jsonrpc": "2.0", "id": 1, "params": {}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": 5}',
    b'{"jsonrpc": "2.0", "id": 1, "method": null, "result": 1}',
    b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "swiftspec/status"}',
    b'{"jsonrpc": "2.0", "id": [1], "method": "swiftspec/status"}',
    b'{"jsonrpc": "2.0", "id": true, "method": "swiftspec/status"}',
    b'{"jsonrpc": "2.0", "id": NaN, "method": "swiftspec/status"}',
    b'{"jsonrpc": "2.0", "id": 1e999, "method": "swiftspec/status"}',
]


@pytest.mark.parametrize(
    ("bodies", "code"), [(NO_JSON, PARSE_ERROR), (NO_REQUEST, INVALID_REQUEST)]
)
async def test_each_is_answered_by_an_error_and_the_bridge_goes_on(editor, bodies, code):
    for body in bodies:
        editor.send_raw(frame(body))
        assert (await editor.request("swiftspec/status", None))["state"] == "ready", body
        (error,) = editor.refusals
        assert error["code"] == code, body
        assert "telltale" not in error["message"]
        editor.refusals.clear()
    assert editor.of_method("window/showMessage") == []


async def test_they_are_answered_before_initialize_and_after_shutdown(start_editor):
    editor = await start_editor()
    editor.send_raw(frame(b"{") + frame(b"[]"))
    await editor.initialize()
    await editor.request("shutdown", None)
    assert [error["code"] for error in editor.refusals] == [PARSE_ERROR, INVALID_REQUEST]
    editor.send_raw(frame(b"{") + frame(b"[]"))
    editor.notify("exit", None)
    assert await editor.gone() == 0
    await editor.read_to_the_end()
    assert [error["code"] for error in editor.refusals] == 2 * [PARSE_ERROR, INVALID_REQUEST]


async def test_responses_are_never_answered_nor_taken_for_ours(daemon, editor, lsp):
    daemon.script = lsp.answer_when_cancelled
    editor.open(URI, "a")
    running = editor.inline(URI, 0, 1)
    await daemon.until(lambda: daemon.seen)
    editor.send({"id": running.number, "result": None})
    editor.send({"id": running.number, "error": {"code": 1, "message": "m"}})
    editor.send({"id": None, "error": {"code": PARSE_ERROR, "message": "m"}})
    await editor.request("swiftspec/status", None)
    assert editor.refusals == []
    assert not running.done()
    editor.notify("$/cancelRequest", {"id": running.number})
    with pytest.raises(lsp.RpcFailure) as failure:
        await running
    assert failure.value.code == -32800
    await daemon.until(lambda: daemon.of_kind(wire.Cancel))


async def test_params_that_look_like_messages_stay_what_they_are(daemon, editor):
    inner = {"jsonrpc": "2.0", "uri": URI, "languageId": "python", "version": 1, "text": "a = "}
    editor.notify("textDocument/didOpen", {"textDocument": inner})
    assert (await editor.inline(URI, 0, 4))["items"]
    assert daemon.documents[URI].text == "a = "


HEADS = [
    b"content-length: %d\r\n\r\n",
    b"CONTENT-LENGTH:%d\r\n\r\n",
    b"Content-Length : \t%d \r\n\r\n",
    b"Content-Length: %d\n\n",
    b"\r\nContent-Length: %d\r\n\r\n",
    b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: %d\r\n\r\n",
    b"Content-Length: %d\nX-More: a: b\nContent-Type: text/plain; charset=latin-1\n\n",
]


async def test_headers_as_clients_spell_them(editor):
    for head in HEADS:
        answer = editor.expect(7)
        body = status_request(7)
        editor.send_raw(head % len(body) + body)
        assert (await asyncio.wait_for(answer, 30))["state"] == "ready", head


LOST = [
    b"Content-Length: -5\r\n\r\n{}",
    b"Content-Length: telltale\r\n\r\n{}",
    b"Content-Type: telltale\r\n\r\n{}",
    b"Content-Length: 67108865\r\n\r\n{}",
    b"Content-Length: " + b"9" * 60_000 + b"\r\n\r\n{}",
    b"telltale\r\n",
    b"X: " + b"telltale" * 10_000,
]


@pytest.mark.parametrize("data", LOST, ids=range(len(LOST)))
async def test_lost_framing_ends_the_bridge_with_one_sentence(start_editor, data):
    editor = await start_editor()
    await editor.initialize()
    editor.send_raw(data)
    assert await editor.gone() == 9  # though its input stays open
    (line,) = (await editor.clean_up()).splitlines()
    assert line.startswith("swiftspec lsp ERROR The bridge ends, because ")
    assert "telltale" not in line
    assert "99999" not in line


async def test_lost_framing_ends_the_bridge_while_a_completion_runs(daemon, lsp, editor):
    daemon.script = lsp.answer_when_cancelled
    editor.open(URI, "a")
    answer = editor.inline(URI, 0, 1)
    await daemon.until(lambda: daemon.seen)
    await editor.request("shutdown", None)
    editor.send_raw(b"Content-Length: -1\r\n\r\n")
    assert await editor.gone() == 9
    await daemon.until(lambda: not daemon.sockets)
    answer.cancel()


@pytest.mark.parametrize(
    ("tail", "status", "lines"),
    [
        (b'{"jsonrpc": "2.0", "method": "exit"}', 0, 1),
        (b"", 9, 2),
    ],
)
def test_input_and_output_may_be_files(tmp_path, tail, status, lines):
    """There a thread reads, as it does on Windows."""
    bodies = [
        b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}',
        b"{",
        b'{"jsonrpc": "2.0", "id": 2, "method": "shutdown"}',
    ]
    end = frame(tail) if tail else b"Content-Length: -1\r\n\r\n"
    (tmp_path / "input").write_bytes(b"".join(map(frame, bodies)) + end)
    with (tmp_path / "input").open("rb") as given, (tmp_path / "output").open("wb") as output:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "swiftspec_daemon", "lsp", "--no-start"],
            stdin=given,
            stdout=output,
            stderr=subprocess.PIPE,
            env=dict(os.environ, SWIFTSPEC_HOME=str(tmp_path)),
            timeout=60,
        )
    assert ended.returncode == status
    assert len(ended.stderr.splitlines()) == lines, ended.stderr
    written = (tmp_path / "output").read_bytes().split(b"\r\n\r\n")[1:]
    answers = [json.JSONDecoder().raw_decode(part.decode())[0] for part in written]
    assert [answer["id"] for answer in answers if "id" in answer] == [1, None, 2]
