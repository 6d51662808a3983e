"""Rotating log files of the daemon and of the command line. They hold no text of the user's.

Knows files, formats and sizes. Who logs keeps user text out: at every level only names, counts,
ids and times are logged.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

from swiftspec_daemon import paths
from swiftspec_daemon.errors import DaemonAlreadyRunning
from swiftspec_daemon.settings import LogSettings

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_NOISY = ("uvicorn", "websockets", "asyncio", "filelock", "urllib3", "huggingface_hub", "httpx")
"""Libraries that log every connection, and in debug messages what crossed the wire."""
_NOT_FOR_THE_TERMINAL = (
    "swiftspec_daemon.engine", "swiftspec_daemon.server.fetching", "uvicorn", "asyncio"
)  # fmt: skip
"""What becomes of the model is shown as the daemon's status; uvicorn tells with tracebacks what a
second Ctrl-C has cut off; asyncio warns of each write to a client that is gone."""


def daemon_log() -> Path:
    """What the daemon does."""
    return paths.log_dir() / "daemon.log"


def daemon_stderr() -> Path:
    """What a daemon in the background writes to standard error: how a start failed, crashes."""
    return paths.log_dir() / "daemon.stderr.log"


def forget_failed_starts() -> None:
    """Empty what failed starts have left: a daemon has started well."""
    with contextlib.suppress(OSError):  # not there, or Windows, where somebody reads it
        os.truncate(daemon_stderr(), 0)


def last_failure(lines: int = 5) -> list[str]:
    """Why the last start in the background failed, for people; [] if it didn't.

    A daemon that found another one running did not fail.
    """
    told = (_told(line) for line in tail(daemon_stderr(), lines))
    return [line for line in told if line]


def command_log() -> Path:
    """Tracebacks of commands that failed in an unexpected way."""
    return paths.log_dir() / "command.log"


def setup(settings: LogSettings, file: Path, *, console: bool = False) -> None:
    """Send all logging to `file`; with `console`, warnings to standard error too."""
    # A record that cannot be written (a full disk) is lost; its traceback would help nobody.
    logging.raiseExceptions = False
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    handler = _PrivateRotatingHandler(
        file, maxBytes=settings.max_bytes, backupCount=settings.backups, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter(_FORMAT))
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    if console:
        short = logging.StreamHandler(sys.stderr)
        short.setLevel(logging.WARNING)
        short.addFilter(lambda record: not record.name.startswith(_NOT_FOR_THE_TERMINAL))
        short.setFormatter(_OneLine("%(levelname)s: %(message)s"))
        root.addHandler(short)


def tail(file: Path, lines: int) -> list[str]:
    """The last lines of a log, older rotated files included. [] if there is none."""
    last: deque[str] = deque(maxlen=lines)
    for part in [*_rotated(file), file]:
        try:
            with part.open(encoding="utf-8", errors="replace") as stream:
                last.extend(line.rstrip("\n") for line in stream)
        except FileNotFoundError:
            continue
    return list(last)


def follow(
    file: Path, *, poll_s: float = 0.2, stop: Callable[[], bool] = lambda: False
) -> Iterator[str]:
    """Lines as they are added, across rotations, until `stop` says so."""
    stream = file.open(encoding="utf-8", errors="replace") if file.exists() else None
    if stream is not None:
        stream.seek(0, os.SEEK_END)
    partial = ""
    try:
        while not stop():
            chunk = stream.readline() if stream is not None else ""
            if chunk:
                partial += chunk
                if partial.endswith("\n"):
                    yield partial.rstrip("\n")
                    partial = ""
                continue
            if file.exists() and (stream is None or _was_rotated(file, stream.fileno())):
                if stream is not None:
                    stream.close()
                stream = file.open(encoding="utf-8", errors="replace")
                continue
            time.sleep(poll_s)
    finally:
        if stream is not None:
            stream.close()


def _told(line: str) -> str:
    """A line of a failed start's output; what is JSON for the client, as a sentence."""
    try:
        failure = json.loads(line)
        if failure["code"] == DaemonAlreadyRunning.code:
            return ""
        return f"error: {failure['message']} {failure.get('hint', '')}".rstrip()
    except (ValueError, KeyError, TypeError):
        return line


class _PrivateRotatingHandler(RotatingFileHandler):
    """Rotating files that only their owner can read."""

    def _open(self) -> object:  # type: ignore[override]
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(descriptor, self.mode, encoding=self.encoding, errors=self.errors)


class _OneLine(logging.Formatter):
    """Lower-case level, no tracebacks: those are in the file."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {record.getMessage()}"


def _rotated(file: Path) -> list[Path]:
    """Oldest first."""
    older = [path for path in file.parent.glob(file.name + ".*") if path.suffix[1:].isdigit()]
    return sorted(older, key=lambda path: -int(path.suffix[1:]))


def _was_rotated(file: Path, descriptor: int) -> bool:
    try:
        there = file.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)
