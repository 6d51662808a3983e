"""Helpers of these tests as fixtures; importlib mode has no package to import them from."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from swiftspec_daemon.kernels.native.library import load


def _load(name: str) -> ModuleType:
    full = f"swiftspec_tests_kernels_{name}"
    if full not in sys.modules:
        file = Path(__file__).with_name(f"{name}.py")
        spec = importlib.util.spec_from_file_location(full, file)
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


@pytest.fixture(scope="session")
def oracle():
    """The module `oracle`: the mathematics in fp64."""
    return _load("oracle")


@pytest.fixture(scope="session")
def tiny():
    """The module `tiny`: small random models."""
    return _load("tiny")


@pytest.fixture(params=["portable", "avx512-vnni", "amx-int8"])
def isa(request):
    """Each instruction set of the build that runs here."""
    if not load().has_isa(request.param):
        pytest.skip(f"this machine does not run {request.param}")
    return request.param


@pytest.fixture(params=["numpy", "portable", "avx512-vnni", "amx-int8"])
def any_isa(request):
    """The same, and the reference in NumPy."""
    if request.param != "numpy" and not load().has_isa(request.param):
        pytest.skip(f"this machine does not run {request.param}")
    return request.param
