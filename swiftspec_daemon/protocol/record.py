"""What the running daemon tells local clients in a file: where it listens and which version it is.

Knows the file's form; knows nothing of where it lies, of locks or of processes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec


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
