"""The fake daemon as a fixture."""

import importlib.util
import sys
from pathlib import Path

import pytest


def _load(name: str):
    file = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"swiftspec_tests_{name}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fake():
    """The module `fake_daemon`; importlib mode has no package to import it from."""
    return _load("fake_daemon")
