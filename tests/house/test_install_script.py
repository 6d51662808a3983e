"""What packaging/install.sh says while it works, and after interruptions; with a pip that talks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
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


FAKE_PYTHON = """#!/bin/sh
# makes environments: their python is there long before their pip is
case "$*" in
  *"-m venv"*)
    for venv; do :; done
    echo "$@" >>"$NOTES/venv"
    [ "$3" != --clear ] || rm -rf "$venv"
    mkdir -p "$venv/bin" && touch "$venv/pyvenv.cfg"
    printf '#!/bin/sh\\necho No module named pip; exit 1' >"$venv/bin/python"
    chmod +x "$venv/bin/python"
    if [ -e "$NOTES/slow-venv" ]; then $SLOW; fi
    cp "$NOTES/python" "$venv/bin/python" ;;
esac
"""
SLOW = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
pathlib.Path(os.environ["NOTES"], "pids").write_text(f"{os.getpid()} {child.pid}")
pathlib.Path(os.environ["NOTES"], "pids").rename(pathlib.Path(os.environ["NOTES"], "started"))
time.sleep(300)
"""


class Installation:
    """install.sh with an interpreter that makes such environments; steps can be made slow."""

    def __init__(self, folder: Path) -> None:
        self.venv = folder / "venv"
        self.notes = folder / "notes"
        self.notes.mkdir()
        (self.notes / "slow.py").write_text(SLOW)
        self._executable("python", PYTHON.replace("    exit", SLOW_PIP + "    exit"))
        self._executable("maker", FAKE_PYTHON)

    def _executable(self, name: str, text: str) -> None:
        (self.notes / name).write_text(text)
        (self.notes / name).chmod(0o755)

    def start(self) -> subprocess.Popen[bytes]:
        """In a session of its own, as a terminal's."""
        return subprocess.Popen(
            ["bash", SCRIPT, self.venv],
            env=os.environ
            | {
                "PIP_STATUS": "0",
                "NOTES": str(self.notes),
                "PYTHON": str(self.notes / "maker"),
                "SLOW": f"{sys.executable} {self.notes / 'slow.py'}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def interrupted_in(self, step: str, how) -> tuple[int, str]:
        """Status and errors of a run that is sent a signal in the named step."""
        (self.notes / f"slow-{step}").touch()
        running = self.start()
        wait_for((self.notes / "started").exists)
        processes = [psutil.Process(int(pid)) for pid in self.started()]
        how(running)
        _, errors = running.communicate(timeout=60)
        wait_for(lambda: not any(map(alive, processes)))
        (self.notes / f"slow-{step}").unlink()
        return running.returncode, errors.decode()

    def started(self) -> list[str]:
        return (self.notes / "started").read_text().split()

    def run(self) -> tuple[int, str]:
        running = self.start()
        output, errors = running.communicate(timeout=60)
        return running.returncode, output.decode() + errors.decode()

    @property
    def made(self) -> list[str]:
        """The arguments of each making of an environment, without the folder."""
        lines = (self.notes / "venv").read_text().splitlines()
        return [line.removesuffix(f" {self.venv}") for line in lines]


SLOW_PIP = (
    '    if [ -e "$NOTES/slow-pip" ]; then $SLOW; fi\n    echo "Successfully installed all"\n'
)
WAYS = {
    "ctrl-c": lambda running: os.killpg(running.pid, signal.SIGINT),
    "kill -int": lambda running: running.send_signal(signal.SIGINT),
    "kill": lambda running: running.terminate(),
}


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", ["venv", "pip"])
def test_an_interruption_is_told_and_the_next_run_goes_well(tmp_path, step, way):
    installation = Installation(tmp_path)
    status, errors = installation.interrupted_in(step, WAYS[way])
    assert status == 130
    assert errors == "Interrupted; run the same command again to go on.\n"
    status, said = installation.run()
    assert status == 0, said
    assert said.endswith("Native kernels: portable, gcc\n")
    assert installation.made == ["-m venv", "-m venv --clear"]  # pip was putting packages in place


def test_an_interruption_before_packages_are_put_in_place_keeps_the_environment(tmp_path):
    installation = Installation(tmp_path)
    python = installation.notes / "python"
    whole = python.read_text()
    python.write_text(whole.replace('echo "Installing collected', SLOW_PIP + 'echo "Installing'))
    assert installation.interrupted_in("pip", WAYS["ctrl-c"])[0] == 130
    assert installation.run()[0] == 0
    assert installation.run()[0] == 0
    assert installation.made == ["-m venv"]


def test_a_folder_that_is_no_environment_is_not_emptied(tmp_path):
    installation = Installation(tmp_path)
    installation.venv.mkdir()
    (installation.venv / "notes.txt").write_text("the user's")
    assert installation.run()[0] == 0
    assert (installation.venv / "notes.txt").read_text() == "the user's"


def test_an_environment_whose_interpreter_is_gone_is_made_anew(tmp_path):
    installation = Installation(tmp_path)
    assert installation.run()[0] == 0
    (installation.venv / "bin" / "python").unlink()
    (installation.venv / "bin" / "python").symlink_to("/nowhere/python")
    status, said = installation.run()
    assert status == 0, said
    assert "anew" in said
