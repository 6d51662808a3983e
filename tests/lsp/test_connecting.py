"""Requests that come before the bridge has reached a daemon."""

import asyncio

import pytest

from swiftspec_daemon.client import AsyncClient
from swiftspec_daemon.errors import DaemonNotRunning
from swiftspec_daemon.lsp.documents import OpenDocuments
from swiftspec_daemon.lsp.link import DaemonLink
from swiftspec_daemon.lsp.mirror import Mirror
from swiftspec_daemon.protocol import messages as wire

URI = "file:///project/a.py"
METHODS = ["textDocument/inlineCompletion", "textDocument/completion", "swiftspec/complete"]


def texts(method, answer):
    """The texts that an answer offers."""
    if method == "swiftspec/complete":
        return [answer["text"]] if answer["text"] else []
    if answer is None:
        return []
    return [item.get("insertText") or item["label"] for item in answer["items"]]


async def test_the_connection_is_made_before_anything_is_asked(daemon, start_editor):
    editor = await start_editor()
    await editor.request("initialize", {"capabilities": {}})
    await daemon.until(lambda: daemon.hellos)


@pytest.fixture
async def slow_daemon(daemon, lsp, monkeypatch):
    """The scripted daemon, whose welcome is held until `release` is set."""
    daemon.release, daemon.greeted = asyncio.Event(), asyncio.Event()
    take = daemon._take

    async def slowly(socket, message):
        if isinstance(message, wire.Hello):
            daemon.greeted.set()
            await daemon.release.wait()
        await take(socket, message)

    monkeypatch.setattr(daemon, "_take", slowly)
    yield daemon
    daemon.release.set()


@pytest.mark.parametrize("method", METHODS)
async def test_a_request_made_while_connecting_is_answered_once_connected(
    slow_daemon, start_editor, lsp, method
):
    editor = await start_editor()
    await editor.initialize()
    await slow_daemon.greeted.wait()
    editor.open(URI, "(")
    answer = editor.ask(method, lsp.at(URI, 0, 1))
    await editor.request("swiftspec/status", None)  # the request before it has been taken up
    assert not answer.done()
    slow_daemon.release.set()
    async with asyncio.timeout(lsp.LIMIT_S):
        assert texts(method, await answer) == ["hello"]


@pytest.mark.parametrize("method", METHODS)
async def test_a_request_that_waits_can_be_cancelled(slow_daemon, start_editor, lsp, method):
    editor = await start_editor()
    await editor.initialize()
    await slow_daemon.greeted.wait()
    editor.open(URI, "(")
    by_id = editor.ask(method, lsp.at(URI, 0, 1))
    editor.notify("$/cancelRequest", {"id": by_id.number})
    by_next = editor.ask(method, lsp.at(URI, 0, 1))
    editor.change(URI, 0, 1, "(")
    last = editor.ask(method, lsp.at(URI, 0, 2))
    for cancelled in (by_id, by_next):
        with pytest.raises(lsp.RpcFailure) as failure:
            async with asyncio.timeout(lsp.LIMIT_S):
                await cancelled
        assert failure.value.code == -32800
    slow_daemon.release.set()
    async with asyncio.timeout(lsp.LIMIT_S):
        assert texts(method, await last) == ["hello"]
    assert [before for _, before in slow_daemon.seen] == ["(("]


async def test_a_request_whose_text_changes_while_it_waits_is_null(slow_daemon, start_editor, lsp):
    editor = await start_editor()
    await editor.initialize()
    await slow_daemon.greeted.wait()
    editor.open(URI, "(")
    answer = editor.inline(URI, 0, 1)
    await editor.request("swiftspec/status", None)
    editor.change(URI, 0, 0, "b")
    await editor.request("swiftspec/status", None)
    slow_daemon.release.set()
    async with asyncio.timeout(lsp.LIMIT_S):
        assert await answer is None
    assert slow_daemon.seen == []


@pytest.mark.parametrize("method", METHODS)
async def test_a_request_that_waits_is_answered_by_nothing_if_the_attempt_fails(
    slow_daemon, start_editor, lsp, method
):
    editor = await start_editor()
    await editor.initialize()
    await slow_daemon.greeted.wait()
    editor.open(URI, "(")
    answer = editor.ask(method, lsp.at(URI, 0, 1))
    await editor.request("swiftspec/status", None)
    for socket in slow_daemon.sockets:
        socket.transport.abort()
    async with asyncio.timeout(lsp.LIMIT_S):
        assert texts(method, await answer) == []


# --- a daemon is started when one is wanted -------------------------------------------------------


class States(list):
    """The states that the editor is told."""

    def __init__(self):
        super().__init__()
        self._news = asyncio.Event()

    def add(self, status):
        self.append(status.state)
        self._news.set()

    async def until(self, state):
        async with asyncio.timeout(30):
            while self[-1:] != [state]:
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def link(monkeypatch):
    """A link whose connections the test makes: `calls` get (start, future of the client)."""
    calls = asyncio.Queue()

    def connect(*, start, **_):
        made = asyncio.get_running_loop().create_future()
        calls.put_nowait((start, made))
        return made

    monkeypatch.setattr(AsyncClient, "connect", connect)
    states = States()
    link = DaemonLink(Mirror(OpenDocuments()), states.add)
    running = asyncio.create_task(link.run("editor", "utf-16"))
    yield link, calls, states
    running.cancel()


class Connected:
    """A connection that lives until the test ends it."""

    position_encoding = "utf-16"

    def __init__(self):
        self.ended = asyncio.Event()

    def on_error(self, callback):
        pass

    def on_close(self, callback):
        callback(DaemonNotRunning("ended"))

    async def on_status(self, callback):
        callback(
            wire.Status(
                version="1", pid=1, uptime_s=0.0, model=wire.ModelStatus(name="m", state="ready")
            )
        )

    async def wait_closed(self):
        await self.ended.wait()


async def next_call(calls):
    async with asyncio.timeout(30):
        return await calls.get()


async def test_the_first_attempt_may_start_a_daemon_and_requests_wait_for_it(link):
    link, calls, states = link
    start, made = await next_call(calls)
    assert start
    waiting = asyncio.create_task(link.ready())
    await asyncio.sleep(0)
    assert not waiting.done()
    client = Connected()
    made.set_result(client)
    assert await waiting is client
    assert states == ["ready"]


async def test_after_a_failed_start_requests_do_not_wait_but_it_is_tried_again(link):
    link, calls, states = link
    for _ in range(3):
        start, made = await next_call(calls)
        assert start
        made.set_exception(DaemonNotRunning("broken"))
        await states.until("unreachable")
        async with asyncio.timeout(1):
            assert await link.ready() is None
    assert states == ["unreachable"]


async def test_the_first_request_after_a_stop_starts_a_daemon_and_waits_for_it(link):
    link, calls, states = link
    _, made = await next_call(calls)
    client = Connected()
    made.set_result(client)
    assert await link.ready() is client
    client.ended.set()
    for _ in range(3):  # nobody wants one: it stays stopped
        start, made = await next_call(calls)
        assert not start
        made.set_exception(DaemonNotRunning("stopped"))
    await states.until("unreachable")
    waiting = asyncio.create_task(link.ready())
    start, made = await next_call(calls)
    assert start
    assert not waiting.done()
    again = Connected()
    made.set_result(again)
    assert await waiting is again
    assert states == ["ready", "connecting", "unreachable", "connecting", "ready"]


async def test_a_request_made_while_a_stopped_daemon_is_looked_for_starts_one(link):
    link, calls, states = link
    _, made = await next_call(calls)
    client = Connected()
    made.set_result(client)
    assert await link.ready() is client
    client.ended.set()
    start, made = await next_call(calls)
    assert not start
    waiting = asyncio.create_task(link.ready())
    await asyncio.sleep(0)
    made.set_exception(DaemonNotRunning("stopped"))
    start, made = await next_call(calls)
    assert start
    again = Connected()
    made.set_result(again)
    assert await waiting is again
    assert "unreachable" not in states
