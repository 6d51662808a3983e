"""Where the running daemon listens and which version it is, as it tells local clients in a file.

Knows the file's form; knows nothing of where it lies, of locks or of processes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

WEBSOCKET_PATH = "/v1/ws"


class Endpoint(msgspec.Struct, kw_only=True, frozen=True):
    """Where a daemon answers, and the key to it."""

    host: str
    port: int
    token: str
    pid: int | None = None
    version: str = ""

    @property
    def address(self) -> str:
        """Of its web server, as http://host:port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def url(self) -> str:
        """Of its websocket."""
        return f"ws{self.address.removeprefix('http')}{WEBSOCKET_PATH}"


class DaemonRecord(msgspec.Struct, kw_only=True, frozen=True):
    """One running daemon."""

    pid: int
    host: str
    """Loopback address, without brackets."""
    port: int
    version: str
    """Of the package, as in `swiftspec version`."""
    protocol: int
    """Newest version of the websocket API that it speaks."""
    started: float
    """Unix time in seconds."""

    def endpoint(self, token: str) -> Endpoint:
        """The same daemon, with its key."""
        return Endpoint(
            host=self.host, port=self.port, token=token, pid=self.pid, version=self.version
        )


def read_record(file: Path) -> DaemonRecord | None:
    """The record in `file`; None if there is none, or none that can be understood."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=DaemonRecord)
    except (OSError, msgspec.DecodeError):
        return None


def write_record(file: Path, record: DaemonRecord) -> None:
    """Replace `file` in one step, readable by its owner alone."""
    # mkstemp gives mode 0600
    handle, name = tempfile.mkstemp(prefix=file.name, dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(msgspec.json.encode(record) + b"\n")
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
