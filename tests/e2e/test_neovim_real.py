"""The whole system: a real Neovim, our plugin, the bridge, a real daemon and the default model.

The daemon is started by the bridge itself, as for a user who has just opened a file.
"""

import os
import re
import shutil
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]
LOADING_S = 200
"""The first use converts the model, and without native kernels it is slow."""


@pytest.fixture
def real_home(home, share_models, monkeypatch):
    """A home with the default model in it, whose daemon is ended after the test."""
    home.mkdir(exist_ok=True)
    share_models(home)
    monkeypatch.setenv("SWIFTSPEC_SERVER__PORT", "0")
    yield home
    swiftspec("stop")


def swiftspec(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "swiftspec_daemon", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def until_ready(session) -> None:
    """Wait until the model is loaded."""
    session.until(
        lambda: session.lua('return require("swiftspec").status()').startswith("ready"),
        "the model never was ready",
        LOADING_S,
    )


def test_ghost_text_from_the_default_model(any_neovim, real_home, start_neovim, plugin):
    session = start_neovim(any_neovim, plugin.setup(start_daemon=True), real_home)
    session.open("fibonacci.py")
    session.input("idef fibonacci(n):<CR>")
    until_ready(session)
    typed = session.lines
    assert typed[0] == "def fibonacci(n):"
    session.input("r")
    session.until(lambda: session.ghost() not in (None, ""), "no ghost text")
    session.until(lambda: not session.lua(ARRIVING), "the suggestion never was whole")
    ghost = session.ghost()
    assert ghost.strip()
    session.input("<Tab>")
    before = "\n".join([*typed[:-1], typed[-1] + "r"])
    session.until(
        lambda: "\n".join(session.lines).startswith(before + ghost), "the text was not accepted"
    )

    # The daemon knows what has been shown and accepted.
    def counted() -> bool:
        shown = swiftspec("status", "--json").stdout
        return re.search(r'"accepted": *[1-9]', shown) is not None

    session.until(counted, "the daemon does not know")


def test_the_first_keys_are_answered_by_themselves(any_neovim, real_home, start_neovim, plugin):
    """The bridge starts, the daemon starts and loads the model, and all that needs no other key."""
    session = start_neovim(any_neovim, plugin.setup(start_daemon=True), real_home)
    session.open("first.py")
    session.input("ifor i in range(3):<CR>")
    session.until(lambda: session.ghost() not in (None, ""), "no ghost text", LOADING_S)
    assert session.lines[0] == "for i in range(3):"
    session.input("<Esc>")

    # The same once the user has stopped the daemon: the next key starts it.
    assert swiftspec("stop").returncode == 0
    session.until(
        lambda: "not reachable" in session.lua('return require("swiftspec").status()'),
        "no word of the outage",
    )
    session.input("owhile i < 3:<CR>")
    session.until(lambda: session.ghost() not in (None, ""), "no ghost text", LOADING_S)


ARRIVING = "return require('swiftspec.suggestion').arriving()"


def test_the_daemon_outlives_the_editor_and_the_bridge_does_not(
    any_neovim, real_home, start_neovim, plugin
):
    session = start_neovim(any_neovim, plugin.setup(start_daemon=True), real_home)
    session.open("a.py")
    session.input("ix = ")
    until_ready(session)
    pid = session.lua("return vim.fn.getpid()")
    bridge = session.lua(BRIDGE_PID)
    os.kill(pid, 9)
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{bridge}") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{bridge}")
    assert swiftspec("status").returncode == 0


BRIDGE_PID = """
local child = vim.system({ "pgrep", "-P", tostring(vim.fn.getpid()), "-f", "swiftspec_daemon" })
return tonumber(vim.split(child:wait().stdout, "\\n")[1])"""


@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")
def test_on_a_terminal_screen(any_neovim, real_home, tmp_path, plugin):
    """What a user sees: the screen of a terminal, as tmux keeps it."""
    (tmp_path / "init.lua").write_text(plugin.setup(start_daemon=True) + STATUS_LINE)
    file = tmp_path / "screen.py"
    socket = f"swiftspec-{os.getpid()}"
    tmux = ["tmux", "-L", socket, "-f", "/dev/null"]
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}

    def run(*arguments: str) -> str:
        command = [*tmux, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def screen_until(condition, limit_s: float = 30) -> str:
        deadline = time.monotonic() + limit_s
        while not condition(screen := run("capture-pane", "-p", "-t", "screen")):
            assert time.monotonic() < deadline, screen
            time.sleep(0.05)
        return screen

    editor = [str(any_neovim.executable), "-n", "--clean", "-u", str(tmp_path / "init.lua")]
    state = f"XDG_STATE_HOME={tmp_path / 'state'}"
    size = ["-x", "100", "-y", "24"]
    run("new-session", "-d", "-s", "screen", *size, "env", state, *editor, str(file))
    try:
        screen_until(lambda screen: "daemon: " in screen)
        run("send-keys", "-t", "screen", "i", "def fibonacci(n):", "Enter")
        screen_until(lambda screen: "daemon: ready" in screen, LOADING_S)
        run("send-keys", "-t", "screen", "r")
        screen_until(lambda screen: "ghost: whole" in screen)
        ghosted = screen_until(lambda screen: re.search(r"^    r\S+", screen, re.M))
        assert file.exists() is False  # nothing is saved by itself
        run("send-keys", "-t", "screen", "Tab")
        screen_until(lambda screen: re.search(r"^    r\S+", screen, re.M))
        run("send-keys", "-t", "screen", "Escape")
        run("send-keys", "-t", "screen", ":w", "Enter")
        deadline = time.monotonic() + 30
        while not (file.exists() and file.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        saved = file.read_text().splitlines()
        assert saved[0] == "def fibonacci(n):"
        assert saved[1] != "    r"
        # What was on the screen before Tab is what the file has now.
        assert saved[1] in ghosted
    finally:
        subprocess.run([*tmux, "kill-server"], capture_output=True, env=environment, timeout=30)


STATUS_LINE = """
vim.o.laststatus = 2
vim.o.statusline = "daemon: %{luaeval('require([[swiftspec.bridge]]).status.state')} "
  .. "ghost: %{luaeval('require([[swiftspec]]).visible()') ? (luaeval("
  .. "'require([[swiftspec.suggestion]]).arriving()') ? 'part' : 'whole') : 'none'}"
vim.uv.new_timer():start(0, 100, vim.schedule_wrap(function() vim.cmd.redrawstatus() end))
"""
