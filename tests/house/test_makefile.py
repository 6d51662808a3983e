"""The Makefile in a folder whose name has a space, with tools that only say how they are called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("make") is None, reason="needs make"
)

ROOT = Path(__file__).resolve().parents[2]
TOOL = """#!/bin/sh
echo "${0##*/} $*"
"""
MYPY = """#!/bin/sh
ls -d "$PWD/swiftspec_daemon/cli/app.py" swiftspec_daemon/kernels/__init__.py \\
  swiftspec_daemon/lsp/__init__.py ../../pyproject.toml && echo "mypy $*"
"""


@pytest.fixture(params=["folder", "a folder with spaces"])
def clone(request, tmp_path):
    """The files that the targets read, and an environment that has been installed."""
    folder = tmp_path / request.param
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "setup.py", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder)
    for name in ("swiftspec_daemon", "kernels", "lsp", "packaging", ".ci"):
        no_builds = shutil.ignore_patterns("__pycache__", "*.so", "*.dylib")
        shutil.copytree(ROOT / name, folder / name, ignore=no_builds)
    (folder / "benchmarks").mkdir()
    tools = folder / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name in ("mypy", "ruff", "pytest", "python", "swiftspec"):
        (tools / name).write_text(MYPY if name == "mypy" else TOOL)
        (tools / name).chmod(0o755)
    for mark in ("", "-bench", "-test", "-dev"):
        (folder / ".venv" / f".installed{mark}").touch()
    return folder


@pytest.mark.parametrize(
    ("target", "calls"),
    [
        ("types", ["mypy --config-file"]),
        ("check", ["ruff check .", "ruff format --check .", "mypy --config-file"]),
        ("test", ["pytest"]),
        ("run", ["swiftspec run"]),
        ("docs", ["python -m swiftspec_daemon.protocol.schema"]),
        ("distclean", []),
    ],
)
def test_a_target_calls_its_tools(clone, target, calls):
    # Not the environment of a `make test` that runs this: `distclean` would remove it.
    ours = {"VENV", "PYTHON", "ARGS", "ONCE", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"}
    done = subprocess.run(
        ["make", "--no-print-directory", target],
        cwd=clone,
        env={name: value for name, value in os.environ.items() if name not in ours},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = "\n".join(line.strip() for line in done.stdout.splitlines() if "bin/" not in line)
    for call in calls:
        assert call in said
    assert (clone / ".venv").exists() == (target != "distclean")
