"""What packaging/install.sh says while it works, with a pip that only talks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell script")

SCRIPT = Path(__file__).resolve().parents[2] / "packaging" / "install.sh"
PYTHON = """#!/bin/sh
case "$*" in
  *"pip install"*)
    echo "Obtaining file:///clone"
    echo "  Installing build dependencies: started"
    echo "Collecting numpy"
    echo "  Downloading numpy.whl (16 MB)"
    echo "Collecting rich"
    echo "Building wheels for collected packages: swiftspec-daemon"
    echo "  Building editable for swiftspec-daemon (pyproject.toml): started"
    echo "Installing collected packages: numpy, rich, swiftspec-daemon"
    exit $PIP_STATUS ;;
  *library*) echo "portable, gcc" ;;
esac
"""


def install(tmp_path: Path, *extra: str, status: int = 0, **options) -> subprocess.Popen[bytes]:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return subprocess.Popen(
        ["bash", SCRIPT, tmp_path / "venv", *extra],
        env=os.environ | {"PIP_STATUS": str(status)},
        stderr=subprocess.PIPE,
        **{"stdout": subprocess.PIPE} | options,
    )


@pytest.mark.parametrize(
    ("extra", "first"),
    [
        ([], ": packages from PyPI, then the native kernels (about a minute)"),
        (["test"], " [test]: packages from PyPI, then the native kernels (several minutes,"),
    ],
)
def test_on_a_pipe_each_step_is_a_line(tmp_path, extra, first):
    output, errors = install(tmp_path, *extra).communicate(timeout=60)
    lines = output.decode().splitlines()
    assert lines[0].startswith(f"Installing swiftspec-daemon{first}")
    assert lines[1:] == [
        "  fetching packages",
        "  building the native kernels",
        "  installing packages",
        "Native kernels: portable, gcc",
    ]
    assert errors == b""


def test_on_a_terminal_it_is_one_line_that_changes(tmp_path):
    leader, follower = os.openpty()
    running = install(tmp_path, stdout=follower)
    os.close(follower)
    shown = b""
    while True:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # Linux says so when the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    running.communicate(timeout=60)
    assert b"\r\x1b[K  Downloading numpy.whl (16 MB)\r\x1b[K  Collecting rich" in shown
    assert len(shown.splitlines()) < 20
    assert shown.count(b"\n") == 2


def test_a_failure_shows_pips_last_words(tmp_path):
    running = install(tmp_path, status=1)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 1
    assert b"Installing collected packages" in errors
    assert b"error: the installation failed" in errors
