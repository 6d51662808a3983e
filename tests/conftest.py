"""What all tests share: a home folder of their own, one compute thread, the default model once.

The default model is fetched into the user's own cache, so that test runs don't download it again
and again; SWIFTSPEC_TEST_CACHE names another folder for it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

# Before anything imports torch or tokenizers: tests share the machine's cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import hypothesis
import pytest

from swiftspec_daemon import paths
from swiftspec_daemon.models import catalog, default

# A background job of a shell ignores Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that does something else meanwhile fails no test.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


def _shared_models() -> Path:
    """The models' folder of the home that test runs share."""
    with pytest.MonkeyPatch.context() as patch:
        cache = os.environ.get("SWIFTSPEC_TEST_CACHE")
        if cache:
            patch.setenv("SWIFTSPEC_HOME", cache)
        else:
            patch.delenv("SWIFTSPEC_HOME", raising=False)
        return paths.models_dir()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SWIFTSPEC_HOME of the test, an empty folder of its own (its subprocesses inherit it)."""
    folder = tmp_path / "home"
    monkeypatch.setenv("SWIFTSPEC_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The models' folder that test runs share, with the default model in it."""
    models = _shared_models()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "models_dir", lambda: models)
        default.fetch()
    return models


@pytest.fixture(scope="session")
def default_model(shared_models: Path) -> catalog.ResolvedModel:
    """The default model, resolved (its `path` is the GGUF file)."""
    return catalog.resolve(str(shared_models / default.NAME / default.GGUF))


@pytest.fixture(scope="session")
def share_models(shared_models: Path) -> Callable[[Path], None]:
    """Makes the shared models, converted copies among them, those of a SWIFTSPEC_HOME."""

    def share(home: Path) -> None:
        cache = home / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "models").symlink_to(shared_models, target_is_directory=True)

    return share
