"""Daemon, bridge and command line start without the heavy libraries. Looks at `sys.modules` of
fresh processes, in which everything that they import at any time is imported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
TORCH = {"torch", "transformers", "accelerate", "triton"}


def loaded(tmp_path: Path, *names: str) -> set[str]:
    """Top-level modules in a new process that has imported `names`."""
    ran = subprocess.run(
        [sys.executable, "-P", "-c", PROBE, *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout))


@pytest.mark.parametrize(
    "name",
    [
        "swiftspec_daemon.server.run",
        "swiftspec_daemon.server.app",
        "swiftspec_daemon.cli.app",
        "swiftspec_daemon.__main__",
    ],
)
def test_daemon_and_command_line_load_no_torch(name: str, tmp_path: Path):
    modules = loaded(tmp_path, name)
    assert "swiftspec_daemon" in modules
    assert not modules & TORCH


def test_bridge_loads_nothing_heavy(tmp_path: Path):
    modules = loaded(tmp_path, "swiftspec_daemon.lsp.server")
    assert "swiftspec_daemon" in modules
    assert not modules & (TORCH | {"numpy", "rich", "typer", "tokenizers", "starlette", "uvicorn"})


def test_client_loads_nothing_heavy(tmp_path: Path):
    modules = loaded(tmp_path, "swiftspec_daemon.client")
    assert "swiftspec_daemon" in modules
    assert not modules & (TORCH | {"numpy", "rich", "typer", "pygls"})


def test_the_probe_sees_numpy(tmp_path: Path):
    """The probe can fail: a heavy library that is imported is seen."""
    assert "numpy" in loaded(tmp_path, "numpy")
