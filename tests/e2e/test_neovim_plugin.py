"""Our plugin in a real Neovim, against a daemon that follows a script: each detail on its own."""

import asyncio

import pytest

from swiftspec_daemon.protocol import messages as wire


def rejected(daemon) -> set[int]:
    return {message.id for message in daemon.of_kind(wire.Rejected)}


def test_ghost_text_is_accepted_whole(session, daemon, scripted):
    session.input("idef fib")
    session.until_ghost("(n):\n    return n")
    session.input("<Tab>")
    session.until_lines(["def fib(n):", "    return n"])
    assert session.nvim.current.window.cursor == (2, 12)
    scripted.until(lambda: daemon.of_kind(wire.Accepted))
    shown, accepted = daemon.of_kind(wire.Shown)[0], daemon.of_kind(wire.Accepted)[0]
    assert shown.id == accepted.id
    assert accepted.characters is None
    assert accepted.id not in rejected(daemon)


def test_tab_is_a_tab_where_there_is_no_ghost_text(session, daemon):
    daemon.text = ""
    session.open("a.txt")
    session.input("ix<Tab>y")
    session.until_lines(["x\ty"])


def test_tab_does_what_it_did_before(any_neovim, start_neovim, plugin):
    for old in (
        'vim.keymap.set("i", "<Tab>", "TAB")',
        'vim.keymap.set("i", "<Tab>", function() return "TAB" end, { expr = true })',
        'vim.keymap.set("i", "<Tab>", function() vim.api.nvim_put({"TAB"}, "c", false, true) end)',
        'vim.cmd([[inoremap <expr> <Tab> "TAB"]])',
    ):
        session = start_neovim(any_neovim, f"{old}\n" + plugin.setup())
        session.open("a.py")
        session.input("ix<Tab>")
        session.until_lines(["xTAB"])


def test_typing_along_keeps_the_suggestion_without_a_new_request(session, daemon):
    session.input("idef fib")
    session.until_ghost("(n):\n    return n")
    asked = len(daemon.seen)
    for key, left in (("(", "n):\n    return n"), ("n", "):\n    return n"), ("<BS>", None)):
        session.input(key)
        session.until_ghost(left or "n):\n    return n")
    session.input("n):<CR>ret")  # Neovim indents the new line, which is typing along, too
    session.until_ghost("urn n")
    assert len(daemon.seen) == asked
    session.input("<Tab>")
    session.until_lines(["def fib(n):", "    return n"])


def test_another_key_drops_it_and_asks_again(session, daemon, scripted):
    session.input("idef fib")
    session.until_ghost("(n):\n    return n")
    old = daemon.seen[-1][0].id
    daemon.text = "_two"
    session.input("x")
    session.until_ghost("_two")
    scripted.until(lambda: old in rejected(daemon))
    assert daemon.seen[-1][1] == "def fibx"


def test_words_and_lines_are_accepted_alone(session, daemon, scripted):
    daemon.text = " = größe + 1\n    done"
    session.input("ix")
    session.until_ghost(" = größe + 1\n    done")
    asked = len(daemon.seen)
    for key, lines, left in (
        ("<M-w>", ["x ="], " größe + 1\n    done"),
        ("<M-w>", ["x = größe"], " + 1\n    done"),
        ("<M-l>", ["x = größe + 1"], "\n    done"),
    ):
        session.input(key)
        session.until_lines(lines)
        session.until_ghost(left)
    assert len(daemon.seen) == asked
    session.input("<M-l>")
    session.until_lines(["x = größe + 1", "    done"])
    scripted.until(lambda: len(daemon.of_kind(wire.Accepted)) == 4)
    taken = [message.characters for message in daemon.of_kind(wire.Accepted)]
    assert taken == [len(" ="), len(" = größe"), len(" = größe + 1"), None]
    assert daemon.of_kind(wire.Accepted)[0].id not in rejected(daemon)


def test_it_can_be_dismissed(session, daemon, scripted):
    session.input("idef fib")
    session.until_ghost("(n):\n    return n")
    session.input("<C-]>")
    session.until_ghost(None)
    scripted.until(lambda: daemon.of_kind(wire.Rejected))
    session.input("x")
    session.until_ghost("(n):\n    return n")


def test_leaving_insert_mode_hides_it(session):
    session.input("idef fib")
    session.until_ghost("(n):\n    return n")
    session.input("<Esc>")
    session.until_ghost(None)
    assert session.lines == ["def fib"]


def test_what_was_accepted_is_undone_on_its_own(session):
    session.input("idef fib")
    session.until_ghost("(n):\n    return n")
    session.input("<Tab>")
    session.until_lines(["def fib(n):", "    return n"])
    session.input("<Esc>u")
    session.until_lines(["def fib"])
    assert session.ghost() is None


def test_the_first_line_is_shown_before_the_rest_has_come(session, daemon):
    arrived = {}

    async def stream(daemon, socket, request):
        arrived["go"] = asyncio.Event()
        await daemon.send(socket, wire.Delta(id=request.id, text="(n):"))
        await daemon.send(socket, wire.Delta(id=request.id, text="\n    ret"))
        await daemon.send(socket, wire.FirstLine(id=request.id, text="(n):"))
        await arrived["go"].wait()
        await daemon.send(socket, wire.Delta(id=request.id, text="urn n"))
        done = wire.Done(id=request.id, reason="stop", text="(n):\n    return n")
        await daemon.send(socket, done)

    daemon.script = stream
    session.input("idef fib")
    session.until_ghost("(n):\n    ret")
    session.input("(n")
    session.until_ghost("):\n    ret")
    session.nvim.async_call(lambda: None)
    arrived["go"].set()
    session.until_ghost("):\n    return n")


def test_an_out_of_date_request_is_cancelled(session, daemon, scripted, scripts):
    daemon.script = scripts.answer_when_cancelled
    session.input("ia")
    scripted.until(lambda: daemon.seen)
    daemon.script = scripts.answer_at_once
    session.input("b")
    session.until_ghost("(n):\n    return n")
    scripted.until(lambda: daemon.of_kind(wire.Cancel))
    assert daemon.seen[-1][1] == "ab"


def test_characters_of_several_bytes(session, daemon):
    daemon.text = "𝒳é"
    session.input('ix = "語𝒳')
    session.until_ghost("𝒳é")
    assert daemon.seen[-1][1] == 'x = "語𝒳'
    session.input("<Tab>!")
    session.until_lines(['x = "語𝒳𝒳é!'])


def test_text_behind_the_cursor_stays(session, daemon):
    session.input("if()<Left>")
    daemon.text = "a, b"
    session.input("q<BS>")
    session.until_ghost("a, b")
    session.input("<Tab>")
    session.until_lines(["f(a, b)"])


def test_dos_line_ends(session, daemon, scripted):
    session.open("dos.py", "def f\r\n")
    assert session.nvim.current.buffer.options["fileformat"] == "dos"
    daemon.text = "(x):\r\n    pass\r\n"
    session.input("A")
    session.until_ghost("(x):\n    pass\n")
    session.input("<M-l><M-l>")
    session.until_lines(["def f(x):", "    pass"])
    scripted.until(lambda: len(daemon.of_kind(wire.Accepted)) == 2)
    assert daemon.of_kind(wire.Accepted)[1].characters == len("(x):\r\n    pass")


def test_tabs_are_drawn_as_wide_as_they_are(session, daemon):
    daemon.text = "\tx\n\ty"
    session.open("a.txt")
    session.input("iab")
    session.until_ghost("      x\n        y")
    session.input("<Tab>")
    session.until_lines(["ab\tx", "\ty"])


def test_an_open_menu_hides_it(session, daemon):
    session.input("ifoo fob<CR>f<C-n>")
    session.until(lambda: session.nvim.funcs.pumvisible() == 1, "no menu")
    session.until_ghost(None)
    assert session.lua('return require("swiftspec").visible()') is False
    session.input("<C-e>")
    session.until_ghost("(n):\n    return n")


@pytest.mark.parametrize(
    "command",
    [
        "set nomodifiable",
        "set readonly",
        "set buftype=nofile",
        "set filetype=help",
        "SwiftspecDisable",
        "SwiftspecDisable!",
    ],
)
def test_buffers_without_suggestions(session, daemon, command):
    session.nvim.command(command)
    session.input("iabc")
    session.input("<Esc>")
    session.nvim.command("set modifiable noreadonly buftype= filetype=python")
    session.nvim.command("SwiftspecEnable")
    session.nvim.command("SwiftspecEnable!")
    session.input("Sz")
    session.until_ghost("(n):\n    return n")
    assert {before for _, before in daemon.seen} <= {"", "z"}


def test_a_file_of_100_000_lines(session, daemon):
    session.open("big.py", "x = 1\n" * 100_000)
    session.input("50000Gofoo")
    session.until_ghost("(n):\n    return n")
    assert daemon.seen[-1][1] == "x = 1\n" * 50_000 + "foo"


def test_a_file_above_the_limit_is_left_alone(any_neovim, daemon, start_neovim, plugin):
    session = start_neovim(any_neovim, plugin.setup("max_file_bytes = 100"), daemon.home)
    session.open("big.py", "x = 1\n" * 100)
    session.input("ofoo<Esc>")
    session.until_lines(["x = 1", "foo"] + ["x = 1"] * 99)
    session.open("small.py", "")
    session.input("ibar")
    session.until_ghost("(n):\n    return n")
    assert [before for _, before in daemon.seen if "foo" in before] == []


def test_the_daemon_may_restart(session, daemon, scripted):
    session.input("ione<Esc>")
    scripted.run(daemon.stop())
    session.until(
        lambda: "not reachable" in session.lua('return require("swiftspec").status()'),
        "no word of the outage",
    )
    scripted.run(daemon.start())
    session.until(
        lambda: session.lua('return require("swiftspec").status()').startswith("ready"),
        "never ready again",
    )
    session.input("otwo")
    session.until_ghost("(n):\n    return n")
    assert daemon.seen[-1][1] == "one\ntwo"


def test_status_and_health(session):
    session.until(
        lambda: session.lua('return require("swiftspec").status()') == "ready · scripted",
        "the status never was ready",
    )
    session.nvim.command("checkhealth swiftspec")
    report = "\n".join(session.lines)
    assert "daemon: ready" in report
    assert "ERROR" not in report


def test_a_missing_program_is_told_once(any_neovim, start_neovim, plugin):
    session = start_neovim(any_neovim, plugin.setup('cmd = { "no-such-program" }'))
    session.open("a.py")
    session.input("iabc<Esc>oabc<Esc>")
    session.until_lines(["abc", "abc"])
    assert session.nvim.command_output("messages").count("cannot run") == 1
