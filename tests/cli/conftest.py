"""The command line in subprocesses, each test with a home of its own and no daemon left behind."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from swiftspec_daemon.protocol.record import DaemonRecord, read_record

LIMIT_S = 60


@dataclass
class CommandLine:
    """`swiftspec` with a home, a working folder and settings of its own."""

    home: Path
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    """More environment variables."""

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SWIFTSPEC_", "FORCE_"))}
        names = {
            f"SWIFTSPEC_{name.upper().replace('.', '__')}": value
            for name, value in self.settings.items()
        }
        return kept | names | self.extra | {"SWIFTSPEC_HOME": str(self.home), "PYTHONSAFEPATH": "1"}

    @property
    def record(self) -> DaemonRecord | None:
        return read_record(self.home / "state" / "daemon.json")

    @property
    def token(self) -> str:
        return (self.home / "config" / "token").read_text().strip()

    def __call__(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        done = subprocess.run(
            [sys.executable, "-m", "swiftspec_daemon", *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment,
            cwd=self.folder,
            timeout=LIMIT_S,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make this process see what the subprocesses see."""
        for name in [name for name in os.environ if name not in self.environment]:
            monkeypatch.delenv(name)
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.folder)

    def start(self, *arguments: str, **options) -> subprocess.Popen[bytes]:
        """Start and leave running."""
        return subprocess.Popen(
            [sys.executable, "-m", "swiftspec_daemon", *arguments],
            env=self.environment,
            cwd=self.folder,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
            | options,
        )

    def wait_record(self, *, other_than: int | None = None) -> DaemonRecord:
        """Wait until a daemon says where it is."""
        return wait_for(
            lambda: self.record if self.record and self.record.pid != other_than else None
        )


def wait_for(condition):
    """Wait until `condition` gives something true, and return that."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def is_ready(record: DaemonRecord) -> bool:
    """Whether the daemon's model is loaded."""
    connection = http.client.HTTPConnection(record.host, record.port, timeout=LIMIT_S)
    with contextlib.closing(connection):
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200


@pytest.fixture
def swiftspec(tmp_path):
    """The command line with the toy model, on a free port."""
    folder = tmp_path / "work"
    folder.mkdir()
    line = CommandLine(
        tmp_path / "home",
        folder,
        {"server.port": "0", "model.target": "toy:", "log.level": "debug"},
    )
    yield line
    record = line.record
    if record is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGKILL)


@pytest.fixture
def daemon(swiftspec):
    """A running daemon with the toy model, which is loaded: the process."""
    process = swiftspec.start("serve")
    record = swiftspec.wait_record()
    wait_for(lambda: is_ready(record))
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def wait():
    """`wait_for`, which importlib mode gives no other way to."""
    return wait_for
