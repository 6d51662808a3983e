"""Our plugin before the daemon is there, and when it comes back; against a scripted daemon."""

import asyncio

import pytest

from swiftspec_daemon.protocol import messages as wire


def hold_welcome(daemon, monkeypatch):
    """Let no connection become ready until the event that is returned is set (on its loop)."""
    release, take = asyncio.Event(), daemon._take

    async def slowly(socket, message):
        if isinstance(message, wire.Hello):
            await release.wait()
        await take(socket, message)

    monkeypatch.setattr(daemon, "_take", slowly)
    return release


def test_keys_typed_before_the_server_is_there_are_answered(
    any_neovim, daemon, start_neovim, plugin
):
    session = start_neovim(any_neovim, plugin.setup(), daemon.home)
    session.open("a.py")
    session.input("idef fib")  # at once: the server's process has hardly begun
    session.until_ghost("(n):\n    return n")
    assert daemon.seen[-1][1] == "def fib"


def test_keys_typed_while_it_connects_are_answered(
    any_neovim, daemon, scripted, start_neovim, plugin, monkeypatch
):
    release = hold_welcome(daemon, monkeypatch)
    session = start_neovim(any_neovim, plugin.setup(), daemon.home)
    session.open("a.py")
    session.until_attached()
    session.input("idef fi")
    session.until(lambda: session.lua(ARRIVING), "nothing was asked")
    session.input("b")
    assert session.lua('return require("swiftspec").statusline()') == "swiftspec: connecting"
    assert session.ghost() is None
    scripted.loop.call_soon_threadsafe(release.set)
    session.until_ghost("(n):\n    return n")
    assert [before for _, before in daemon.seen] == ["def fib"]


ARRIVING = 'return require("swiftspec.suggestion").arriving()'


def in_an_outage(session, daemon, scripted):
    """Type in an outage, and wait until that was answered by nothing."""
    scripted.run(daemon.stop())
    session.until(
        lambda: "not reachable" in session.lua('return require("swiftspec").status()'),
        "no word of the outage",
    )
    session.input("idef fib")
    session.until_lines(["def fib"])
    session.until(lambda: not session.lua(ARRIVING), "no answer in the outage")
    assert session.lua('return require("swiftspec").statusline()') == "swiftspec: not reachable"


def test_after_an_outage_it_is_asked_again_without_a_key(session, daemon, scripted):
    in_an_outage(session, daemon, scripted)
    scripted.run(daemon.start())
    session.until_ghost("(n):\n    return n")
    assert daemon.seen[-1][1] == "def fib"


@pytest.mark.parametrize("keys", ["<Esc>", "<Cmd>lua require([[swiftspec]]).dismiss()<CR>"])
def test_after_an_outage_nothing_is_asked_where_none_is_wanted(session, daemon, scripted, keys):
    in_an_outage(session, daemon, scripted)
    session.input(keys)
    scripted.run(daemon.start())
    session.until(
        lambda: session.lua('return require("swiftspec").status()').startswith("ready"),
        "never ready again",
    )
    session.input("<Esc>ox")
    session.until_ghost("(n):\n    return n")
    assert {before for _, before in daemon.seen} <= {"def fib\n", "def fib\nx"}


def test_progress_is_shown_and_a_model_that_is_unloaded_stays_so(session, daemon, scripted):
    session.input("ix")
    session.until_ghost("(n):\n    return n")
    session.input("<Tab>")
    daemon.text = ""
    session.input("y")
    session.until(lambda: daemon.seen[-1][1].endswith("y"), "not asked")
    asked = len(daemon.seen)
    daemon.text = "z"
    line = 'return require("swiftspec").statusline()'
    for model, shown in (
        (wire.ModelStatus(name="m", state="unloaded"), "swiftspec: unloaded"),
        (wire.ModelStatus(name="m", state="loading", fraction=0.62), "swiftspec: loading 62%"),
        (wire.ModelStatus(name="scripted", state="ready"), "swiftspec: ready"),
    ):
        daemon.model = model
        scripted.run(daemon.announce())
        session.until(lambda shown=shown: session.lua(line) == shown, f"never {shown!r}")
        if model.state == "unloaded":
            session.input("<Ignore>")
            assert len(daemon.seen) == asked
    session.until_ghost("z")
