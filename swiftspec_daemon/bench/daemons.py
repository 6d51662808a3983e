"""Daemons for benchmarks: each in a home of its own, so that the user's daemon is left alone.

The cache of models is shared with the user's; settings, token, lock and logs are not. Knows how a
daemon is started and when it is ready; knows nothing of what is measured on it.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from swiftspec_daemon import paths
from swiftspec_daemon.errors import DaemonNotRunning
from swiftspec_daemon.protocol.record import DaemonRecord, read_record

_POLL_S = 0.002
_END_S = 20.0

SERVE = ("-m", "swiftspec_daemon", "serve", "--set", "server.port=0")
"""Arguments of the interpreter for the daemon as users run it, on a free port."""


@dataclass(frozen=True)
class Daemon:
    """A running daemon."""

    record: DaemonRecord
    token: str
    home: Path
    ready_s: float
    """From the start of the process until it was ready to complete."""

    @property
    def url(self) -> str:
        """Of its websocket."""
        return f"ws://{self.record.host}:{self.record.port}/v1/ws"

    @property
    def environment(self) -> dict[str, str]:
        """For processes that should find this daemon and no other."""
        return environment(self.home)


def environment(home: Path) -> dict[str, str]:
    """This process's environment with another home, without settings of the user's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SWIFTSPEC_")}
    return kept | {"SWIFTSPEC_HOME": str(home), "PYTHONSAFEPATH": "1"}


@contextlib.contextmanager
def running(arguments: Sequence[str] = SERVE, *, timeout_s: float = 300.0) -> Iterator[Daemon]:
    """A daemon that is ready, for as long as the block runs.

    Raises DaemonNotRunning if it ends or is not ready within `timeout_s`.
    """
    with tempfile.TemporaryDirectory(prefix="swiftspec-bench-") as folder:
        home = Path(folder)
        (home / "cache").symlink_to(paths.cache_dir(), target_is_directory=True)
        output = home / "output.log"
        started = time.perf_counter()
        with output.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-P", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=environment(home),
                cwd=home,
            )
        try:
            record = _wait_ready(process, home, started + timeout_s)
            ready_s = time.perf_counter() - started
            token = (home / "config" / "token").read_text("ascii").strip()
            yield Daemon(record=record, token=token, home=home, ready_s=ready_s)
        finally:
            _end(process)


def _wait_ready(process: subprocess.Popen[bytes], home: Path, deadline: float) -> DaemonRecord:
    record: DaemonRecord | None = None
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            words = (home / "output.log").read_text("utf-8", "replace").strip().splitlines()
            raise DaemonNotRunning(f"The daemon ended: {words[-1] if words else 'no output'}.")
        record = record or read_record(home / "state" / "daemon.json")
        if record is not None and _status(record, "/ready") == 200:
            return record
        time.sleep(_POLL_S)
    raise DaemonNotRunning("The daemon was not ready in time.", "Is the machine very busy?")


def _status(record: DaemonRecord, path: str) -> int:
    """HTTP status of a GET; 0 if nothing answers."""
    connection = http.client.HTTPConnection(record.host, record.port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
