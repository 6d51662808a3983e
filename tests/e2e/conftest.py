"""Editors, daemons and where they live, for the end-to-end tests."""

import asyncio
import contextlib
import importlib.util
import sys
import threading
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PLUGIN = TESTS.parent / "editor-clients" / "neovim"
LIMIT_S = 30


def _load(name: str, file: Path):
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


editors = _load("swiftspec_tests_editors", TESTS / "e2e" / "editors.py")
support = _load("swiftspec_tests_e2e_support", TESTS / "lsp" / "support.py")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(item.fspath).parent == TESTS / "e2e":
            item.add_marker("e2e")


class ScriptedDaemonThread:
    """The scripted daemon on an event loop of its own, since driving Neovim blocks."""

    def __init__(self, home: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.daemon = support.ScriptedDaemon(home)
        self.run(self.daemon.start())

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIMIT_S)

    def until(self, condition) -> None:
        self.run(self.daemon.until(condition))

    def close(self) -> None:
        self.run(self.daemon.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class NeovimSession:
    """A real Neovim with our plugin, driven over its RPC interface."""

    def __init__(self, editor, home: Path, folder: Path, setup: str) -> None:
        import pynvim

        self.editor = editor
        self.folder = folder
        (folder / "init.lua").write_text(setup)
        environment = {
            "SWIFTSPEC_HOME": str(home),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_DATA_HOME": str(folder / "data"),
        }
        assignments = [f"{name}={value}" for name, value in environment.items()]
        arguments = ["--embed", "--headless", "-n", "--clean", "-u", str(folder / "init.lua")]
        command = ["env", *assignments, str(editor.executable), *arguments]
        self.nvim = pynvim.attach("child", argv=command)

    def lua(self, code: str, *arguments):
        return self.nvim.exec_lua(code, *arguments)

    def open(self, name: str, text: str = "") -> None:
        file = self.folder / name
        file.write_text(text, newline="")
        self.nvim.command(f"edit {file}")

    def input(self, keys: str) -> None:
        self.nvim.input(keys)

    @property
    def lines(self) -> list[str]:
        return self.nvim.current.buffer[:]

    def ghost(self, namespace: str = "swiftspec") -> str | None:
        """The ghost text on the screen, its lines joined by newlines."""
        code = """
        local ns = vim.api.nvim_create_namespace(...)
        return vim.api.nvim_buf_get_extmarks(0, ns, 0, -1, { details = true })"""
        marks = self.lua(code, namespace)
        if not marks:
            return None
        (mark,) = marks
        details = mark[3]
        first = "".join(chunk[0] for chunk in details.get("virt_text", []))
        below = ["".join(chunk[0] for chunk in line) for line in details.get("virt_lines", [])]
        return "\n".join([first, *below])

    def until(self, condition, what: str, limit_s: float = LIMIT_S) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, f"{what}; buffer {self.lines}, {self.log()}"
            time.sleep(0.01)

    def until_ghost(self, text: str | None, namespace: str = "swiftspec") -> None:
        self.until(lambda: self.ghost(namespace) == text, f"ghost text never was {text!r}")

    def until_lines(self, lines: list[str]) -> None:
        self.until(lambda: self.lines == lines, f"the buffer never was {lines!r}")

    def log(self) -> str:
        ghost = self.ghost()
        messages = self.nvim.command_output("messages")
        logs = [file.read_text()[-2000:] for file in self.folder.rglob("lsp.log")]
        return f"ghost {ghost!r}, messages {messages!r}, log {logs}"

    def until_attached(self) -> None:
        code = """
        local client = vim.lsp.get_clients({ bufnr = 0 })[1]
        return client ~= nil and client.initialized or false"""
        self.until(lambda: self.lua(code), "the language server never was ready")

    def close(self) -> None:
        with contextlib.suppress(OSError, EOFError):  # it ends before it answers, or was killed
            self.nvim.command("qa!")
        self.nvim.close()


class Plugin:
    """Our plugin, as it lies in this repository."""

    doc = PLUGIN / "doc"

    @staticmethod
    def command(*, start_daemon: bool) -> str:
        """The bridge's command line, as a Lua table."""
        command = [sys.executable, "-P", "-m", "swiftspec_daemon", "lsp"]
        if not start_daemon:
            command.append("--no-start")
        return "{" + ", ".join(f"[[{word}]]" for word in command) + "}"

    @classmethod
    def setup(cls, options: str = "", *, start_daemon: bool = False) -> str:
        """An init.lua that loads the plugin; `options` are Lua fields."""
        command = cls.command(start_daemon=start_daemon)
        return (
            f"vim.opt.runtimepath:prepend([[{PLUGIN}]])\n"
            f'require("swiftspec").setup({{ cmd = {command}, {options} }})\n'
        )


@pytest.fixture
def plugin():
    return Plugin


@pytest.fixture
def scripts():
    """Scripts for the daemon."""
    return support


@pytest.fixture(scope="session")
def any_neovim():
    try:
        return editors.neovim()
    except editors.EditorUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def newest_neovim():
    try:
        return editors.neovim(newest=True)
    except editors.EditorUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def start_neovim(tmp_path: Path, home: Path):
    """Starts editors that look for a daemon in `home`."""
    sessions = []

    def start(editor, setup: str, home: Path = home) -> NeovimSession:
        folder = tmp_path / f"nvim{len(sessions)}"
        folder.mkdir()
        session = NeovimSession(editor, home, folder, setup)
        sessions.append(session)
        return session

    yield start
    for session in sessions:
        session.close()


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    thread = ScriptedDaemonThread(tmp_path_factory.mktemp("home"))
    yield thread
    thread.close()


@pytest.fixture(scope="module")
def shared_session(any_neovim, scripted, tmp_path_factory):
    """One editor for a whole module, since starting one takes seconds."""
    folder = tmp_path_factory.mktemp("nvim")
    session = NeovimSession(any_neovim, scripted.daemon.home, folder, Plugin.setup())
    yield session
    session.close()


@pytest.fixture
def daemon(scripted):
    """The scripted daemon, as new."""
    daemon = scripted.daemon
    daemon.text = "(n):\n    return n"
    daemon.script = support.answer_at_once
    daemon.seen.clear()
    daemon.received.clear()
    return daemon


@pytest.fixture
def session(shared_session, daemon):
    """The module's editor with one new Python file, and the plugin ready."""
    shared_session.nvim.command("SwiftspecEnable")
    shared_session.open("a.py")
    shared_session.until_attached()
    yield shared_session
    shared_session.input("<Esc>")
    shared_session.nvim.command("%bwipeout!")
