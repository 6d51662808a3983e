"""Makes what the tests of the language server share."""

import importlib.util
import sys
from pathlib import Path

import pytest
import pytest_asyncio


def _load(name: str):
    file = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"swiftspec_tests_lsp_{name}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


support = _load("support")


@pytest.fixture
def lsp():
    """The module `support`; importlib mode has no package to import it from."""
    return support


@pytest.fixture
async def daemon(tmp_path: Path):
    """A running scripted daemon, which bridges started in `tmp_path` find."""
    scripted = support.ScriptedDaemon(tmp_path)
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def start_editor(tmp_path: Path):
    """Starts bridges; after the test none is left, and none has written a traceback."""
    editors = []

    async def start(*arguments: str):
        editor = await support.Editor.start(tmp_path, *arguments)
        editors.append(editor)
        return editor

    yield start
    for editor in editors:
        stderr = await editor.clean_up()
        assert "Traceback" not in stderr, stderr


@pytest.fixture
async def editor(daemon, start_editor):
    """An initialized bridge that is connected to the scripted daemon."""
    started = await start_editor()
    await started.initialize()
    await started.connected()
    return started


# --- one daemon and one bridge for a module, since starting a bridge takes most of a test's time --


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_pair(tmp_path_factory):
    """A scripted daemon and a bridge that is connected to it."""
    daemon = support.ScriptedDaemon(tmp_path_factory.mktemp("home"))
    await daemon.start()
    editor = await support.Editor.start(daemon.home)
    await editor.initialize()
    await editor.connected()
    yield daemon, editor
    stderr = await editor.clean_up()
    await daemon.stop()
    assert "Traceback" not in stderr, stderr


@pytest.fixture
def shared_daemon(module_pair):
    """The module's daemon, as new."""
    daemon, editor = module_pair
    for uri in list(daemon.documents):
        editor.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    daemon.reset()
    return daemon


@pytest.fixture
def shared_editor(module_pair, shared_daemon):
    """The module's bridge, without documents."""
    editor = module_pair[1]
    editor.forget("swiftspec/delta")
    return editor
